"""The contract of `RunStore`: how long records are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.instants import from_ms
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.retention import RETENTION
from nextfire.domain.run import RunState
from tests.builders import LEASE, at
from tests.integration.backends import MEMORY, SQLITE
from tests.integration.test_contract_run_store.conftest import FAILED, claim

DAY = timedelta(days=1)


def _expires_at(backend: str, request: pytest.FixtureRequest) -> datetime:
    """When the only record expires."""
    if backend == SQLITE:
        with request.getfixturevalue("database").reading("test") as connection:
            (item,) = RUNS.select(connection, "WHERE expires_at IS NOT NULL", ())
    else:
        (item,) = dynamodb().scan(TableName=request.getfixturevalue("tables").runs)["Items"]
    return from_ms(int(item["expires_at"]["N"]) * 1000)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (RunState.SUCCEEDED, 20 * DAY),
        (RunState.SUCCEEDED, None),
        (RunState.DEAD, 20 * DAY),
        (RunState.DEAD, 365 * DAY),
    ],
)
def test_the_record_of_an_ended_run_is_kept_as_long_as_its_outcome_says(
    store: RunStore,
    backend: str,
    request: pytest.FixtureRequest,
    state: RunState,
    kept: timedelta | None,
) -> None:
    run = claim(store).run
    ended = replace(run.ended(state, FAILED, at("12:05")), kept=kept)
    stored = store.advance(run, ended).run
    store.mark_death_published(stored)
    assert stored.kept is None  # the record has the instant

    if backend == MEMORY:  # it never expires records
        return
    assert _expires_at(backend, request) == at("12:05") + (kept or RETENTION)


def test_the_record_of_a_run_that_continues_is_kept_from_its_latest_step(
    store: RunStore, backend: str, request: pytest.FixtureRequest
) -> None:
    run = claim(store).run
    later = at("12:00") + 80 * DAY
    taken = run.taken_over(dispatch=1, token="t2", worker="b", now=later, lease_until=later + LEASE)
    assert store.advance(run, taken).taken

    if backend == MEMORY:
        return
    assert _expires_at(backend, request) == later + RETENTION
