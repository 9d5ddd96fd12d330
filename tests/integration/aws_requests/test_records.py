"""Records of runs: how long they are kept, and the index of dead ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from nextfire.adapters.dynamodb.fields import Writer, names
from nextfire.adapters.dynamodb.run_items import DEAD_SHARDS, RUNS_TABLE
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.instants import to_ms
from nextfire.domain.retention import RETENTION
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, a_message, a_retry, at, claim_run, run_key
from tests.integration.aws_requests.conftest import Adapters
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1)
YEAR = timedelta(days=365)


@pytest.mark.parametrize(
    ("to", "counted_from"),
    [
        (lambda run: run.ended(RunState.SUCCEEDED, FAILED, at("12:05")), at("12:05")),
        (lambda run: run.ended(RunState.DEAD, FAILED, at("12:05")), at("12:05")),
        (lambda run: run.retrying(FAILED, at("12:05"), not_before=NOON + YEAR), NOON + YEAR),
        (lambda run: run.retrying(FAILED, at("12:05"), not_before=NOON), at("12:05")),
        (
            lambda run: replace(
                run.ended(RunState.SUCCEEDED, FAILED, at("12:02")), kept=timedelta(days=20)
            ),
            at("12:02") - timedelta(days=70),
        ),
    ],
    ids=["succeeded", "dead", "retried in a year", "retried at once", "kept for 20 days"],
)
def test_a_record_is_kept_from_its_last_change_or_next_attempt_on_and_only_the_dead_are_listed(
    dynamodb: DynamoDBClient, tables: Tables, to: Callable[[Run], Run], counted_from: datetime
) -> None:
    runs = Adapters(dynamodb, tables).runs
    run = claim_run(runs, a_message(), NOON, lease_until=at("12:01")).run

    changed = runs.advance(run, to(run)).run

    [item] = dynamodb.scan(TableName=tables.runs)["Items"]
    assert int(item["expires_at"]["N"]) * 1000 == to_ms(counted_from + RETENTION)
    assert ("attention" in item) is (changed.state is RunState.DEAD)


def _die(runs: DynamoDbRunStore, number: int) -> Run:
    key = run_key(NOON + timedelta(seconds=number))
    run = claim_run(runs, a_message(key), NOON, lease_until=at("12:01")).run
    return runs.advance(run, run.ended(RunState.DEAD, FAILED, at("12:05"))).run


def test_runs_of_one_job_that_die_together_are_spread_over_the_shards_of_the_index(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    runs = Adapters(dynamodb, tables).runs
    died = [_die(runs, number) for number in range(60)]

    entries = dynamodb.scan(TableName=tables.runs, IndexName="dead")["Items"]

    assert len({entry["attention"]["S"] for entry in entries}) == DEAD_SHARDS
    assert {*entries[0]} == {"attention", "attention_at", "job", "run_id"}
    listed: list[Run] = []
    cursor = None
    while not listed or cursor:
        page = runs.list_dead("acme", first=NOON, last=at("13:00"), cursor=cursor, limit=7)
        listed += page.items
        cursor = page.cursor
    assert listed == sorted(died, key=lambda run: run.key.execution_id, reverse=True)


def test_a_run_that_lives_again_is_not_listed_though_the_index_still_has_it(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    runs = DynamoDbRunStore(dynamodb, table=tables.runs, due_table=tables.due, shards=1)
    [dead, redriven] = (_die(runs, number) for number in range(2))
    entries = dynamodb.scan(TableName=tables.runs, IndexName="dead")["Items"]
    to = redriven.redriven("redriven", at("12:06"))
    assert runs.redrive(to, a_retry(to.key, at("12:06"), dispatch=to.dispatch), NOON).taken

    class Lagging:
        """A client whose index has not seen the redrive."""

        def query(self, **request: Any) -> Any:
            shard = request["ExpressionAttributeValues"][":shard"]
            return {"Items": [entry for entry in entries if entry["attention"] == shard]}

        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

    lagging = DynamoDbRunStore(cast("DynamoDBClient", Lagging()), table=tables.runs)
    page = lagging.list_dead("acme", first=NOON, last=at("13:00"), cursor=None, limit=7)

    assert page.items == [dead]


def test_an_executor_redrives_a_skipped_run_with_attributes_that_it_may_write(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    sent: list[Any] = []

    class Recording:
        def transact_write_items(self, **request: Any) -> Any:
            sent.append(request)
            return dynamodb.transact_write_items(**request)

        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

    client = cast("DynamoDBClient", Recording())
    runs = DynamoDbRunStore(client, table=tables.runs, due_table=tables.due, shards=1)
    skipped = runs.skip(Run.skipped(run_key(), "its parent failed", NOON))

    to = skipped.redriven("its parent succeeded", at("12:06"), by_user=False)
    entry = a_retry(to.key, at("12:06"), dispatch=to.dispatch)
    assert runs.redrive(to, entry, NOON, was=RunState.SKIPPED, by_user=False).taken

    update = sent[0]["TransactItems"][0]["Update"]
    used = {
        update["ExpressionAttributeNames"].get(word, word)
        for word in re.findall(
            r"(?<!:)#?\b\w+\b", f"{update['UpdateExpression']} {update['ConditionExpression']}"
        )
    }
    assert used & {*names(RUNS_TABLE)} <= {*names(RUNS_TABLE, of=Writer.EXECUTORS)}
