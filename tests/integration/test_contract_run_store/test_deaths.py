"""The contract of `RunStore`: the list of dead runs, and publications of deaths."""

from __future__ import annotations

from datetime import datetime

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, at, run_key
from tests.integration.test_contract_run_store.conftest import FAILED, Dead, claim, redrive


def test_a_published_death_is_recorded_for_its_dispatch_only(dead: Dead) -> None:
    run = dead.die(run_key())
    redriven = redrive(dead, run).run
    dead.store.mark_death_published(run)  # after the redrive
    again = dead.die(run_key(), dispatch=redriven.dispatch)
    dead.store.mark_death_published(run)  # after the next death

    assert dead.store.get(run.key) == again
    assert again.buried == 0

    dead.store.mark_death_published(again)
    stored = dead.store.get(run.key)
    assert stored is not None
    assert stored.buried == redriven.dispatch


def test_a_live_run_has_no_published_death(store: RunStore) -> None:
    run = claim(store).run

    store.mark_death_published(run)

    assert store.get(run.key) == run
    assert run.buried == 0


def test_the_dead_of_a_tenant_are_listed_the_latest_death_first(dead: Dead) -> None:
    died = {}
    for n, time in enumerate(["12:00:00.5", "12:00", "12:10", "11:59:59.999", "12:05"]):
        died[time] = dead.die(run_key(at(f"{n:02d}:00"), job_id=f"job{n}"), when=at(time))
    dead.die(run_key(tenant="other"), when=at("12:01"))
    ended = claim(dead.store, a_message(run_key(at("20:00")))).run
    dead.store.advance(ended, ended.ended(RunState.SUCCEEDED, FAILED, NOON))

    def listed(limit: int) -> list[Run]:
        found: list[Run] = []
        cursor = None
        while True:
            page = dead.store.list_dead(
                "acme", first=NOON, last=at("12:05"), cursor=cursor, limit=limit
            )
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    wanted = [died["12:05"], died["12:00:00.5"], died["12:00"]]
    assert listed(1) == listed(2) == listed(50) == wanted
    redrive(dead, died["12:00:00.5"])
    assert listed(50) == [died["12:05"], died["12:00"]]


def test_the_ends_of_a_span_of_the_dead_are_rounded_down_to_milliseconds(dead: Dead) -> None:
    died = dead.die(run_key(), when=NOON)
    end = at("12:00:00.000900")

    page = dead.store.list_dead("acme", first=end, last=end, cursor=None, limit=9)
    assert [*page.items] == [died]


def test_a_cursor_from_before_the_span_moved_leads_into_it_of_the_dead(dead: Dead) -> None:
    for time in ("11:00", "12:00", "13:00"):
        dead.die(run_key(at(time)), when=at(time))
    span = {"first": at("10:00"), "last": at("14:00")}
    cursor = dead.store.list_dead("acme", cursor=None, limit=2, **span).cursor

    def listed(first: str, last: str) -> list[datetime]:
        page = dead.store.list_dead("acme", first=at(first), last=at(last), cursor=cursor, limit=9)
        return [run.key.scheduled_at for run in page.items]

    assert listed("12:30", "14:00") == []
    assert listed("10:00", "11:30") == [at("11:00")]
    assert listed("10:00", "14:00") == [at("11:00")]


def test_list_dead_rejects_an_invalid_cursor(dead: Dead) -> None:
    with pytest.raises(InvalidInputError):
        dead.store.list_dead("acme", first=NOON, last=NOON, cursor="none", limit=1)
