"""Messages to a launcher: malformed ones, and many."""

from __future__ import annotations

import array
import os
import random
import socket
from pathlib import Path

from nextfire.adapters.scripts.launcher import Launch
from nextfire.adapters.scripts.launching import LauncherClient
from tests.eventually import eventually
from tests.unit.launcher.conftest import Start, launcher_of


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def send(launching: LauncherClient, message: bytes, descriptors: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    launching._socket.sendmsg([message], rights if descriptors else [])  # noqa: SLF001


def test_executor_of_another_version_is_refused_with_a_message(launching: LauncherClient) -> None:
    near, far = socket.socketpair()
    with near:
        with far, Path(os.devnull).open("r+b") as null:
            send(launching, bytes([Launch.VERSION + 1, 0]), [far.fileno()] + [null.fileno()] * 4)
        reply = b"".join(iter(lambda: near.recv(1000), b""))

    assert reply.startswith(b"E the executor speaks another version")


def test_launcher_withstands_any_message(launching: LauncherClient, start: Start) -> None:
    """A malformed message affects only the run that it requests."""
    draw = random.Random(7)  # noqa: S311
    pid = launcher_of(launching)
    running = start("import time; time.sleep(1); print('on')")
    for _ in range(300):
        near, far = socket.socketpair()
        with near, far, Path(os.devnull).open("r+b") as null:
            message = draw.choice(
                [
                    draw.randbytes(draw.randrange(1, 40)),
                    bytes([Launch.VERSION, draw.randrange(256)]),
                    bytes([Launch.VERSION, Launch.CHANNEL | Launch.NETWORK]),
                ]
            )
            count = draw.choice([0, 1, 3, 5, 6, 7, 20, 100])
            send(launching, message, ([far.fileno()] + [null.fileno()] * count)[:count])

    it = start("print('still there')")
    it.until(lambda kept: kept.ended)
    running.until(lambda kept: kept.ended)

    assert it.read() == b"still there\n"
    assert running.read() == b"on\n"
    assert launcher_of(launching) == pid
    assert eventually(lambda: descriptors_of(pid) <= 10)


def test_launcher_does_not_leak_over_many_programs(launching: LauncherClient, start: Start) -> None:
    pid = launcher_of(launching)

    def look() -> tuple[int, int]:
        children = sum(
            int(path.read_text().rpartition(")")[2].split()[1]) == pid
            for path in Path("/proc").glob("[0-9]*/stat")
            if path.exists()
        )
        return descriptors_of(pid), children

    first = start("")
    first.until(lambda kept: kept.ended)
    before = look()
    for _ in range(60):
        it = start("")
        it.until(lambda kept: kept.ended)

    assert eventually(lambda: look() == before)
