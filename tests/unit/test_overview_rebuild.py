"""A rebuild of the overview, while its projector runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.ids import RunKey
from nextfire.domain.instants import from_ms, to_ms
from nextfire.domain.overview import MARGIN, WINDOW_MS, BrokenHead, Head, Segment, Step
from nextfire.domain.ports.overview import RunScan, ScannedRuns
from nextfire.domain.run import RunState
from nextfire.usecases import rebuild_overview
from nextfire.usecases.project_runs import FOLD_EVERY, WHOLE
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.builders import NOON, run_key
from tests.fakes import Clock, MemoryRunScan, MemoryRunStore, MemorySegmentStore
from tests.overview_stream import EVER, SECOND, TENANT, Stream, ended, keys, rebuild, started


@pytest.fixture
def stream() -> Stream:
    return Stream()


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


def test_a_rebuild_in_many_calls_reads_each_open_run_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its step is added, and at the end. Each call used to read all that were open by then,
    and held them three times.
    """
    for key in keys(40):
        stream.write(started(key, NOON))
    asked: list[RunKey] = []
    whole = stream.runs.find

    def find(keys: Sequence[RunKey], **options: Any) -> Any:
        asked.extend(keys)
        return whole(keys, **options)

    monkeypatch.setattr(stream.runs, "find", find)

    assert rebuild(stream, step=timedelta()) == 10
    assert len(asked) <= 2 * 40
    stream.pending.clear()
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
    gone, kept = keys(2)
    stream.write(started(gone, NOON))
    stream.write(started(kept, NOON))
    stream.deliver()
    del stream.runs.items[gone]
    for each in keys(5)[2:]:  # snapshots pass its step
        stream.clock.advance(FOLD_EVERY)
        stream.write(ended(started(each, stream.clock.now()), stream.clock.now()))
        stream.deliver()
    rebuild(stream)

    assert stream.overview.counts(TENANT, NOON)[0].open[RunState.RUNNING] == 1


def test_an_open_run_is_kept_as_long_as_its_record(stream: Stream) -> None:
    gone, kept = keys(2)
    stream.write(started(gone, NOON))
    stream.write(started(kept, NOON))
    stream.deliver()
    del stream.runs.items[gone]
    for days in (50, 50, 500):
        stream.clock.advance(timedelta(days=days))
        run = started(run_key(job_id="other"), stream.clock.now())
        stream.write(ended(run, stream.clock.now()))
        stream.deliver()

    assert stream.overview.counts(TENANT, NOON)[0].open[RunState.RUNNING] == 1
    assert [run.key for run in stream.listed(RunState.RUNNING)] == [kept]


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta()])
def test_a_rebuild_holds_a_bounded_part_of_the_records(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, step: timedelta
) -> None:
    monkeypatch.setattr(rebuild_overview, "FLUSH_AT", 4)
    for key in keys(23):
        stream.write(ended(started(key, NOON), NOON))
    stream.pending.clear()
    rebuild(stream, step=step)

    assert max(len(each.steps) for each in stream.store.segments.values()) < 10
    assert len([*stream.store.steps(TENANT)]) == 23
    stream.assert_complete()


class SlowStore(MemorySegmentStore):
    """Each call takes as long as its requests to DynamoDB, of 25 segments each, one by one.
    *takes*: a request.
    """

    def __init__(self, takes: timedelta) -> None:
        super().__init__()
        self.clock = Clock(NOON)
        self._takes = takes

    def _request(self, number: int = 1) -> None:
        self.clock.advance(number * self._takes)

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        self._request(-(-len(segments) // 25))
        return super().add(tenant, segments)

    def read(self, *given: Any, **named: Any) -> Iterator[Segment]:
        self._request()
        return super().read(*given, **named)

    def head(self, tenant: str) -> Head | BrokenHead | None:
        self._request()
        return super().head(tenant)

    def replace_head(self, *given: Any) -> bool:
        self._request(2)
        return super().replace_head(*given)


def rebuild_slowly(scan: RunScan, takes: timedelta) -> SlowStore:
    """Rebuild as the function does, which has two minutes for a call."""
    store = SlowStore(takes)
    use = RebuildOverview(scan, store, MemoryRunStore(), store.clock)
    after, tenants = None, frozenset[str]()
    while True:
        began = store.clock.now()
        done = use.run(began + timedelta(minutes=1), after=after, tenants=tenants)
        assert store.clock.now() - began < timedelta(minutes=2)
        if done.done:
            return store
        after, tenants = done.after, done.tenants


class Scanned:
    """The records of *tenants*, in pages of 1,000: of each, one in each of *windows*."""

    def __init__(self, *, tenants: int = 1, windows: int = 1, state: RunState) -> None:
        key = run_key()
        steps = [
            Step(to_ms(NOON) - number * WINDOW_MS, key.job.job_id, key.run_id, state)
            for number in range(windows)
        ]
        self._pages = [
            {f"tenant-{tenant}": steps[start : start + 1000]}
            for tenant in range(tenants)
            for start in range(0, windows, 1000)
        ]

    def pages(self, after: str | None) -> Iterator[ScannedRuns]:
        for number in range(int(after or 0), len(self._pages)):
            more = number + 1 < len(self._pages)
            yield ScannedRuns(self._pages[number], 0, str(number + 1) if more else None)


def test_each_call_ends_in_time_if_runs_are_spread_over_months() -> None:
    """A segment for each half minute: the function was ended by its timeout, in each attempt."""
    scan = Scanned(windows=60_000, state=RunState.SUCCEEDED)
    store = rebuild_slowly(scan, timedelta(milliseconds=60))

    assert len(store.segments) == 60_000


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.RUNNING])
def test_each_call_ends_in_time_with_thousands_of_tenants(state: RunState) -> None:
    """A snapshot for each tenant: all of them were made at the end of the last call."""
    scan = Scanned(tenants=1_000, state=state)
    store = rebuild_slowly(scan, timedelta(milliseconds=15))

    heads = [head for name, head in store.heads.items() if name != WHOLE]
    assert [isinstance(head, Head) and head.begins_ms for head in heads] == [0] * 1_000
