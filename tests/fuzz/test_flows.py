"""The whole system with a damaged item in its tables or queues: sound jobs continue.

Each case begins with the same stack at the same instant, so that a failure is reproducible alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from functions.auditor import handler as auditor
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.due import fire
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import decode_message
from nextfire.usecases import audit
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.tick import Dispatch
from tests.builders import NOON, a_job
from tests.fakes import InlineExecutor
from tests.fuzz import items
from tests.fuzz.beginning import bring_back
from tests.fuzz.cases import SHARE_WHOLE, counted, fuzzed, kept
from tests.fuzz.checks import check_kept
from tests.fuzz.damage import damaged
from tests.fuzz.items import Item, stored
from tests.fuzz.requests import UNREADABLE
from tests.integration.deployment import SHARDS, TENANT, Context, Deployment, message_for

NAME = "damaged"
NOW = NOON + timedelta(seconds=30)
SOUND = a_job(
    "sound", tenant=TENANT, uid="sound001", since=NOON - timedelta(seconds=90), schedule="* * * * *"
)
"""An undamaged job that is due every minute, first at 11:59, which is on record or not."""


@pytest.fixture
def stack(clock: None, system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The system at `NOW`."""
    assert clock is None
    monkeypatch.setattr(audit, "RECHECK_AFTER", timedelta())
    return system


@pytest.fixture
def clock() -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def begin(system: Deployment) -> None:
    """Restore the initial stack: only `SOUND`, due at noon, and cursors."""
    bring_back(system)
    cursors = DynamoDbControlStore(system.database, table=system.control_table)
    cursors.seed_cursors(SHARDS, floor_minute(NOW))
    system.database.put_item(TableName=system.jobs_table, Item=items.job_item(SOUND))
    due(system, SOUND)


def due(system: Deployment, job: Job) -> None:
    """Store an entry of *job* that is due at noon."""
    assert system.due.put([fire(job.key, job.uid, job.schedule_version, NOON)], NOW)


def tick(system: Deployment) -> None:
    """Poll and release once, like a new watcher."""
    dispatcher = Dispatch(
        WatcherPorts(
            jobs=system.jobs,
            due=system.due,
            runs=system.runs,
            queue=SqsRunQueue(
                system.queues, queues={"default": system.queue_url}, executor=InlineExecutor()
            ),
            control=DynamoDbControlStore(system.database, table=system.control_table),
            clock=SystemClock(),
            executor=InlineExecutor(),
            lanes=InlineExecutor(),
        ),
        shards=range(SHARDS),
        epoch=1,
        shares=Shares(),
    )
    dispatcher.poll(NOW)
    while dispatcher.next_at is not None and dispatcher.next_at <= NOW:
        dispatcher.release(NOW)


def sent(system: Deployment) -> list[str]:
    """The job ids of the messages in the queue."""
    return [decode_message(found["Body"]).job_id for found in system.receive()]


def readable(status: int, title: str) -> bool:
    """Whether an answer shows the item, or says that it is unreadable."""
    return status in {200, 404, 422} or title == UNREADABLE


def version_of(item: Item) -> int:
    """The version in a job's item if an entry may have it, otherwise 1."""
    version = item.get("schedule_version", {}).get("N", "")
    return int(version) if version.isdigit() and 0 < int(version) < 10**13 else 1


@counted("job in a table")
def check_job_in_a_table(system: Deployment, item: Item) -> None:
    begin(system)
    here = stored(item) | {"tenant": {"S": TENANT}, "job_id": {"S": NAME}}
    system.database.put_item(TableName=system.jobs_table, Item=here)
    uid = here.get("uid", {}).get("S", "")
    uid = uid if uid.isalnum() else "uid00001"
    due(system, a_job(NAME, tenant=TENANT, uid=uid, version=version_of(here)))

    tick(system)
    assert "sound" in sent(system)
    for path in (f"/v1/jobs/{NAME}", f"/v1/jobs/{NAME}/upcoming", f"/v1/jobs/{NAME}/executions"):
        answer = system.call("GET", path)
        assert readable(answer.status, answer.document.get("title", "")), answer
    listing = system.call("GET", "/v1/jobs")
    assert listing.status == 200
    assert {"sound", NAME} <= {each["jobId"] for each in listing.document["items"]}
    audited = auditor.handler({"full": True}, Context())
    assert audited["done"]
    tick(system)  # send what the auditor restored


@counted("run in a table")
def check_run_in_a_table(system: Deployment, item: Item) -> None:
    begin(system)
    message = message_for(SOUND, NOON - timedelta(minutes=1))
    key = {"job": {"S": f"{TENANT}/sound"}, "run_id": {"S": message.run_id}}
    system.database.put_item(TableName=system.runs_table, Item=stored(item) | key)
    system.send(message.encode(), group="g", dedup="d")
    system.execute(system.receive())

    for path in (
        f"/v1/executions/{message.key.execution_id}",
        f"/v1/executions/{message.key.execution_id}/logs",
    ):
        answer = system.call("GET", path)
        assert readable(answer.status, answer.document.get("title", "")), answer
    assert system.call("GET", "/v1/jobs/sound/executions").status == 200
    tick(system)
    assert "sound" in sent(system)
    assert auditor.handler({"full": True}, Context())["done"]


@counted("entry in a table")
def check_entry_in_a_table(system: Deployment, item: Item) -> None:
    begin(system)
    here = stored(item) | {"bucket": {"S": f"{NOW:%Y-%m-%dT%H:%MZ}#000"}}
    system.database.put_item(TableName=system.due_table, Item=here)

    tick(system)
    assert "sound" in sent(system)


@counted("control item in a table")
def check_control_item_in_a_table(system: Deployment, item: Item) -> None:
    begin(system)
    system.database.put_item(TableName=system.control_table, Item=stored(item))

    tick(system)
    found = sent(system)
    if not found:  # a lost cursor is recreated, and the shard read from there
        tick(system)
        found = sent(system)
    assert "sound" in found
    auditor.handler({}, Context())


@counted("message in a queue")
def check_message_in_a_queue(system: Deployment, body: str) -> None:
    begin(system)
    system.send(body, group="g", dedup="d")

    left = system.execute(system.receive())
    if is_of_a_later_version(body):
        assert len(left) == 1  # an executor of that version will receive it
        return
    assert left == set()
    (dead,) = system.receive(url=system.dlq_url)
    assert dead["Body"] == body


def is_of_a_later_version(body: str) -> bool:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and type(document.get("v")) is int and document["v"] > 1


CHECKS: dict[str, Callable[[Deployment, Any], None]] = {
    "job in a table": check_job_in_a_table,
    "run in a table": check_run_in_a_table,
    "entry in a table": check_entry_in_a_table,
    "control item in a table": check_control_item_in_a_table,
    "message in a queue": check_message_in_a_queue,
}


@pytest.mark.parametrize("kind", CHECKS)
def test_corpus_items_do_not_affect_sound_jobs(stack: Deployment, kind: str) -> None:
    for case in kept(kind):
        check_kept(case, partial(CHECKS[kind], stack))


@fuzzed(SHARE_WHOLE)
@given(damaged(items.jobs().map(items.job_item), "tenant", "job_id"))
def test_a_damaged_job_does_not_affect_sound_jobs(stack: Deployment, item: Item) -> None:
    check_job_in_a_table(stack, item)


@fuzzed(SHARE_WHOLE)
@given(damaged(items.runs().map(items.run_item), "job", "run_id"))
def test_a_damaged_run_does_not_affect_sound_jobs(stack: Deployment, item: Item) -> None:
    check_run_in_a_table(stack, item)


@fuzzed(SHARE_WHOLE)
@given(damaged(items.entries().map(items.due_item), "bucket", "entry"))
def test_a_damaged_entry_does_not_affect_sound_jobs(stack: Deployment, item: Item) -> None:
    check_entry_in_a_table(stack, item)


@fuzzed(SHARE_WHOLE)
@given(damaged(st.sampled_from([*items.CURSORS, *items.AUDITS]), "id"))
def test_a_damaged_control_item_does_not_affect_sound_jobs(stack: Deployment, item: Item) -> None:
    check_control_item_in_a_table(stack, item)


def bodies() -> st.SearchStrategy[str]:
    """Texts that a queue accepts: at least one character, and only characters of XML 1.0."""
    taken = st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Cn"])
    return st.text(taken, min_size=1, max_size=200) | st.sampled_from(
        ["null", "{}", "[]", '{"v":1}', '{"v":2}', '{"v":3}', "[" * 3000, "9" * 5000, "NaN"]
    )


@fuzzed(SHARE_WHOLE)
@given(bodies())
def test_an_invalid_message_is_dead_lettered_and_acknowledged(stack: Deployment, body: str) -> None:
    check_message_in_a_queue(stack, body)
