"""A hostile script: tries each probe once, then random probes until its time is up."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.security.hostile import files, kernel, privileges
from tests.security.hostile.common import PROBES, canaries, chance, deadline, head, job, probe

__all__ = ["files", "kernel", "main", "privileges"]

_STARTED_WITH = {int(name): os.readlink(f"/proc/self/fd/{name}")
                 for name in os.listdir("/proc/self/fd")
                 if os.path.lexists(f"/proc/self/fd/{name}")}  # fmt: skip


@probe
def own_environment() -> Iterator[str]:
    for name in ("environ", "cmdline", "auxv"):
        yield from canaries(head(f"/proc/self/{name}"), "its own environment")


@probe
def python_variables() -> Iterator[str]:
    """Plant modules that Python imports by default, and libraries to preload."""
    yield from ()  # its effects are checked from outside
    code = f"open('/tmp/{job['tag']}-imported', 'w').close()\n"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for place in (os.getcwd(), os.environ["TMPDIR"], job["folder"],
                  f"{os.environ['HOME']}/.local/lib/{version}/site-packages"):  # fmt: skip
        for name in ("sitecustomize.py", "usercustomize.py", "email.py", "nextfire.pth"):
            with suppress(OSError):
                os.makedirs(place, exist_ok=True)
                # If `folder` is the real folder of executors, the test finds the file there.
                Path(place, name).write_text("import os\n" + code)
    os.environ["LD_PRELOAD"] = os.environ["PYTHONSTARTUP"] = "/tmp/" + job["tag"]


@probe
def inherited_descriptors() -> Iterator[str]:
    known = {0, 1, 2, int(os.environ["NEXTFIRE_CHANNEL"])}
    for number, what in _STARTED_WITH.items():
        if number not in known and not what.startswith(("/proc/", f"{os.getcwd()}/")):
            yield f"inherited {what.split(':')[0]}"
            yield from canaries(head(f"/proc/self/fd/{number}"), "a descriptor that it inherited")


@probe
def channel_garbage() -> Iterator[str]:
    with socket.socket(fileno=os.dup(int(os.environ["NEXTFIRE_CHANNEL"]))) as end:
        end.settimeout(0.3)
        for data in (
            b"\n",
            chance.randbytes(chance.randrange(3000)) + b"\n",
            b'{"op":"result","value":' + b"[" * 3000 + b"\n",
            b'{"op":"checkpoint.load"}\n',
            b'{"op":"checkpoint.save","value":"\xff"}\n',
            b'{"op":["result"]}\n' * 5,
            b'{"op":"resu',
        ):
            with suppress(OSError):
                end.sendall(data)
                yield from canaries(end.recv(65536), "the channel")
        end.sendall(b'lt"}\n')


@probe
def survivors() -> Iterator[str]:
    """Leave children that ignore signals, in their own sessions, with the tag in their names."""
    loop = (
        "import os, signal, sys, time\n"
        "for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "os.closerange(0, 256)\n"
        "until = time.monotonic() + 120\n"
        "while time.monotonic() < until:\n"
        "    if len(sys.argv) > 2 and os.fork():\n"
        "        os._exit(0)\n"
        "    time.sleep(0.02)\n"
    )
    if sum(1 for _ in _mine()) > 20:
        return
    for more in ([], ["forks"]):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                with suppress(OSError):
                    os.chdir("/")
                    os.execve(sys.executable, [sys.executable, "-c", loop, job["tag"], *more], {})
            os._exit(0)
        with suppress(ChildProcessError):
            os.wait()
    yield from ()


def _mine() -> Iterator[str]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        if job["tag"].encode() in head(f"/proc/{name}/cmdline"):
            yield name


def main() -> None:
    """Try the probes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    names, prefix = list(job.get("only") or PROBES), job.get("prefix", "")
    chance.shuffle(names)
    # Probes that leave something behind come last.
    names.sort(key=["links", "python_variables", "survivors"].__contains__)
    ends_at = time.monotonic() + job["seconds"]
    while True:
        for name in names:
            deadline[0] = time.monotonic() + max(0.5, job["seconds"] / len(PROBES))
            found: set[str] = set()
            try:
                found.update(PROBES[name]())
            except Exception as error:  # noqa: BLE001 — a denied probe is not a finding
                print(json.dumps({"probe": prefix + name, "error": repr(error)}), flush=True)
            print(json.dumps({"probe": prefix + name, "found": sorted(found)}), flush=True)
        if time.monotonic() >= ends_at:
            return
        names = [chance.choice(list(PROBES))]


if __name__ == "__main__":
    main()
