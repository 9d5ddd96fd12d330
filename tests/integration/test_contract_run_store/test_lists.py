"""The contract of `RunStore`: lists of a job's runs."""

from __future__ import annotations

from datetime import datetime

import pytest

from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ids import first_run_id
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, at, job_key, run_key
from tests.integration.test_contract_run_store.conftest import Held, claim


def test_a_job_s_runs_are_listed_latest_first_page_by_page(store: RunStore) -> None:
    times = [at(f"{hour}:00") for hour in (13, 14, 11, 10, 12)]
    for time in times:
        claim(store, a_message(run_key(time)))
    claim(store, a_message(run_key(at("10:30"), job_id="report2")))
    claim(store, a_message(run_key(at("10:30"), tenant="other")))

    seen: list[datetime] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list(job_key(), cursor=cursor, limit=2)
        assert len(page.items) <= 2
        seen += [run.key.scheduled_at for run in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == sorted(times, reverse=True)
    assert store.list(job_key("nothing"), cursor=None, limit=2).items == []


def test_a_run_that_does_not_decode_is_listed_as_unreadable(held: Held) -> None:
    times = [at("12:00"), at("13:00"), at("14:00")]
    for time in times:
        claim(held.store, a_message(run_key(time)))
    held.spoil(run_key(times[1]))

    first = held.store.list(job_key(), cursor=None, limit=2)
    rest = held.store.list(job_key(), cursor=first.cursor, limit=2)

    listed = [run.key.scheduled_at for page in (first, rest) for run in page.items]
    assert listed == [times[2], times[0]]
    assert [each.identity for each in first.unreadable] == [run_key(times[1]).run_id]
    assert not rest.unreadable


@pytest.mark.parametrize("how", [{}, {"consistent": True}], ids=["", "consistent"])
def test_some_runs_are_found_by_their_keys(held: Held, how: dict[str, bool]) -> None:
    other = run_key(job_id="other")
    for key in (run_key(), other):
        held.store.cancel(a_message(key), reason="enough", now=NOON)
    found = held.store.find([run_key(job_id="missing"), run_key(), other], **how)
    assert {run.key for run in found.items} == {run_key(), other}
    assert not held.store.find([], **how).items

    held.spoil(other)
    found = held.store.find([run_key(), other], **how)
    assert [run.key for run in found.items] == [run_key()]
    assert [each.identity for each in found.unreadable] == [other.execution_id]


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_runs_of_a_half_open_span_are_listed(store: RunStore, limit: int) -> None:
    times = ["10:00", "10:59:59.999", "11:00", "12:00", "12:59:59.999", "13:00", "14:00"]
    for time in times:
        claim(store, a_message(run_key(at(time))))
    first, before = at("11:00"), at("13:00")

    seen: list[datetime] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list(job_key(), cursor=cursor, limit=limit, first=first, before=before)
        seen += [run.key.scheduled_at for run in page.items]
        cursor, pages = page.cursor, pages + 1

    assert seen == [at("12:59:59.999"), at("12:00"), at("11:00")]


def test_a_cursor_from_before_the_span_moved_leads_into_it(store: RunStore) -> None:
    for time in ("11:00", "12:00", "13:00"):
        claim(store, a_message(run_key(at(time))))
    cursor = store.list(job_key(), cursor=None, limit=2).cursor  # after the run of 12:00

    def listed(first: str, before: str) -> list[datetime]:
        page = store.list(job_key(), cursor=cursor, limit=9, first=at(first), before=at(before))
        assert page.cursor is None
        return [run.key.scheduled_at for run in page.items]

    assert listed("12:30", "14:00") == []
    assert listed("10:00", "12:00") == [at("11:00")]
    assert listed("10:00", "14:00") == [at("11:00")]
    assert listed("12:00", "14:00") == []


@pytest.mark.parametrize("cursor", ["", "garbage", "====", "é", "YWJj", "cmVwb3J0", "a" * 5000])
def test_an_invalid_cursor_is_rejected(store: RunStore, cursor: str) -> None:
    claim(store)

    with pytest.raises(InvalidInputError) as refused:
        store.list(job_key(), cursor=cursor, limit=2)

    assert refused.value.field == "cursor"


def test_an_item_that_reads_as_no_run_says_so(held: Held) -> None:
    held.spoil(run_key())

    with pytest.raises(UndecodableError):
        held.store.get(run_key())
    with pytest.raises(UndecodableError):
        claim(held.store)
    assert claim(held.store, a_message(run_key(at("13:00")))).taken


# Reading ranges


def test_a_job_s_runs_between_two_ids_come_in_both_orders(store: RunStore) -> None:
    times = [at(f"12:{n:02d}") for n in range(12)]
    for time in times:
        claim(store, a_message(run_key(time)))
    claim(store, a_message(run_key(at("12:05"), job_id="report2")))
    claim(store, a_message(run_key(at("12:05"), tenant="other")))
    first, last = first_run_id(at("12:03")), first_run_id(at("12:09"))

    def found(*, newest_first: bool, page: int) -> list[datetime]:
        runs = store.between(job_key(), first, last, newest_first=newest_first, page=page)
        return [run.key.scheduled_at for run in runs]

    # An id of 12:09 sorts after the instant itself.
    for page in (1, 2, 100):
        assert found(newest_first=False, page=page) == times[3:9]
        assert found(newest_first=True, page=page) == times[8:2:-1]


def test_both_ends_are_included(store: RunStore) -> None:
    for time in ("12:00", "13:00", "14:00"):
        claim(store, a_message(run_key(at(time))))
    first, last = run_key(at("12:00")).run_id, run_key(at("13:00")).run_id

    assert [r.key.run_id for r in store.between(job_key(), first, last)] == [first, last]
    assert list(store.between(job_key("nothing"), "0", "9")) == []


def test_of_a_record_that_reads_as_no_run_its_key_may_be_asked_for(held: Held) -> None:
    held.store.skip(Run.skipped(run_key(), "late", NOON))
    held.spoil(run_key())

    (found,) = held.store.between(job_key(), "0", "9", lenient=True)

    assert (found.key, found.state) == (run_key(), RunState.DEAD)


def test_a_record_between_that_reads_as_no_run_says_so(held: Held) -> None:
    claim(held.store, a_message(run_key(at("11:00"))))
    claim(held.store)
    held.spoil(run_key())

    runs = held.store.between(job_key(), "0", "9", page=1)

    assert next(runs).key == run_key(at("11:00"))
    with pytest.raises(UndecodableError):
        next(runs)
