"""The supervisor of the embedded stack's parts, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from functions.embedded.pulse import LOOKS

ROOT = Path(__file__).resolve().parents[2]
AT_MOST = 20.0
"""Timeout of a test in seconds."""
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from functions.embedded import pulse, restarts, supervisor

folder = Path(sys.argv[1])
supervisor._LONGEST_WAIT = pulse.LOOK_EVERY = float(os.environ.get("LOOK_EVERY", 60))
supervisor._GRACE = float(sys.argv[2])
restarts.FIRST_PAUSE = float(sys.argv[3])
restarts.MOST_DEATHS = 3

fork = os.fork

def note(name, what):
    with (folder / "notes").open("a") as notes:
        notes.write(json.dumps([name, what, os.getpid(), time.monotonic()]) + "\\n")

supervisor.rotate_logs = lambda _: note("supervisor", "looks")

def live(name, stop=None):
    def run():
        if stop is not None:
            signal.signal(signal.SIGTERM, stop)
        note(name, "starts")
        while True:
            signal.pause()
    return supervisor.Part(name, run)

def slowly(*_):
    time.sleep(0.4)
    note("slow", "stopped")
    os._exit(0)

def at_once(*_):
    note("quick", "stopped")
    os._exit(0)

def fail():
    note("failing", "starts")
    sys.exit(3)

def beat(of, name):
    note(name, "starts")
    while True:
        of.beat()
        time.sleep(0.01)

def beating(name, below=False, late=False):
    of = pulse.Pulse()
    def run():
        if late:
            note(name, "starts")
            signal.pause()
        child = below and fork()
        if below and not child:
            supervisor.prctl(supervisor.PR_SET_PDEATHSIG, signal.SIGKILL)
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 128 + 18
        beat(of, name)
    return supervisor.Part(name, run, pulse=of)

PARTS = {
    "beating": beating("beating"),
    "below": beating("below", below=True),
    "late": beating("late", late=True),
    "quick": live("quick", at_once),
    "slow": live("slow", slowly),
    "stubborn": live("stubborn", signal.SIG_IGN),
    "failing": supervisor.Part("failing", fail),
}

def report(parts):
    if (folder / "full").exists():
        raise OSError(28, "No space left on device")
    (folder / "new").write_text(json.dumps(parts))
    (folder / "new").replace(folder / "parts")

def fork_or_fail():
    if (folder / "no-memory").exists():
        raise OSError(12, "Cannot allocate memory")
    return fork()

os.fork = fork_or_fail
supervisor.MAX_PAUSE = 0.05

sys.exit(supervisor.PartsSupervisor(
    [PARTS[name] for name in sys.argv[4:]], logs=folder, report=report
).run())
"""


class Supervised:
    """A supervisor of parts. `notes`: what they noted: name, what, process id, time."""

    def __init__(
        self,
        folder: Path,
        *parts: str,
        grace: float = 5,
        pause: float = 0.02,
        look_every: float = 60,
    ) -> None:
        self._folder = folder
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(folder), str(grace), str(pause), *parts],
                env={"PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}", "LOOK_EVERY": f"{look_every}"},
                stdout=output,
            )

    @property
    def notes(self) -> list[tuple[str, str, int, float]]:
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in (self._folder / "notes").read_text().splitlines()]
        return []

    @property
    def parts(self) -> Any:
        return json.loads((self._folder / "parts").read_text())

    def started(self, name: str) -> list[int]:
        return [pid for part, what, pid, _ in self.notes if (part, what) == (name, "starts")]

    @property
    def looks(self) -> int:
        """How often the supervisor has looked at its parts."""
        return sum(what == "looks" for _, what, *_ in self.notes)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + AT_MOST
        while not condition():
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.01)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(AT_MOST)


Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Supervised] = []

    def begin(*parts: str, **values: float) -> Supervised:
        begun.append(Supervised(tmp_path, *parts, **values))
        begun[-1].until(lambda: all(begun[-1].started(part) for part in parts))
        return begun[-1]

    yield begin
    for each in begun:
        each.process.kill()  # the kernel ends its parts
        each.process.wait()


def test_only_the_part_that_died_is_started_again(start: Start) -> None:
    supervised = start("quick", "slow")
    [quick], [slow] = supervised.started("quick"), supervised.started("slow")

    os.kill(quick, signal.SIGKILL)
    supervised.until(lambda: len(supervised.started("quick")) == 2)
    looked = supervised.looks
    os.kill(supervised.process.pid, signal.SIGCHLD)
    supervised.until(lambda: supervised.looks > looked)

    assert len(supervised.started("quick")) == 2
    assert supervised.started("slow") == [slow]
    assert supervised.parts == {
        "quick": {
            "pid": supervised.started("quick")[1],
            "deaths": 1,
            "lastDeath": "killed by SIGKILL",
        },
        "slow": {"pid": slow, "deaths": 0, "lastDeath": None},
    }


def test_a_part_is_started_again_after_its_pause(start: Start) -> None:
    supervised = start("quick", "slow", pause=0.5)

    killed_at = time.monotonic()
    os.kill(supervised.started("quick")[0], signal.SIGKILL)
    time.sleep(0.1)
    os.kill(supervised.started("slow")[0], signal.SIGKILL)  # wakes the supervisor in the pause
    supervised.until(lambda: len(supervised.started("quick")) == 2)

    times = [at for part, what, _, at in supervised.notes if (part, what) == ("quick", "starts")]
    assert times[1] - killed_at >= 0.5


@pytest.mark.parametrize("part", ["beating", "below"])
def test_a_process_that_hangs_is_killed_and_started_again(start: Start, part: str) -> None:
    """In a worker the process that beats is the child of the part's."""
    supervised = start(part, "quick", look_every=0.2)
    [process] = supervised.started(part)

    os.kill(process, signal.SIGSTOP)
    supervised.until(lambda: len(supervised.started(part)) == 2)
    looked = supervised.looks
    supervised.until(lambda: supervised.looks > looked + 8)

    assert len(supervised.started(part)) == 2
    assert len(supervised.started("quick")) == 1
    assert (supervised.parts[part]["deaths"], supervised.parts[part]["lastDeath"]) == (
        1,
        "killed because it hung for a minute",
    )


def test_a_process_that_hangs_before_its_first_beat_has_longer(start: Start) -> None:
    supervised = start("late", look_every=0.05)
    supervised.until(lambda: supervised.looks > 2 * LOOKS)
    assert len(supervised.started("late")) == 1

    supervised.until(lambda: len(supervised.started("late")) == 2)


def test_nothing_is_done_until_a_part_dies(start: Start) -> None:
    supervised = start("quick", "slow")
    supervised.until(lambda: supervised.looks)

    time.sleep(0.3)

    assert supervised.looks == 1


def test_a_part_that_dies_too_often_ends_the_others(start: Start) -> None:
    supervised = start("quick", "failing")

    assert supervised.process.wait(AT_MOST) == 1

    assert len(supervised.started("failing")) == 3
    assert [what for part, what, *_ in supervised.notes if part == "quick"] == ["starts", "stopped"]


def test_a_full_disk_does_not_end_the_parts(start: Start, tmp_path: Path) -> None:
    supervised = start("quick", "slow")
    supervised.until((tmp_path / "parts").exists)
    (tmp_path / "full").touch()

    os.kill(supervised.started("quick")[0], signal.SIGKILL)
    supervised.until(lambda: len(supervised.started("quick")) == 2)
    (tmp_path / "full").unlink()
    os.kill(supervised.process.pid, signal.SIGCHLD)  # wakes the supervisor

    supervised.until(lambda: supervised.parts["quick"]["deaths"])
    assert supervised.parts["quick"]["pid"] == supervised.started("quick")[1]
    assert len(supervised.started("slow")) == 1


def test_a_part_that_cannot_be_started_is_tried_again(start: Start, tmp_path: Path) -> None:
    supervised = start("quick", "slow")
    (tmp_path / "no-memory").touch()

    os.kill(supervised.started("quick")[0], signal.SIGKILL)
    supervised.until(lambda: "cannot be started" in (tmp_path / "output").read_text())
    assert supervised.parts["quick"]["pid"] is None
    (tmp_path / "no-memory").unlink()

    supervised.until(lambda: len(supervised.started("quick")) == 2)
    assert len(supervised.started("slow")) == 1


def test_parts_have_time_to_stop(start: Start) -> None:
    supervised = start("slow", "quick")

    assert supervised.stop() == 0

    stopped = [part for part, what, *_ in supervised.notes if what == "stopped"]
    assert stopped == ["quick", "slow"]


def test_a_part_that_does_not_stop_is_killed(start: Start) -> None:
    supervised = start("stubborn", grace=0.3)
    [stubborn] = supervised.started("stubborn")

    assert supervised.stop() == 0

    with pytest.raises(ProcessLookupError):
        os.kill(stubborn, 0)


def test_each_part_has_a_log(start: Start, tmp_path: Path) -> None:
    start("quick", "slow")
    assert {each.name for each in tmp_path.glob("*.log")} == {"quick.log", "slow.log"}
