"""The projector of the overview under deaths, rivals and stores that refuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import DeliveredStep, Head, Segment
from nextfire.domain.run import RunState
from nextfire.usecases import project_runs
from nextfire.usecases.project_runs import FOLD_EVERY, ProjectRuns
from tests.builders import NOON, run_key
from tests.fakes import MemorySegmentStore
from tests.overview_stream import SECOND, TENANT, Stream, ended, keys, started


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_runs_are_listed_across_jobs_latest_step_first(stream: Stream) -> None:
    for number, key in enumerate(keys(10)):
        stream.clock.advance(SECOND * 20)
        run = stream.write(started(key, stream.clock.now()))
        if number % 3:
            stream.write(ended(run, stream.clock.now() + SECOND))
        stream.deliver()

    stream.assert_complete()
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [
        key for number, key in reversed([*enumerate(keys(10))]) if not number % 3
    ]


@pytest.mark.parametrize("seed", range(20))
def test_batches_in_any_order_and_any_number_of_times_give_the_same(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 — not a secret
    stream = Stream()
    for key in keys(30):
        stream.clock.advance(SECOND * chance.choice([0, 1, 40]))
        run = stream.write(started(key, stream.clock.now()))
        if chance.random() < 0.7:
            state = chance.choice([RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED])
            stream.clock.advance(SECOND * chance.choice([0, 1, 100]))
            stream.write(ended(run, stream.clock.now(), state))
    batches = []
    while stream.pending:
        size = chance.randint(1, 8)
        batches.append(stream.pending[:size])
        stream.pending = stream.pending[size:]
    batches += chance.choices(batches, k=5)
    chance.shuffle(batches)
    for batch in batches:
        stream.clock.advance(SECOND * chance.choice([0, 1, 45, 700]))
        stream.deliver(batch)

    stream.assert_complete()


def test_an_open_run_is_found_long_after_it_started(stream: Stream) -> None:
    [long, *others] = keys(40)
    stream.write(started(long, NOON))
    for key in others:
        stream.clock.advance(FOLD_EVERY)
        stream.write(ended(started(key, stream.clock.now()), stream.clock.now()))
        stream.deliver()

    head = stream.store.heads[TENANT]
    assert isinstance(head, Head)
    assert head.since_ms >= to_ms(stream.clock.now() - 2 * FOLD_EVERY)
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [long]
    assert len(stream.store.snapshots) == 1


def test_much_that_follows_a_snapshot_makes_another_one(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_runs, "FOLD_BYTES", 100)
    stream.write(started(keys(1)[0], NOON))
    stream.deliver()
    first = stream.store.heads[TENANT]
    monkeypatch.setattr(project_runs, "_PART_BYTES", 0)
    for key in keys(6):
        stream.write(started(key, NOON))
    stream.deliver()

    assert stream.store.heads[TENANT] != first


def test_a_late_batch_is_not_lost_behind_the_snapshot(stream: Stream) -> None:
    """The stream of one shard lags: its records come after a snapshot that was made later."""
    slow, fast = keys(2)
    stream.write(started(slow, NOON))
    late, stream.pending = stream.pending, []
    for _ in range(4):
        stream.clock.advance(FOLD_EVERY)
        stream.write(started(fast, stream.clock.now()))
        stream.deliver()
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [fast]
    stream.deliver(late)

    assert {run.key for run in stream.listed(RunState.RUNNING)} == {slow, fast}


def test_a_projector_that_is_evenly_behind_makes_no_more_snapshots(stream: Stream) -> None:
    behind: list[list[DeliveredStep]] = []
    for key in keys(200):
        stream.clock.advance(SECOND * 5)
        stream.write(started(key, stream.clock.now()))
        behind.append(stream.pending)
        stream.pending = []
    heads = {}
    began = stream.clock.now()
    for batch in behind:
        stream.clock.advance(SECOND)
        stream.deliver(batch)
        heads[stream.store.heads[TENANT]] = True

    assert stream.clock.now() - began < FOLD_EVERY
    assert len(heads) == 1
    assert len(stream.listed(RunState.RUNNING, limit=50)) == 200


def test_a_late_record_that_is_read_before_its_last_change_is_closed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of late steps are read eventually consistently."""
    slow, fast = keys(2)
    run = stream.write(started(slow, NOON))
    stream.deliver()
    stream.write(ended(run, NOON + SECOND))
    late, stream.pending = stream.pending, []
    for _ in range(4):
        stream.clock.advance(FOLD_EVERY)
        stream.write(ended(started(fast, stream.clock.now()), stream.clock.now()))
        stream.deliver()
    with monkeypatch.context() as patch:
        patch.setitem(stream.runs.items, slow, run)
        stream.deliver(late)

    counts, _ = stream.overview.counts(TENANT, stream.clock.now())
    assert counts.open[RunState.RUNNING] == 0


def test_the_late_end_of_a_run_closes_it(stream: Stream) -> None:
    slow, fast = keys(2)
    run = stream.write(started(slow, NOON))
    stream.deliver()
    stream.write(ended(run, NOON + SECOND))
    late, stream.pending = stream.pending, []
    for _ in range(4):
        stream.clock.advance(FOLD_EVERY)
        stream.write(started(fast, stream.clock.now()))
        stream.deliver()
    stream.deliver(late)

    counts, _ = stream.overview.counts(TENANT, stream.clock.now())
    assert counts.open[RunState.RUNNING] == 1


class _Killed(BaseException):
    pass


class Dying(MemorySegmentStore):
    """Dies before or after its call number *dies*."""

    def __init__(self, dies: int, *, after: bool) -> None:
        super().__init__()
        self.left = dies
        self.after = after

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {"add", "head", "snapshot", "replace_head", "read"}:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if not self.left and not self.after:
                raise _Killed
            answer = found(*given, **named)
            if not self.left and self.after:
                raise _Killed
            return answer

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies", range(1, 30))
def test_a_projector_that_dies_anywhere_loses_nothing(dies: int, *, after: bool) -> None:
    store = Dying(dies, after=after)
    stream = Stream(store)
    for number, key in enumerate(keys(4)):
        stream.clock.advance(FOLD_EVERY)
        run = stream.write(started(key, stream.clock.now()))
        if number % 2:
            stream.write(ended(run, stream.clock.now()))
        batch, stream.pending = stream.pending, []
        try:
            stream.deliver(batch)
        except _Killed:
            stream.projector = ProjectRuns(store, stream.runs, stream.clock)
            stream.deliver(batch)
    store.left = 0

    stream.assert_complete()
    counts, _ = stream.overview.counts(TENANT, stream.clock.now())
    assert counts.open[RunState.RUNNING] == 2


def write_before_next_head(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]
) -> list[bool]:
    """Call *write* just before the next snapshot is stored; the result is empty until then."""
    replace_head = stream.store.replace_head
    written: list[bool] = []

    def meddle(*given: Any) -> bool:
        if not written:
            written.append(True)
            write()
        return replace_head(*given)

    monkeypatch.setattr(stream.store, "replace_head", meddle)
    return written


def test_a_snapshot_of_another_projector_is_not_overwritten(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one makes a snapshot, another one writes a late step and folds it."""
    first, second = keys(2)
    stream.write(started(first, NOON))
    late, stream.pending = stream.pending, []
    other = ProjectRuns(stream.store, stream.runs, stream.clock)
    written = write_before_next_head(stream, monkeypatch, lambda: other.apply(late))
    stream.clock.advance(FOLD_EVERY)
    stream.write(started(second, stream.clock.now()))
    stream.deliver()

    assert written
    assert {run.key for run in stream.listed(RunState.RUNNING)} == {first, second}


@pytest.mark.parametrize("held_back", [1, 2])
def test_a_batch_that_is_written_while_a_snapshot_is_made_is_not_lost(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, held_back: int
) -> None:
    """The snapshot was read before the batch was written. Held back since before, or after, the
    start of the segments that follow the snapshot.
    """
    slow, *others = keys(5)
    late: list[DeliveredStep] = []
    for number, key in enumerate(others[:3]):
        stream.write(ended(started(key, stream.clock.now()), stream.clock.now()))
        stream.deliver()
        if number == held_back:
            stream.write(started(slow, stream.clock.now()))
            late, stream.pending = stream.pending, []
        stream.clock.advance(FOLD_EVERY)
    other = ProjectRuns(stream.store, stream.runs, stream.clock)
    monkeypatch.setattr(other, "_is_due", lambda *_: False)
    written = write_before_next_head(stream, monkeypatch, lambda: other.apply(late))
    stream.write(ended(started(others[3], stream.clock.now()), stream.clock.now()))
    stream.deliver()

    assert written
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [slow]


@pytest.mark.parametrize("due_by", ["time", "bytes"])
def test_of_projectors_whose_snapshot_is_due_at_the_same_time_one_makes_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, due_by: str
) -> None:
    """Each shard of the stream has one. A snapshot can have thousands of write units."""
    first, second, third = keys(3)
    stream.write(started(first, NOON))
    stream.deliver()
    if due_by == "time":
        stream.clock.advance(FOLD_EVERY)
    else:
        monkeypatch.setattr(project_runs, "FOLD_BYTES", 1)
        monkeypatch.setattr(project_runs, "_PART_BYTES", 1)
    stream.write(started(second, stream.clock.now()))
    others, stream.pending = stream.pending, []
    other = ProjectRuns(stream.store, stream.runs, stream.clock)
    stream.write(started(third, stream.clock.now()))
    written = write_before_next_head(stream, monkeypatch, lambda: other.apply(others))
    replace_head, made = stream.store.replace_head, list[object]()

    def counted(*given: Any) -> bool:
        made.append(given)
        return replace_head(*given)

    monkeypatch.setattr(stream.store, "replace_head", counted)

    assert stream.deliver() == []
    assert written
    assert len(made) == 2, "the second one is that of the other projector"
    assert {run.key for run in stream.listed(RunState.RUNNING)} == {first, second, third}


def test_a_projector_that_always_loses_asks_for_its_records_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.store, "replace_head", lambda *_: False)
    stream.write(started(run_key(), NOON))
    stream.write(started(run_key(tenant="other"), NOON))

    assert stream.deliver() == ["e000000001", "e000000002"]


def test_a_tenant_whose_steps_cannot_be_stored_does_not_affect_the_others(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = stream.store.add

    def refuse(tenant: str, segments: Sequence[Segment]) -> int:
        if tenant == "other":
            raise UnavailableError("throttled")
        return add(tenant, segments)

    monkeypatch.setattr(stream.store, "add", refuse)
    stream.write(started(run_key(tenant="other"), NOON))
    stream.write(started(run_key(), NOON))

    assert stream.deliver() == ["e000000001"]
    assert [run.key for run in stream.listed()] == [run_key()]
