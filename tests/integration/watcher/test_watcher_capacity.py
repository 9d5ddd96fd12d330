"""A provisioned due table that is too small: runs may be late, and none is lost or sent twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.builders import a_fire, at
from tests.integration.backends import MINISTACK
from tests.integration.watcher.conftest import Stand, minutely, run_ids
from tests.strict.in_thread import StandInThread, stand_in

JOBS = 4
PLENTY = 1_000


@pytest.fixture(scope="module")
def strict(ministack_address: str) -> Iterator[StandInThread]:
    with stand_in(ministack_address) as found:
        yield found


@pytest.fixture
def backend() -> str:
    return MINISTACK


@pytest.fixture
def aws(aws: None, strict: StandInThread, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """An empty account, whose endpoint is the stand-in. The SDK's retries come at once."""
    strict.enforce()
    strict.proxy.here.acted.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", strict.address)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)


def _provision(stand: Stand, strict: StandInThread, *, writes: int, reads: int) -> None:
    stand.system.database.update_table(
        TableName=stand.system.due_table,
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": reads, "WriteCapacityUnits": writes},
    )
    strict.proxy.here.now = lambda: stand.clock.now().timestamp()
    strict.enforce("throughput")


def _first_sent(stand: Stand) -> dict[str, timedelta]:
    """How late each run was sent for the first time."""
    found: dict[str, timedelta] = {}
    for run in (run for report in stand.reports for run in report.dispatched):
        found.setdefault(run.run.run_id, run.lateness)
    return found


def test_too_few_writes_delay_successors_and_no_run(stand: Stand, strict: StandInThread) -> None:
    """Messages are sent before anything is written."""
    jobs = [minutely(f"job{number}") for number in range(JOBS)]
    stand.store(*jobs)
    _provision(stand, strict, writes=2, reads=PLENTY)

    stand.go_to(at("12:00:08"))

    assert strict.acted("throughput") > 0
    runs = [run for job in jobs for run in run_ids(job, "12:00")]
    assert _first_sent(stand) == dict.fromkeys(runs, timedelta(0))
    assert sorted(message.run_id for message in stand.received()) == sorted(runs)
    for job in jobs:
        assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]


def test_reads_of_others_that_use_up_the_capacity_delay_runs(
    stand: Stand, strict: StandInThread
) -> None:
    job = minutely()
    stand.store(job)
    stand.go_to(at("11:59:57.9"))
    database, table = stand.system.database, stand.system.due_table
    key: Any = {"bucket": {"S": "of another"}, "entry": {"S": "0"}}
    database.put_item(TableName=table, Item=key | {"job_id": {"S": "x" * 200_000}})
    _provision(stand, strict, writes=PLENTY, reads=10)
    database.get_item(TableName=table, Key=key, ConsistentRead=True)  # 49 units

    stand.go_to(at("12:00:08"))

    [run] = run_ids(job, "12:00")
    assert stand.errors
    assert _first_sent(stand)[run] > timedelta(0)
    assert [message.run_id for message in stand.received()] == [run]
    assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]
