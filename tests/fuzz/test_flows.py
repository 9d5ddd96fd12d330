"""The whole system with something damaged in its tables or queues: what is sound goes on."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.auditor import handler as auditor
from nextfire.adapters.aws import SystemClock
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.adapters.run_queue import SqsRunQueue
from nextfire.domain.due import fire
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.message import decode_message
from nextfire.usecases import audit
from nextfire.usecases.dispatch_due import DispatchDue, Shares
from tests.builders import a_job
from tests.fakes import InlineExecutor
from tests.fuzz import items
from tests.fuzz.cases import counted, fuzzed
from tests.fuzz.items import Item, damaged, stored
from tests.fuzz.requests import UNREADABLE
from tests.integration.deployment import SHARDS, TENANT, Context, Deployment, message_for

NAME = "damaged"
clock = SystemClock()
_numbers = count(1)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LOOK_AGAIN_AFTER", clock.now() - clock.now())


@pytest.fixture
def sound(system: Deployment) -> Job:
    """A job with nothing wrong, that is due each minute."""
    return system.register(jobId="sound")


def tick(system: Deployment) -> list[str]:
    """Poll and release as a watcher that has just come. Returns the jobs whose runs were sent."""
    dispatcher = DispatchDue(
        jobs=system.jobs,
        due=system.due,
        runs=system.runs,
        queue=SqsRunQueue(
            system.queues, queues={"default": system.queue_url}, executor=InlineExecutor()
        ),
        control=DynamoDbControlStore(system.database, table=system.control_table),
        clock=clock,
        executor=InlineExecutor(),
        shards=range(SHARDS),
        epoch=next(_numbers),
        shares=Shares(),
    )
    now = clock.now()
    dispatcher.poll(now)
    while dispatcher.next_at is not None and dispatcher.next_at <= now:
        dispatcher.release(now)
    return [decode_message(found["Body"]).job_id for found in system.receive()]


def due_again(system: Deployment, job: Job) -> None:
    """Have *job* due now, an instant that it never was before."""
    entry = fire(job.key, job.uid, job.schedule_version, cut(clock.now()))
    assert system.due.put([entry], clock.now())


def readable(status: int, title: str) -> bool:
    """Whether an answer says what is there, or that it does not read."""
    return status in {200, 404, 422} or title == UNREADABLE


@counted("job in a table")
def check_job_in_a_table(system: Deployment, sound: Job, item: Item) -> None:
    here = stored(item) | {"tenant": {"S": TENANT}, "job_id": {"S": NAME}}
    system.database.put_item(TableName=system.jobs_table, Item=here)
    uid = here.get("uid", {}).get("S", "")
    due_again(system, a_job(NAME, tenant=TENANT, uid=uid if uid.isalnum() else "uid00001"))
    due_again(system, sound)

    assert "sound" in tick(system)
    for path in (f"/v1/jobs/{NAME}", f"/v1/jobs/{NAME}/upcoming", f"/v1/jobs/{NAME}/executions"):
        answer = system.call("GET", path)
        assert readable(answer.status, answer.document.get("title", "")), answer
    listing = system.call("GET", "/v1/jobs")
    assert listing.status == 200
    assert {"sound", NAME} <= {each["jobId"] for each in listing.document["items"]}
    auditor.handler({"full": True}, Context())
    key = {name: here[name] for name in ("tenant", "job_id")}
    system.database.delete_item(TableName=system.jobs_table, Key=key)


@fuzzed(whole=True)
@given(damaged(items.jobs().map(items.job_item), "tenant", "job_id"))
def test_a_damaged_job_stops_nobody(system: Deployment, sound: Job, item: Item) -> None:
    check_job_in_a_table(system, sound, item)


@counted("run in a table")
def check_run_in_a_table(system: Deployment, sound: Job, item: Item) -> None:
    message = message_for(sound, sound.effective_from.replace(second=0, microsecond=0))
    key = {"job": {"S": f"{TENANT}/sound"}, "run_id": {"S": message.run_id}}
    system.database.put_item(TableName=system.runs_table, Item=stored(item) | key)
    number = next(_numbers)
    system.send(message.encode(), group=f"g{number}", dedup=f"d{number}")
    system.execute(system.receive(hidden_for=0))

    for path in (
        f"/v1/executions/{message.key.execution_id}",
        f"/v1/executions/{message.key.execution_id}/logs",
    ):
        answer = system.call("GET", path)
        assert readable(answer.status, answer.document.get("title", "")), answer
    assert system.call("GET", "/v1/jobs/sound/executions").status == 200
    due_again(system, sound)
    assert "sound" in tick(system)
    auditor.handler({"full": True}, Context())
    system.database.delete_item(TableName=system.runs_table, Key=key)


@fuzzed(whole=True)
@given(damaged(items.runs().map(items.run_item), "job", "run_id"))
def test_a_damaged_run_stops_nobody(system: Deployment, sound: Job, item: Item) -> None:
    check_run_in_a_table(system, sound, item)


@counted("entry in a table")
def check_entry_in_a_table(system: Deployment, sound: Job, item: Item) -> None:
    here = stored(item)
    minute = f"{clock.now():%Y-%m-%dT%H:%MZ}"
    here["bucket"] = {"S": f"{minute}#000"}
    system.database.put_item(TableName=system.due_table, Item=here)
    due_again(system, sound)

    assert "sound" in tick(system)
    for each in system.due_items():
        key = {name: each[name] for name in ("bucket", "entry")}
        system.database.delete_item(TableName=system.due_table, Key=key)


@fuzzed(whole=True)
@given(damaged(items.entries().map(items.due_item), "bucket", "entry"))
def test_a_damaged_entry_stops_nobody(system: Deployment, sound: Job, item: Item) -> None:
    check_entry_in_a_table(system, sound, item)


@counted("control item in a table")
def check_control_item_in_a_table(system: Deployment, sound: Job, item: Item) -> None:
    system.database.put_item(TableName=system.control_table, Item=stored(item))
    due_again(system, sound)
    for _ in range(2):  # a cursor that was lost is set anew, and the shard read from there
        if "sound" in tick(system):
            break
    else:
        raise AssertionError("the sound job is not sent")
    auditor.handler({}, Context())


@fuzzed(whole=True)
@given(damaged(st.sampled_from([*items.CURSORS, *items.AUDITS]), "id"))
def test_a_damaged_control_item_stops_nobody(system: Deployment, sound: Job, item: Item) -> None:
    check_control_item_in_a_table(system, sound, item)


def bodies() -> st.SearchStrategy[str]:
    """Texts that a queue takes: at least one character, and those of XML 1.0."""
    taken = st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc", "Cn"])
    return st.text(taken, min_size=1, max_size=200) | st.sampled_from(
        ["null", "{}", "[]", '{"v":1}', '{"v":2}', "[" * 3000, "9" * 5000, "NaN"]
    )


@counted("message in a queue")
def check_message_in_a_queue(system: Deployment, body: str) -> None:
    number = next(_numbers)
    system.send(body, group=f"g{number}", dedup=f"d{number}")

    assert system.execute(system.receive()) == set()
    (kept,) = system.receive(url=system.dlq_url)
    assert kept["Body"] == body
    system.queues.delete_message(QueueUrl=system.dlq_url, ReceiptHandle=kept["ReceiptHandle"])


@fuzzed(whole=True)
@given(bodies())
def test_what_is_no_message_is_kept_and_acknowledged(system: Deployment, body: str) -> None:
    check_message_in_a_queue(system, body)
