"""A worker does not leak descriptors, processes, files or memory over many scripts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Directive, ScriptCall
from tests.crons import LONG
from tests.eventually import eventually

SLOTS = 16
SCRIPTS = 20_000 if LONG else 300
BATCH = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A supervisor that never interrupts."""

    def ask(self) -> Directive:
        return Directive.CONTINUE

    def output(self, stream: str, data: bytes) -> None: ...

    def checkpoint(self) -> bytes | None:
        return None

    def save(self, _: bytes) -> str | None:
        return None


def resources(folder: Path) -> dict[str, int]:
    """Resources of this process and of its launchers, without those that have exited."""
    own, of = os.getpid(), parents()
    launchers = [pid for pid, parent in of.items() if parent == own]
    return {
        "descriptors": descriptors(own),
        "launchers": len(launchers),
        "launchers' descriptors": sum(map(descriptors, launchers)),
        "launchers' children": sum(parent in launchers for parent in of.values()),
        "files": len(list(folder.iterdir())),
    }


def memory() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except FileNotFoundError:
        return 0  # it has exited


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.parent.name)] = int(parent)
        except OSError:
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below `/tmp`, which scripts can see, unlike one in `/dev/shm`."""
    with tempfile.TemporaryDirectory(prefix="test-many-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.mark.timeout(3600)
def test_resources_do_not_grow_over_many_scripts(folder: Path) -> None:
    runner = ProcessScriptRunner(temp_root=folder)
    call = ScriptCall("a.py", b"print(1)", "{}", timedelta(minutes=1), "acme", {}, Masker())

    def one(_: int) -> int | None:
        return runner.run(call, Watch()).exit_code

    with ThreadPoolExecutor(SLOTS) as slots:
        assert set(slots.map(one, range(100))) == {0}
        before, memory_before = resources(folder), memory()
        for _ in range(0, SCRIPTS, BATCH):  # a future of each script would count as memory
            assert set(slots.map(one, range(BATCH))) == {0}

        # The last programs and a retired launcher may still end.
        eventually(lambda: resources(folder) == before)
        assert resources(folder) == before
        assert memory() - memory_before < 16 * 1024 * 1024
