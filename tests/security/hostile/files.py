"""Probes of files, and of the /proc data of other processes."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.security.hostile.common import canaries, chance, deadline, head, job, others, probe, walk


@probe
def proc_environ() -> Iterator[str]:
    for pid in others():
        yield from canaries(head(f"/proc/{pid}/environ"), f"environ of {pid}")


@probe
def proc_cmdline() -> Iterator[str]:
    for pid in others():
        yield from canaries(head(f"/proc/{pid}/cmdline"), f"cmdline of {pid}")


@probe
def proc_memory() -> Iterator[str]:
    for pid in others():
        with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                if "rw" in line and last - first <= 1 << 25 and time.monotonic() < deadline[0]:
                    with suppress(OSError, OverflowError):
                        memory.seek(first)
                        yield from canaries(memory.read(last - first), f"memory of {pid}")


@probe
def proc_descriptors() -> Iterator[str]:
    for pid in others():
        with suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{number}"
                with suppress(OSError):
                    if stat.S_ISREG(os.stat(path).st_mode):
                        yield from canaries(head(path), f"descriptor of {pid}")


@probe
def proc_folders() -> Iterator[str]:
    """Find canaries that are reachable only through the folders of another process. `files` covers
    those that are also reachable by their path.
    """
    for pid in others():
        for link, place in (("cwd", ""), (f"root{job['folder']}", job["folder"])):
            top = f"/proc/{pid}/{link}"
            with suppress(OSError):
                plain = place or os.readlink(top)
                for path in walk(top, 300):
                    if not same(path, plain + path.removeprefix(top)):
                        yield from canaries(head(path), f"{link} of {pid}")


def same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


# Files


@probe
def files() -> Iterator[str]:
    places = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/root", "/etc", "/opt", "/mnt"]
    for top in [job["folder"], *job["targets"], *chance.sample(places, len(places))]:
        for path in [top, *walk(top)]:
            yield from canaries(head(path), "files")


@probe
def writes_elsewhere() -> Iterator[str]:
    for path in [*job["targets"], *job["targets"]]:
        for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR):
            with suppress(OSError):
                descriptor = os.open(path, flags)
                os.close(descriptor)
                yield f"may write to {Path(path).name}"
        for change in (
            partial(os.chmod, path, 0o666),
            partial(swap, path, path + job["tag"]),
            partial(os.link, path, f"{job['tag']}-link"),
        ):
            with suppress(OSError):
                change()
                yield f"changed {Path(path).name}"


def swap(path: str, other: str) -> None:
    os.rename(path, other)
    os.rename(other, path)


@probe
def links() -> Iterator[str]:
    """Leave links where the cleanup goes, and swap folders for links while it may be running."""
    for place in (os.getcwd(), os.environ["TMPDIR"], "/tmp", "/var/tmp", "/dev/shm"):
        for number, path in enumerate((*job["targets"], "/", "/etc", job["folder"])):
            with suppress(OSError):
                os.symlink(path, f"{place}/{job['tag']}-{number}")
    deep = Path("deep")
    for _ in range(chance.randrange(60)):
        deep /= "d"
    with suppress(OSError):
        deep.mkdir(parents=True)
        os.symlink("/", deep / "up")
        os.chmod("deep", 0)
    yield from ()


@probe
def setuid_programs() -> Iterator[str]:
    for name in ("sudo -n", "su -c", "pkexec", "doas -n"):
        with suppress(OSError, subprocess.SubprocessError):
            end = subprocess.run(
                [*name.split(), "id"], capture_output=True, timeout=1, check=False, input=b""
            )
            if b"uid=0" in end.stdout:
                yield f"{name} gave root"
