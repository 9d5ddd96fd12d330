"""A worker's machine after many scripts is as after the first hundred."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.script_runner import ProcessScriptRunner
from nextfire.domain.masking import Masker
from nextfire.domain.ports import ScriptCall, Verdict
from tests.crons import LONG

SLOTS = 16
SCRIPTS = 20_000 if LONG else 300
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A supervisor that wants nothing."""

    def ask(self) -> Verdict:
        return Verdict.GO_ON

    def output(self, stream: str, data: bytes) -> None: ...

    def checkpoint(self) -> bytes | None:
        return None

    def save(self, _: bytes) -> str | None:
        return None


def look(folder: Path) -> dict[str, int]:
    """What this process, and the launcher below it, hold."""
    own = os.getpid()
    launcher = next(pid for pid, parent in parents().items() if parent == own)
    return {
        "descriptors": descriptors(own),
        "launcher's descriptors": descriptors(launcher),
        "launcher's children": sum(parent == launcher for parent in parents().values()),
        "children": sum(parent == own for parent in parents().values()),
        "files": len(list(folder.iterdir())),
    }


def memory() -> int:
    """Bytes that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


@pytest.mark.timeout(3600)
def test_after_many_scripts_all_is_as_after_the_first_hundred(tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for each in (folder, *folder.parents[:3]):
        each.chmod(0o755)
    runner = ProcessScriptRunner(temp_root=folder)
    call = ScriptCall("a.py", b"print(1)", "{}", timedelta(minutes=1), "acme", {}, Masker())

    def one(_: int) -> int | None:
        return runner.run(call, Watch()).exit_code

    with ThreadPoolExecutor(SLOTS) as slots:
        assert set(slots.map(one, range(100))) == {0}
        before, held = look(folder), memory()
        assert set(slots.map(one, range(SCRIPTS))) == {0}

        assert look(folder) == before
        assert memory() - held < 16 * 1024 * 1024
