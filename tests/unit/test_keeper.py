"""Keepers: how they reap processes, and how the executor cleans up after a killed keeper."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from nextfire.adapters.scripts import keeper, process_table, script_users
from nextfire.adapters.scripts.confinement import PR_SET_DUMPABLE, prctl
from nextfire.adapters.scripts.kept_program import SupervisedProgram

PIDS = 1 << 22
"""Above every process id."""


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


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_processes_that_cannot_be_looked_into_count_for_their_user() -> None:
    """As the executor is, and as a script can make itself."""
    user = 64_899
    ready, begun = os.pipe()
    hidden = os.fork()
    if not hidden:
        try:
            os.setgid(user)
            os.setuid(user)
            prctl(PR_SET_DUMPABLE, 0)
            os.write(begun, b"1")
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        assert os.read(ready, 1) == b"1"
        assert process_table.tasks_of(user) == 1
        assert script_users._busy(user)  # noqa: SLF001
    finally:
        os.kill(hidden, signal.SIGKILL)
        os.waitpid(hidden, 0)
        os.close(ready)
        os.close(begun)


def test_why_a_program_cannot_be_forked_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", fail)
    kept = keeper._Keeper.__new__(keeper._Keeper)  # noqa: SLF001
    kept._network, kept._namespaces = -1, False  # noqa: SLF001
    before = len(list(Path("/proc/self/fd").iterdir()))

    problem = kept._start(-1)  # noqa: SLF001

    assert "no more processes" in problem
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_id_of_a_keeper_that_is_gone_gets_no_signal() -> None:
    """It may be the id of another process by then."""
    killed: list[int] = []
    ours, theirs = socket.socketpair()
    with ours:
        kept = SupervisedProgram(
            ours, kill=killed.append, kill_launcher=lambda: None, sweep=lambda _: None
        )
        theirs.sendall(b"P %d\n" % PIDS)
        for source in kept.sources:
            source.ready(0)
        kept.kill_keeper()
        assert killed == [PIDS]

        theirs.close()
        kept.end()
        kept.kill_keeper()

    assert killed == [PIDS]


def test_a_long_request_is_read_whole(tmp_path: Path) -> None:
    request = os.urandom((1 << 20) + 1)
    (tmp_path / "request").write_bytes(request)
    descriptor = os.open(tmp_path / "request", os.O_RDONLY)

    assert keeper._read_all(descriptor) == request  # noqa: SLF001

    os.close(descriptor)


def test_processes_started_during_a_kill_are_killed_too(
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


def test_dead_children_are_reaped_and_living_ones_reported() -> None:
    kept = keeper._Keeper.__new__(keeper._Keeper)  # noqa: SLF001
    kept._exit_code = None  # noqa: SLF001
    kept._has_children = True  # noqa: SLF001
    kept._namespaces = False  # noqa: SLF001

    def reaped() -> tuple[bool, int | None, bool]:
        """Runs in a process without other children: three are dead, the fourth is killed later."""
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


def test_a_keeper_without_memory_reports_a_scarcity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def exhausted(_: bytes) -> dict[str, object]:
        raise MemoryError

    monkeypatch.setattr("marshal.loads", exhausted)
    (tmp_path / "request").touch()
    request = os.open(tmp_path / "request", os.O_RDONLY)
    executor, control = socket.socketpair()
    with executor, control:
        keeper.keep(control.fileno(), request, -1, -1, namespaces=False)

        line = executor.recv(1000).decode()

    os.close(request)
    assert line == "E [Errno 12] Cannot allocate memory\n"


def test_a_program_without_memory_is_not_reported_as_started() -> None:
    assert keeper._reason(MemoryError()) == b"[Errno 12] Cannot allocate memory"  # noqa: SLF001
    assert keeper._reason(KeyError()) == b"KeyError"  # noqa: SLF001
