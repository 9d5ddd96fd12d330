"""What a keeper finds out, and what the executor does where a keeper was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nextfire.adapters import keeper, sandbox

PIDS = 1 << 22
"""No process has this number, or a greater one."""


def test_children_and_their_children_are_descendants() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 20 & echo $!; wait"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        try:
            assert {child.pid, grandchild} <= keeper._descendants(os.getpid())  # noqa: SLF001
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
    monkeypatch.setattr(keeper, "processes", lambda: found.pop(0))
    monkeypatch.setattr(
        os, "kill", lambda pid, how: killed.append(pid) if how == signal.SIGKILL else None
    )

    sandbox._kill_adopted()  # noqa: SLF001

    assert killed == [PIDS + 1, PIDS + 2, PIDS + 3]
