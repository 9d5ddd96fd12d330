"""What a keeper finds out, and what the executor does where a keeper was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nextfire.adapters import keeper, process_table

PIDS = 1 << 22
"""No process has this number, or a greater one."""


def test_children_and_their_children_are_descendants() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 20 & echo $!; wait"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        try:
            assert {child.pid, grandchild} <= process_table.descendants(os.getpid())
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_a_long_request_is_read_whole(tmp_path: Path) -> None:
    request = os.urandom((1 << 20) + 1)
    (tmp_path / "request").write_bytes(request)
    descriptor = os.open(tmp_path / "request", os.O_RDONLY)

    assert keeper._read_all(descriptor) == request  # noqa: SLF001

    os.close(descriptor)


def test_what_begins_while_a_killed_keepers_family_is_killed_is_killed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process(pid: int, parent: int) -> tuple[int, int, list[bytes]]:
        return pid, 0, [b"S", b"%d" % parent, b"0", b"%d" % PIDS]

    found = [
        [process(PIDS + 1, os.getpid()), process(PIDS + 2, PIDS + 1)],
        [process(PIDS + 3, os.getpid())],
        [],
    ]
    killed: list[int] = []
    monkeypatch.setattr(process_table, "processes", lambda: found.pop(0))
    monkeypatch.setattr(
        os, "kill", lambda pid, how: killed.append(pid) if how == signal.SIGKILL else None
    )

    process_table.kill_orphans(())

    assert killed == [PIDS + 1, PIDS + 2, PIDS + 3]


def test_all_that_is_dead_is_reaped_at_once_and_what_lives_is_told() -> None:
    kept = keeper._Keeper.__new__(keeper._Keeper)  # noqa: SLF001
    kept._exit_code = None  # noqa: SLF001
    kept._namespaces = False  # noqa: SLF001

    def reaped() -> tuple[bool, int | None, bool]:
        """In a process without other children: three are dead, a fourth lives until it is."""
        living = os.fork()
        if not living:
            signal.alarm(60)
            signal.pause()
        dead = []
        for code in (1, 2, 3):
            dead.append(os.fork())
            if not dead[-1]:
                os._exit(code)
        for pid in dead:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        kept._child = dead[1]  # noqa: SLF001
        left = kept._reap()  # noqa: SLF001
        exited = kept._exit_code  # noqa: SLF001
        os.kill(living, signal.SIGKILL)
        os.waitid(os.P_PID, living, os.WEXITED | os.WNOWAIT)
        return left, exited, kept._reap()  # noqa: SLF001

    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if reaped() == (True, 2, False) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
