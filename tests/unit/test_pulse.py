"""When a part of the embedded stack hangs: it has not shown a sign of life for a minute."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from functions.embedded import supervisor
from functions.embedded.pulse import FIRST_LOOKS, LOOK_EVERY, LOOKS, Pulse
from functions.worker import supervisor as workers
from functions.worker import worker
from nextfire.adapters.worker.journal import WorkerJournal


@pytest.fixture
def pulse() -> Pulse:
    """A pulse that has beaten once."""
    pulse = Pulse()
    pulse.beat()
    return pulse


def looks(pulse: Pulse, *, since: float = 1000, every: float = LOOK_EVERY) -> tuple[int, int]:
    """Look until a process is found. Returns the number of later looks, and the process."""
    for number in count():
        found = pulse.look(since + number * every)
        if found is not None:
            return number, found
    raise AssertionError


def test_a_process_that_does_not_beat_hangs_after_a_minute(pulse: Pulse) -> None:
    assert looks(pulse) == (LOOKS, os.getpid())


def test_a_process_that_has_not_begun_has_five_minutes() -> None:
    assert looks(Pulse()) == (FIRST_LOOKS, 0)


def test_each_beat_is_a_sign_of_life(pulse: Pulse) -> None:
    for number in range(3 * LOOKS):
        assert pulse.look(number * LOOK_EVERY) is None
        if number % (LOOKS - 1) == 0:
            pulse.beat()


def test_looks_in_quick_succession_count_once(pulse: Pulse) -> None:
    """The supervisor looks whenever it wakes."""
    assert looks(pulse, every=LOOK_EVERY / 4) == (4 * LOOKS, os.getpid())


def test_a_suspended_machine_is_one_look(pulse: Pulse) -> None:
    assert looks(pulse, every=3600) == (LOOKS, os.getpid())


def test_a_process_that_survives_is_found_again(pulse: Pulse) -> None:
    assert looks(pulse) == (LOOKS, os.getpid())

    assert looks(pulse, since=1000 + LOOKS * LOOK_EVERY + LOOK_EVERY) == (LOOKS - 1, os.getpid())


def test_the_next_process_begins_again(pulse: Pulse) -> None:
    for number in range(LOOKS):
        assert pulse.look(1000 + number * LOOK_EVERY) is None
    pulse.forget()

    assert looks(pulse, since=2000) == (FIRST_LOOKS, 0)


@pytest.mark.parametrize(
    ("found", "killed"), [(77, [77, 10]), (10, [10, 10]), (0, [10, 10]), (88, [10, 10])]
)
def test_a_worker_is_killed_alone_and_its_supervisor_if_that_hangs_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: int, killed: list[int]
) -> None:
    """A supervisor returns what its worker held. 77 is a child of 10, the process of the part; 88
    is the id of another process by now.
    """
    kills: list[int] = []
    pulse = Pulse()
    monkeypatch.setattr(pulse, "look", lambda _: found)
    monkeypatch.setattr(supervisor, "_parent_of", {77: 10, 10: 1}.get)
    monkeypatch.setattr(os, "kill", lambda pid, _: kills.append(pid))
    part = supervisor.Part("worker", lambda: 0, pulse=pulse)
    parts = supervisor.PartsSupervisor([part], logs=tmp_path, report=lambda _: None)
    parts._states[0].pid = 10  # noqa: SLF001

    for _ in range(2):
        parts._kill_hanging()  # noqa: SLF001

    assert kills == killed


@pytest.mark.parametrize("beats", [True, False])
def test_a_worker_beats_if_it_can(monkeypatch: pytest.MonkeyPatch, *, beats: bool) -> None:
    """One that does not beat is killed after five minutes."""
    served: list[str] = []

    class Supervisor:
        def __init__(self, serve: Callable[[WorkerJournal], None], *_: Any, **__: Any) -> None:
            self._serve = serve

        def run(self) -> int:
            self._serve(cast("WorkerJournal", None))
            return 0

    def serve(_: WorkerJournal, beat: Callable[[], None]) -> None:
        served.append("serves")
        beat()

    monkeypatch.setattr(workers, "WorkerSupervisor", Supervisor)
    monkeypatch.setattr(worker, "main", serve)

    assert workers.main(beat=(lambda: served.append("beats")) if beats else None) == 0
    assert served == ["serves", "beats"][: 1 + beats]


def test_a_process_has_the_parent_that_started_it() -> None:
    assert supervisor._parent_of(os.getpid()) == os.getppid()  # noqa: SLF001
    assert supervisor._parent_of(2**22 + 1) is None  # noqa: SLF001 - more than the kernel's limit


def test_a_part_without_a_process_or_a_pulse_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kills: list[int | None] = []
    times = count(1000, LOOK_EVERY)
    monkeypatch.setattr(os, "kill", lambda pid, _: kills.append(pid))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    none = supervisor.Part("worker", lambda: 0, pulse=Pulse())
    api = supervisor.Part("api", lambda: 0)
    parts = supervisor.PartsSupervisor([none, api], logs=tmp_path, report=lambda _: None)
    parts._states[1].pid = 10  # noqa: SLF001

    for _ in range(FIRST_LOOKS + 2):
        parts._kill_hanging()  # noqa: SLF001

    assert kills == []


def test_a_part_is_started_if_it_has_no_process_and_its_pause_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = supervisor.PartsSupervisor(
        [supervisor.Part("api", lambda: 0)], logs=tmp_path, report=lambda _: None
    )
    processes = [11, 10]
    monkeypatch.setattr(os, "fork", processes.pop)
    parts._states[0].restart_at = time.monotonic() + 100  # noqa: SLF001

    parts._start_due()  # noqa: SLF001
    assert processes == [11, 10]
    parts._states[0].restart_at = 0.0  # noqa: SLF001
    for _ in range(2):
        parts._start_due()  # noqa: SLF001
    assert processes == [11]


def test_a_part_that_is_started_again_has_five_minutes_too(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = supervisor.Part("worker", lambda: 0, pulse=pulse)
    parts = supervisor.PartsSupervisor([part], logs=tmp_path, report=lambda _: None)
    monkeypatch.setattr(os, "fork", lambda: 10)

    parts._start_due()  # noqa: SLF001

    assert looks(pulse) == (FIRST_LOOKS, 0)
