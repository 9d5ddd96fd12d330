"""The end of a program, as the executor sees it from its keeper; here a keeper of any kind."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from nextfire.adapters import kept_program
from nextfire.adapters.script_streams import Pump


class Keeper:
    """A process, and the other end of its control socket."""

    def __init__(self, seconds: float) -> None:
        self.process = subprocess.Popen(["sleep", str(seconds)])
        control, self.told = socket.socketpair()
        self._control = control
        self.swept: list[kept_program.SupervisedProgram] = []
        self.killed: list[int] = []
        self.kept = kept_program.SupervisedProgram(
            control, kill=self.kill, kill_launcher=self.told.close, sweep=self.swept.append
        )
        self.told.sendall(b"P %d\n" % self.process.pid)

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        if pid == self.process.pid:
            self.process.kill()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._control.close()
        self.told.close()

    def tell(self, report: bytes) -> None:
        """*report*, and nothing more."""
        self.told.sendall(report)
        self.told.shutdown(socket.SHUT_WR)


@pytest.fixture
def keepers() -> Iterator[list[Keeper]]:
    made: list[Keeper] = []
    yield made
    for each in made:
        each.close()


def test_all_that_a_keeper_tells_is_heard_before_its_end(
    keepers: list[Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(0)
    keepers.append(keeper)
    keeper.tell(b"X 3\n")

    keeper.kept.end()

    assert (keeper.kept.exit_code, keeper.kept.ended) == (3, True)
    assert keeper.told.recv(10) == b"K"
    assert caplog.messages == []


def test_a_keeper_that_does_not_come_to_its_end_is_killed(
    keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_program, "_GONE_WITHIN", 0.01)
    keeper = Keeper(20)
    keepers.append(keeper)

    def reap() -> None:  # as the launcher does, which closes its end then
        keeper.process.wait()
        keeper.told.close()

    reaping = threading.Thread(target=reap)
    reaping.start()

    keeper.kept.end()

    reaping.join()
    assert keeper.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("report", [b"X 3\n", b""], ids=["all have ended", "it was killed"])
def test_what_a_keeper_left_is_looked_for_whatever_it_reported(
    keepers: list[Keeper], report: bytes
) -> None:
    keeper = Keeper(20)
    keepers.append(keeper)
    keeper.tell(report)

    keeper.kept.end()
    keeper.kept.end()

    assert keeper.swept == [keeper.kept]
    assert keeper.kept.left_nothing == bool(report)


def test_keeper_that_reports_anything_costs_its_own_run(keepers: list[Keeper]) -> None:
    """Lies, floods, and then hangs."""
    draw = random.Random(3)  # noqa: S311
    for _ in range(20):
        keeper = Keeper(20)
        keepers.append(keeper)
        said = b"P %d\n" % keeper.process.pid
        for _ in range(draw.randrange(40)):
            said += draw.choice([b"S", b"D", b"X", b"P", b"E", b""]) + draw.randbytes(9) + b"\n"
        keeper.told.sendall(said + draw.choice([b"", b"X 0\n", bytes(64 * 1024)]))
        kept = keeper.kept
        pump = Pump()
        pump.add(kept.sources[0])

        pump.drain(0.05)

        keeper.told.close()
        kept.end()
        assert isinstance(kept.exit_code, int | None)
        assert len(kept._report) <= 64 * 1024  # noqa: SLF001


def test_keeper_that_floods_is_killed_and_believed_no_more(keepers: list[Keeper]) -> None:
    keeper = Keeper(20)
    keepers.append(keeper)
    keeper.told.sendall(b"X 0\n" * 5000)
    pump = Pump()
    pump.add(keeper.kept.sources[0])

    pump.drain(0.05)

    assert keeper.process.wait(20) == -signal.SIGKILL
    assert (keeper.kept.exit_code, keeper.kept.left_nothing) == (None, False)
    keeper.told.close()
