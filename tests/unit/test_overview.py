"""The overview: steps in any order, and what reads show of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.overview import MAX_STEPS, WINDOW, Head, newest, segments_of, step_of
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import Run, RunState
from nextfire.usecases import read_overview
from nextfire.usecases.list_runs import READS_AT_MOST
from tests.builders import NOON, at, run_key
from tests.overview_stream import EVER, FAILED, SECOND, TENANT, Stream, ended, keys, started


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


def test_a_large_batch_makes_several_segments(stream: Stream) -> None:
    for key in keys(MAX_STEPS + 1):
        stream.write(ended(started(key, NOON), NOON))

    sizes = [len(each.steps) for each in segments_of(stream.pending, NOON)]
    assert sizes == [MAX_STEPS, 1]


# Reading


def test_a_page_continues_where_the_last_one_ended(stream: Stream) -> None:
    for key in keys(9):
        stream.write(ended(started(key, NOON), NOON + SECOND))  # all at the same instant
    stream.deliver()

    pages = [*stream.pages(limit=4)]
    assert [len(page.items) for page in pages] == [4, 4, 1]
    stream.assert_complete()


def test_a_page_of_large_runs_is_short(stream: Stream) -> None:
    for key in keys(7):
        run = replace(started(key, NOON), payload='"' + "x" * 100_000 + '"')
        stream.write(ended(run, NOON + SECOND))  # all at the same instant
    stream.deliver()

    pages = [*stream.pages(limit=5)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
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


def test_a_call_reads_few_records_that_are_gone_or_have_changed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example of runs that were all redriven, or whose records have expired."""
    for key in keys(3 * MAX_STEPS):
        stream.write(ended(started(key, NOON), NOON + SECOND))
    first = stream.write(ended(started(run_key(job_id="first"), NOON), NOON))
    last = stream.write(ended(started(run_key(job_id="last"), NOON), NOON + SECOND * 2))
    stream.deliver()
    stream.runs.items = {run.key: run for run in (first, last)}
    asked: list[int] = []
    find = stream.runs.find

    def counted(keys: Sequence[RunKey]) -> Page[Run]:
        asked.append(len(keys))
        found: Page[Run] = find(keys)
        return found

    monkeypatch.setattr(stream.runs, "find", counted)

    for limit in (1, 2, 50):
        found: list[Run] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            asked.clear()
            page = stream.overview.list(TENANT, EVER, cursor=cursor, limit=limit)
            assert len(asked) <= READS_AT_MOST
            assert max(asked, default=0) <= 100
            assert len(page.items) <= limit
            found += page.items
            cursor, pages = page.cursor, pages + 1
        assert found == [last, first]
        assert pages <= 5


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


@pytest.mark.parametrize(
    ("many", "early"),
    [(RunState.SUCCEEDED, RunState.DEAD), (RunState.DEAD, RunState.SUCCEEDED)],
)
def test_of_very_many_ends_the_latest_minutes_are_counted(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, many: RunState, early: RunState
) -> None:
    monkeypatch.setattr(read_overview, "READ_AT_MOST", 3)
    for number, key in enumerate(keys(12)):
        state = many if number else early
        stream.write(ended(started(key, NOON), NOON + SECOND * 30 * number, state))
        stream.deliver()

    counts, _ = stream.overview.counts(TENANT, NOON)
    assert counts.first == at("12:05")
    assert counts.minutes == {at("12:05"): {many: 2}}


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
