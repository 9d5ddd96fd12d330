"""The end of a program, as the executor sees it from its keeper; here a keeper of any kind."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from nextfire.adapters import kept_program


class Keeper:
    """A process, and the other end of its control socket."""

    def __init__(self, seconds: float, *, adopts: bool = False) -> None:
        self.process = subprocess.Popen(["sleep", str(seconds)])
        control, self.told = socket.socketpair()
        self._control = control
        self.kept = kept_program.KeptProgram(self.process, control, adopts=adopts)

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

    keeper.kept.end()

    assert keeper.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("report", "ends", "adopts", "looked"),
    [
        (b"X 3\n", True, True, True),
        (b"X 3\n", False, True, True),
        (b"", True, True, True),
        (b"", True, False, False),
    ],
    ids=["all have ended", "it did not come to its end", "it was killed", "a user of its own"],
)
def test_what_a_killed_keeper_left_is_looked_for(
    keepers: list[Keeper],
    monkeypatch: pytest.MonkeyPatch,
    report: bytes,
    ends: bool,  # noqa: FBT001
    adopts: bool,  # noqa: FBT001
    looked: bool,  # noqa: FBT001
) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(kept_program, "_kill_adopted", lambda: calls.append(True))
    monkeypatch.setattr(kept_program, "_GONE_WITHIN", 0.2)
    keeper = Keeper(20, adopts=adopts)
    keepers.append(keeper)
    if ends:
        keeper.tell(report)
        keeper.process.kill()
    else:
        keeper.told.sendall(report)

    keeper.kept.end()

    assert calls == [True] * looked
