"""Requests that wait, for example because the table is throttled, do not delay others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.settings import WatcherSettings
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.wiring.watcher_ports import watcher_ports
from tests.builders import a_message, a_retry, at, run_key
from tests.integration.faulty_server import Answer, FaultyServer, Request, answer

QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/000000000000/runs.fifo"
_WRITES = 32  # at the same time
_ONE_THREAD = ThreadPoolExecutor(1)  # as executors have it
_LONG = 3.0  # seconds: ends a test that would never end


@pytest.fixture
def settings(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> WatcherSettings:
    values = {name: name for name in ("JOBS_TABLE", "DUE_TABLE", "RUNS_TABLE", "CONTROL_TABLE")}
    pools = json.dumps({"default": {"queueUrl": QUEUE_URL, "maxTimeout": 900}})
    for name, value in (values | {"POOLS": pools, "WRITE_SHARDS": "1", "READ_SHARDS": "1"}).items():
        monkeypatch.setenv(f"NEXTFIRE_{name}", value)
    assert server.address
    return WatcherSettings.read()


@pytest.mark.usefixtures("lean")
def test_runs_are_sent_while_writes_to_the_table_wait(
    server: FaultyServer, settings: WatcherSettings
) -> None:
    throttled, arrived = threading.Event(), threading.Semaphore(0)

    def reply(request: Request) -> Answer:
        if "SendMessageBatch" in request.headers["x-amz-target"]:
            sent: Any = [{"Id": each["Id"]} for each in json.loads(request.body)["Entries"]]
            return answer({"Successful": sent})
        arrived.release()
        throttled.wait(_LONG)
        return answer({"UnprocessedItems": {}})

    server.script = [reply]
    ports = watcher_ports(settings)
    entries = [a_retry(run_key(uid=f"{number:08}"), at("12:00")) for number in range(1000)]

    with ThreadPoolExecutor(2) as callers:
        writing = callers.submit(ports.due.put, entries, at("12:00"))
        for _ in range(_WRITES):
            assert arrived.acquire(timeout=_LONG)
        sending = callers.submit(ports.queue.send, [("default", a_message(run_key()))])
        try:
            assert sending.result(_LONG / 2) == {0}
            assert not writing.done()
        finally:
            throttled.set()
        assert len(writing.result(_LONG)) == 1000


@pytest.mark.usefixtures("lean")
def test_due_entries_are_read_while_records_of_skipped_occurrences_wait(
    server: FaultyServer, settings: WatcherSettings
) -> None:
    throttled, waits, reads = threading.Event(), threading.Event(), threading.Event()

    def reply(request: Request) -> Answer:
        table = json.loads(request.body).get("TableName")
        if table == settings.runs_table:
            waits.set()
            throttled.wait(_LONG)
        elif table == settings.due_table:
            reads.set()
        cursor = {"minute": {"S": isoformat(floor_minute(now))}, "epoch": {"N": "1"}}
        found = {settings.control_table: [{"id": {"S": "cursor#0"}} | cursor]}
        return answer({"Items": [], "Responses": found})

    server.script = [reply]
    ports = watcher_ports(settings)
    now = ports.clock.now()
    for _ in range(_WRITES):
        ports.executor.submit(ports.runs.get, run_key())
    assert waits.wait(_LONG)
    try:
        Dispatch(ports, shards=[0], epoch=1, shares=Shares()).poll(ports.clock.now())
        assert reads.wait(_LONG / 2)
    finally:
        throttled.set()


def put(number: int) -> Callable[[], object]:
    store = DynamoDbDueStore(clients.dynamodb(), table="due", shards=1, executor=_ONE_THREAD)
    entry = a_retry(run_key(uid=f"{number:08}"), at("12:00"))
    return lambda: store.put([entry], at("12:00"))


def send(number: int) -> Callable[[], object]:
    queue = SqsRunQueue(clients.sqs(), queues={"default": QUEUE_URL}, executor=_ONE_THREAD)
    message = a_message(run_key(uid=f"{number:08}"))
    return lambda: queue.send([("default", message)])


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize("of", [put, send])
def test_runs_of_an_executor_do_not_wait_for_the_requests_of_others(
    server: FaultyServer, of: Callable[[int], Callable[[], object]]
) -> None:
    throttled, arrived = threading.Event(), threading.Semaphore(0)

    def wait(_: Request) -> Answer:
        arrived.release()
        throttled.wait(_LONG)
        return answer({"Successful": [{"Id": "0"}]})

    server.script = [wait, answer({"Successful": [{"Id": "0"}]})]
    with ThreadPoolExecutor(2) as slots:
        first = slots.submit(of(1))
        assert arrived.acquire(timeout=_LONG)
        second = slots.submit(of(2))
        try:
            assert second.result(_LONG / 2)
            assert not first.done()
        finally:
            throttled.set()
        assert first.result(_LONG)
