"""The overview: steps in any order, the projector under deaths and rivals, reads, and rebuilds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import from_ms, to_ms
from nextfire.domain.overview import (
    MARGIN,
    MAX_STEPS,
    WINDOW,
    BrokenHead,
    Head,
    Seen,
    Segment,
    newest,
    segments_of,
    step_of,
)
from nextfire.domain.ports.overview import OverviewPage, ScannedRuns, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.usecases import project_runs, read_overview, rebuild_overview
from nextfire.usecases.project_runs import FOLD_EVERY, ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.builders import LEASE, NOON, at, run_key
from tests.fakes import Clock, MemoryRunScan, MemoryRunStore, MemorySegmentStore

TENANT = "acme"
SECOND = timedelta(seconds=1)
DONE = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0)
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1)
EVER = StepFilter(NOON - timedelta(days=400), NOON + timedelta(days=400))


def started(run: RunKey, now: datetime, *, was: Run | None = None) -> Run:
    before = was or Run(run, RunState.PENDING)
    claimed = before.taken_over(
        dispatch=before.dispatch, token="t", worker="w", now=now, lease_until=now + LEASE
    )
    return replace(claimed, state=RunState.RUNNING, pool="default")


def ended(run: Run, now: datetime, state: RunState = RunState.SUCCEEDED) -> Run:
    return run.ended(state, DONE if state is RunState.SUCCEEDED else FAILED, now)


def keys(number: int, scheduled_at: datetime = NOON) -> list[RunKey]:
    return [run_key(scheduled_at, job_id=f"job-{each:04d}") for each in range(number)]


class Stream:
    """Records as the store has them, and the stream of their changes that the projector gets."""

    def __init__(self, store: MemorySegmentStore | None = None, runs: Any = None) -> None:
        self.clock = Clock(NOON)
        self.store = store or MemorySegmentStore()
        self.runs = runs or MemoryRunStore()
        self.projector = ProjectRuns(self.store, self.runs, self.clock)
        self.overview = SegmentedOverview(self.store, self.runs)
        self.pending: list[Seen] = []
        self._ids = count(1)

    def write(self, run: Run) -> Run:
        """Store *run*; the stream receives it now."""
        self.runs.items[run.key] = run
        seen = Seen(
            run.key.job.tenant, step_of(run), f"e{next(self._ids):09d}", to_ms(self.clock.now())
        )
        self.pending.append(seen)
        return run

    def deliver(self, batch: Iterable[Seen] | None = None) -> list[str]:
        """Deliver what the stream received since the last call, or *batch*."""
        if batch is None:
            batch, self.pending = self.pending, []
        return self.projector.apply(batch)

    def pages(self, wanted: StepFilter = EVER, limit: int = 3) -> Iterator[OverviewPage]:
        cursor = None
        while True:
            page = self.overview.list(TENANT, wanted, cursor=cursor, limit=limit)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def listed(self, *states: RunState, limit: int = 3, **wanted: Any) -> list[Run]:
        asked = replace(EVER, **wanted)
        if states:
            asked = replace(asked, states=states)
        return [run for page in self.pages(asked, limit) for run in page.items]

    def assert_complete(self) -> None:
        """The overview lists each record once, latest step first."""
        listed = self.listed(limit=7)
        assert sorted(listed, key=_position, reverse=True) == listed
        assert len({run.key for run in listed}) == len(listed)
        assert {run.key: run for run in listed} == self.runs.items
        for state in RunState:
            of_state = self.listed(state, limit=7)
            assert of_state == [run for run in listed if run.state is state]


def _position(run: Run) -> tuple[int, str, str]:
    step = step_of(run)
    return step.at_ms, step.job_id, step.run_id


@pytest.fixture
def stream() -> Stream:
    return Stream()


# Steps


def test_each_step_of_a_run_comes_after_the_one_before() -> None:
    key = run_key()
    first = started(key, at("12:00:01"))
    back = first.handed_back(Result(AttemptOutcome.HANDED_BACK, "shut down"), at("12:00:02"))
    second = replace(started(key, at("12:00:03"), was=back), fence=2)
    lost = second.taken_over(
        dispatch=1, token="u", worker="v", now=at("12:02"), lease_until=at("12:03")
    )
    retry = lost.retrying(FAILED, at("12:02:10"), not_before=at("12:03"))
    third = started(key, at("12:03"), was=retry)
    dead = ended(third, at("12:03:01"), RunState.DEAD)
    follows = dead.awaiting_parents("its parent runs again")
    redriven = dead.redriven("fixed", at("12:04"))
    again = started(key, at("12:04:01"), was=redriven)
    done = ended(again, at("12:04:02"))

    life = [first, back, second, lost, retry, third, dead, redriven, again, done]
    for steps in (life, [Run(key, RunState.PENDING), first], [dead, follows, redriven]):
        orders = [step_of(run).order for run in steps]
        assert orders == sorted(orders)
        assert len({*orders}) == len(orders)
    assert newest(map(step_of, reversed(life))) == {step_of(done).run: step_of(done)}


def test_a_run_that_starts_and_ends_in_one_batch_is_one_step(stream: Stream) -> None:
    run = stream.write(started(run_key(), at("12:00:01")))
    stream.write(ended(run, at("12:00:02")))
    [segment] = segments_of(stream.pending, NOON)

    assert (segment.log, len(segment.steps)) == ("SUCCEEDED", 1)


def test_a_record_that_was_deleted_and_written_again_is_listed(stream: Stream) -> None:
    stream.write(ended(started(run_key(), NOON), NOON + SECOND))
    skipped = replace(Run(run_key(), RunState.SKIPPED), finished_at=NOON + SECOND * 10)
    stream.write(skipped)
    stream.deliver()

    stream.assert_complete()


def test_a_head_that_does_not_decode_affects_its_tenant_only(stream: Stream) -> None:
    other = run_key(tenant="other")
    for key in (run_key(), other):
        stream.write(started(key, NOON))
    stream.deliver()
    stream.store.heads[TENANT] = BrokenHead("?", "head does not decode")
    assert not stream.overview.covers(TENANT)
    assert stream.listed() == []
    assert stream.overview.covers("other")
    new = run_key(job_id="new")
    for key in (new, other):
        stream.clock.advance(MARGIN)
        stream.write(started(key, stream.clock.now()))

    assert stream.deliver() == []
    assert stream.projector.lost == {TENANT: "head does not decode"}
    assert [run.key for run in stream.listed()] == [new]
    [page] = stream.pages()
    assert page.freshness.begins_at == NOON + MARGIN
    rebuild(stream)
    [page] = stream.pages()
    assert page.freshness.begins_at is None
    assert len(stream.listed()) == 2


@pytest.mark.parametrize("delivers", [False, True])
def test_a_rebuild_repairs_a_head_that_does_not_decode(stream: Stream, *, delivers: bool) -> None:
    """A projector may replace the head before the rebuild does."""
    history(stream)
    stream.store.heads[TENANT] = BrokenHead("?", "head does not decode")
    stream.clock.advance(timedelta(hours=1))
    if delivers:
        stream.write(started(run_key(job_id="new"), stream.clock.now()))
        stream.deliver()
    rebuild(stream)

    stream.assert_complete()


@pytest.mark.parametrize("delivers", [False, True])
def test_a_snapshot_that_is_lost_is_replaced(stream: Stream, *, delivers: bool) -> None:
    """For example, it expired before the head did."""
    history(stream)
    stream.store.snapshots.clear()
    [page] = stream.pages(limit=100)
    head = stream.store.heads[TENANT]
    assert isinstance(head, Head)
    assert page.freshness.begins_at == from_ms(head.since_ms)
    if delivers:
        stream.clock.advance(FOLD_EVERY)
        stream.write(started(run_key(job_id="new"), stream.clock.now()))
        assert stream.deliver() == []
        assert stream.projector.lost == {TENANT: "the snapshot is gone or does not decode"}
    rebuild(stream)

    [page] = stream.pages(limit=100)
    assert page.freshness.begins_at is None
    stream.assert_complete()


def test_a_large_batch_makes_several_segments(stream: Stream) -> None:
    for key in keys(MAX_STEPS + 1):
        stream.write(ended(started(key, NOON), NOON))

    sizes = [len(each.steps) for each in segments_of(stream.pending, NOON)]
    assert sizes == [MAX_STEPS, 1]


# The projector


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
    behind: list[list[Seen]] = []
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
    late: list[Seen] = []
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


# Reading


def test_a_page_continues_where_the_last_one_ended(stream: Stream) -> None:
    for key in keys(9):
        stream.write(ended(started(key, NOON), NOON + SECOND))  # all at the same instant
    stream.deliver()

    pages = [*stream.pages(limit=4)]
    assert [len(page.items) for page in pages] == [4, 4, 1]
    stream.assert_complete()


def test_a_run_that_has_changed_since_is_listed_once(stream: Stream) -> None:
    dead = stream.write(ended(started(run_key(), NOON), NOON + SECOND, RunState.DEAD))
    stream.deliver()
    stream.clock.advance(timedelta(hours=1))
    redriven = stream.write(dead.redriven("fixed", stream.clock.now()))
    stream.deliver()
    run = started(run_key(), stream.clock.now(), was=redriven)
    stream.write(ended(run, stream.clock.now(), RunState.DEAD))
    stream.deliver()

    stream.assert_complete()


def test_a_run_without_a_record_is_not_listed(stream: Stream) -> None:
    stream.write(started(run_key(), NOON))
    stream.deliver()
    stream.runs.items.clear()

    assert stream.listed() == []


def test_a_record_that_does_not_decode_is_named(stream: Stream) -> None:
    stream.write(started(run_key(), NOON))
    stream.deliver()
    stream.runs.spoil(run_key())

    [page] = stream.pages()
    assert [each.identity for each in page.unreadable] == [run_key().execution_id]


def test_an_ended_run_of_which_only_the_start_is_known_is_listed_as_it_is(stream: Stream) -> None:
    run = stream.write(started(run_key(), NOON))
    stream.deliver()
    stream.write(ended(run, NOON + SECOND))

    assert [run.state for run in stream.listed()] == [RunState.SUCCEEDED]
    assert stream.listed(RunState.RUNNING) == []


def test_a_listing_is_restricted_to_a_span_and_a_pool(stream: Stream) -> None:
    for second, key in enumerate(keys(10)):
        run = ended(started(key, NOON), NOON + SECOND * second * 10)
        stream.write(replace(run, pool="batch" if second % 2 else "default"))
    stream.deliver()

    found = stream.listed(first=NOON + SECOND * 20, before=NOON + SECOND * 60, pool="batch")
    assert [run.finished_at for run in found] == [at("12:00:50"), at("12:00:30")]


def test_a_call_that_has_read_much_returns_what_it_found(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_overview, "READ_AT_MOST", 2)
    for number, key in enumerate(keys(12)):
        run = ended(started(key, NOON), NOON + WINDOW * number)
        stream.write(replace(run, pool="default" if number else "rare"))
        stream.deliver()

    pages = [*stream.pages(replace(EVER, pool="rare"))]
    assert len(pages) > 2
    assert [run.pool for page in pages for run in page.items] == ["rare"]
    stream.assert_complete()


def test_an_invalid_cursor_is_refused(stream: Stream) -> None:
    for cursor in ("", "x", "1.a", f"1.a.{run_key().run_id}!"):
        with pytest.raises(InvalidInputError):
            stream.overview.list(TENANT, EVER, cursor=cursor, limit=1)


def test_ends_are_counted_by_minute_once(stream: Stream) -> None:
    for number, key in enumerate(keys(6)):
        state = RunState.DEAD if number == 5 else RunState.SUCCEEDED
        stream.write(ended(started(key, NOON), NOON + SECOND * 30 * number, state))
    stream.write(started(run_key(job_id="running"), NOON))
    batch = stream.pending
    stream.deliver()
    stream.deliver(batch[2:])  # delivered twice, with another first record

    counts, freshness = stream.overview.counts(TENANT, at("12:01:10"))
    assert counts.minutes == {
        at("12:01"): {RunState.SUCCEEDED: 2},
        at("12:02"): {RunState.SUCCEEDED: 1, RunState.DEAD: 1},
    }
    assert counts.open == {RunState.PENDING: 0, RunState.RUNNING: 1}
    assert (freshness.as_of, freshness.begins_at) == (NOON, NOON)


def test_of_very_many_ends_the_latest_minutes_are_counted(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_overview, "READ_AT_MOST", 3)
    for number, key in enumerate(keys(12)):
        stream.write(ended(started(key, NOON), NOON + SECOND * 30 * number))
        stream.deliver()

    counts, _ = stream.overview.counts(TENANT, NOON)
    assert counts.first == at("12:05")
    assert counts.minutes == {at("12:05"): {RunState.SUCCEEDED: 2}}


def test_an_answer_says_how_far_it_lags(stream: Stream) -> None:
    stream.write(started(run_key(), NOON))
    stream.clock.advance(SECOND * 7)
    stream.deliver()

    [page] = stream.pages()
    assert (page.freshness.as_of, page.freshness.lag) == (NOON, SECOND * 7)


def test_a_reader_whose_snapshot_is_replaced_reads_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.write(started(run_key(), NOON))
    stream.deliver()
    head = stream.store.head
    stale = [Head("gone", 1, 0, 0, 0, 0, 0)]
    monkeypatch.setattr(stream.store, "head", lambda tenant: stale.pop() if stale else head(tenant))
    assert len(stream.listed()) == 1

    numbers = count()
    heads = (Head(f"gone-{number}", 1, 0, 0, 0, 0, 0) for number in numbers)
    monkeypatch.setattr(stream.store, "head", lambda _: next(heads))
    with pytest.raises(UnavailableError):
        stream.listed()


# Rebuilding


def rebuild(stream: Stream, *, step: timedelta = timedelta(hours=1)) -> int:
    """Rebuild; each call ends *step* after it began. Returns the number of calls."""
    use = RebuildOverview(MemoryRunScan(stream.runs), stream.store, stream.runs, stream.clock)
    done, calls = use.run(stream.clock.now() + step), 1
    while done.after is not None:
        done = use.run(stream.clock.now() + step, after=done.after, tenants=done.tenants)
        calls += 1
    return calls


def history(stream: Stream, seed: int = 1) -> None:
    chance = random.Random(seed)  # noqa: S311 — not a secret
    for key in keys(40):
        stream.clock.advance(SECOND * chance.randint(0, 300))
        run = stream.write(started(key, stream.clock.now()))
        if chance.random() < 0.8:
            stream.clock.advance(SECOND)
            stream.write(ended(run, stream.clock.now()))
        stream.deliver()


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta()])
def test_rebuilt_from_the_records_it_equals_what_it_was(stream: Stream, step: timedelta) -> None:
    history(stream)
    before = [stream.overview.list(TENANT, EVER, cursor=None, limit=100).items]
    before_counts, _ = stream.overview.counts(TENANT, NOON)
    ends = {each for each in stream.store.steps(TENANT) if each.state.ended}
    for each in (stream.store.segments, stream.store.heads, stream.store.snapshots):
        each.clear()
    calls = rebuild(stream, step=step)

    assert (calls > 1) == (not step)
    assert [stream.overview.list(TENANT, EVER, cursor=None, limit=100).items] == before
    counts, freshness = stream.overview.counts(TENANT, NOON)
    assert counts == before_counts
    assert {each for each in stream.store.steps(TENANT) if each.state.ended} == ends
    assert freshness.begins_at is None
    stream.assert_complete()


def test_a_rebuild_of_a_complete_overview_changes_nothing(stream: Stream) -> None:
    history(stream)
    rebuild(stream)
    rebuild(stream)

    stream.assert_complete()


def test_a_rebuild_adds_what_was_never_delivered(stream: Stream) -> None:
    for key in keys(20):
        stream.clock.advance(SECOND * 50)
        stream.write(ended(started(key, stream.clock.now()), stream.clock.now()))
    running = stream.write(started(run_key(job_id="long"), NOON - timedelta(days=3)))
    stream.pending.clear()
    stream.write(ended(started(run_key(job_id="new"), stream.clock.now()), stream.clock.now()))
    stream.deliver()
    assert next(iter(stream.pages())).freshness.begins_at == stream.clock.now()
    assert len(stream.listed()) == 1
    rebuild(stream)

    assert stream.listed(RunState.RUNNING) == [running]
    stream.assert_complete()


def test_a_run_that_ends_during_a_rebuild_is_not_open_after_it(stream: Stream) -> None:
    """Its start was scanned; then its end was delivered, and a snapshot passed it."""
    run = stream.write(started(run_key(), NOON))
    stream.deliver()
    scan = MemoryRunScan(stream.runs)

    class Slow:
        def pages(self, after: str | None) -> Iterator[ScannedRuns]:
            for page in scan.pages(after):
                stream.write(ended(run, stream.clock.now()))
                stream.deliver()
                stream.clock.advance(FOLD_EVERY + MARGIN)
                other = run_key(job_id="other")
                stream.write(ended(started(other, stream.clock.now()), stream.clock.now()))
                stream.deliver()
                yield page

    RebuildOverview(Slow(), stream.store, stream.runs, stream.clock).run(
        stream.clock.now() + timedelta(hours=1)
    )
    counts, _ = stream.overview.counts(TENANT, NOON)
    assert counts.open[RunState.RUNNING] == 0


def test_a_rebuild_forgets_open_runs_without_a_record(stream: Stream) -> None:
    gone, there = keys(2)
    stream.write(started(gone, NOON))
    stream.write(started(there, NOON))
    stream.deliver()
    del stream.runs.items[gone]
    for each in keys(5)[2:]:  # snapshots pass its step
        stream.clock.advance(FOLD_EVERY)
        stream.write(ended(started(each, stream.clock.now()), stream.clock.now()))
        stream.deliver()
    rebuild(stream)

    assert stream.overview.counts(TENANT, NOON)[0].open[RunState.RUNNING] == 1


def test_an_open_run_is_kept_as_long_as_its_record(stream: Stream) -> None:
    gone, there = keys(2)
    stream.write(started(gone, NOON))
    stream.write(started(there, NOON))
    stream.deliver()
    del stream.runs.items[gone]
    for days in (50, 50, 500):
        stream.clock.advance(timedelta(days=days))
        run = started(run_key(job_id="other"), stream.clock.now())
        stream.write(ended(run, stream.clock.now()))
        stream.deliver()

    assert stream.overview.counts(TENANT, NOON)[0].open[RunState.RUNNING] == 1
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [there]


def test_a_rebuild_holds_a_bounded_part_of_the_records(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_overview, "FLUSH_AT", 5)
    for key in keys(23):
        stream.write(ended(started(key, NOON), NOON))
    stream.pending.clear()
    rebuild(stream)

    assert max(len(each.steps) for each in stream.store.segments.values()) < 10
    stream.assert_complete()
