"""The end of a program as its keeper reports it to the executor; here a fake keeper."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from nextfire.adapters.scripts import kept_program
from nextfire.adapters.scripts.script_streams import Pump
from nextfire.domain.ports.scripts import Directive


class Keeper:
    """A process and the keeper's end of its control socket."""

    def __init__(self, seconds: float) -> None:
        self.process = subprocess.Popen(["sleep", str(seconds)])
        control, self.keeper_end = socket.socketpair()
        self._control = control
        self.swept: list[kept_program.SupervisedProgram] = []
        self.killed: list[int] = []
        self.kept = kept_program.SupervisedProgram(
            control, kill=self.kill, kill_launcher=self.keeper_end.close, sweep=self.swept.append
        )
        self.keeper_end.sendall(b"P %d\n" % self.process.pid)

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        if pid == self.process.pid:
            self.process.kill()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._control.close()
        self.keeper_end.close()

    def tell(self, report: bytes) -> None:
        """Send *report* and close the sending side."""
        self.keeper_end.sendall(report)
        self.keeper_end.shutdown(socket.SHUT_WR)


@pytest.fixture
def keepers() -> Iterator[list[Keeper]]:
    made: list[Keeper] = []
    yield made
    for each in made:
        each.close()


def test_all_reports_of_a_keeper_are_read_before_its_end(
    keepers: list[Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(0)
    keepers.append(keeper)
    keeper.tell(b"X 3\n")

    keeper.kept.end()

    assert (keeper.kept.exit_code, keeper.kept.ended) == (3, True)
    assert keeper.keeper_end.recv(10) == b"K"
    assert caplog.messages == []


def test_a_keeper_that_does_not_come_to_its_end_is_killed(
    keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_program, "_GONE_WITHIN", 0.01)
    keeper = Keeper(20)
    keepers.append(keeper)

    def reap() -> None:  # like the launcher, which then closes its end
        keeper.process.wait()
        keeper.keeper_end.close()

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


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (-signal.SIGTERM, Directive.HAND_BACK),
        (-signal.SIGKILL, Directive.CONTINUE),
        (1, Directive.CONTINUE),
    ],
)
def test_a_script_that_was_stopped_with_its_worker_is_handed_back(
    keepers: list[Keeper], code: int, verdict: Directive
) -> None:
    """Systemd sends SIGTERM to all processes of a service at once."""
    keeper = Keeper(20)
    keepers.append(keeper)
    keeper.tell(b"S\nD\nX %d\n" % code)
    keeper.keeper_end.close()
    with Pump() as pump:
        pump.add(keeper.kept.sources[0])

        end = kept_program.supervise(
            keeper.kept, pump, timedelta(minutes=1), 1.0, lambda: Directive.HAND_BACK
        )

    assert end == (False, verdict)


def test_a_misbehaving_keeper_affects_its_own_run_only(keepers: list[Keeper]) -> None:
    """It reports false events, floods the socket and then hangs."""
    draw = random.Random(3)  # noqa: S311
    for _ in range(20):
        keeper = Keeper(20)
        keepers.append(keeper)
        said = b"P %d\n" % keeper.process.pid
        for _ in range(draw.randrange(40)):
            said += draw.choice([b"S", b"D", b"X", b"P", b"E", b""]) + draw.randbytes(9) + b"\n"
        keeper.keeper_end.sendall(said + draw.choice([b"", b"X 0\n", bytes(64 * 1024)]))
        kept = keeper.kept
        pump = Pump()
        pump.add(kept.sources[0])

        pump.drain(0.05)

        keeper.keeper_end.close()
        kept.end()
        assert isinstance(kept.exit_code, int | None)
        assert len(kept._report) <= 64 * 1024  # noqa: SLF001


def test_keeper_that_floods_is_killed_and_believed_no_more(keepers: list[Keeper]) -> None:
    keeper = Keeper(20)
    keepers.append(keeper)
    keeper.keeper_end.sendall(b"X 0\n" * 5000)
    pump = Pump()
    pump.add(keeper.kept.sources[0])

    pump.drain(0.05)

    assert keeper.process.wait(20) == -signal.SIGKILL
    assert (keeper.kept.exit_code, keeper.kept.left_nothing) == (None, False)
    keeper.keeper_end.close()
