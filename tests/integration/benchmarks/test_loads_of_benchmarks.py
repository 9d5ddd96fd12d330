"""The jobs, runs and requests of the benchmarks that measure processes of a stack."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from benchmarks import api, chain, execute, failover, fairness, overhead, paused, timeliness
from benchmarks.load import Load, Planned
from benchmarks.messages import send
from benchmarks.stack import POOL, Child
from nextfire.client import Client
from nextfire.client.bearer import Bearer
from nextfire.domain.definition import JobDefinition
from nextfire_cli.local.processes import ProcessRecord
from tests.integration.benchmarks.conftest import StackOnMoto, shrink
from tests.integration.deployment import Deployment

AT = datetime(2099, 1, 1, 12, tzinfo=UTC)
NO_PROCESS = Child(ProcessRecord(name="worker", pid=2**30, started=""), Path())


def plans() -> list[Planned]:
    stopped = [paused._planned(number, AT, AT) for number in range(3)]
    return [*timeliness.plan(AT)[:5], *failover.plan(AT, timedelta(minutes=1))[:2], *stopped]


def test_planned_jobs_are_stored_and_accounted_for(stack: StackOnMoto) -> None:
    load = Load(stack, plans())

    load.store()

    assert load.account().lost == set(load.expected)
    assert failover.Watchers(stack).holder() is None
    assert paused._covered(stack)["paused-0"] == []


def test_tenants_of_fairness(stack: StackOnMoto, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, fairness, MANY=2, SECONDS=1)

    fairness._store_minnow(stack, AT)
    fairness._store_whale(stack, AT)

    count = stack.client("dynamodb").scan(TableName="due", Select="COUNT")["Count"]
    assert count == 2 + 1 + 1  # and the template


def test_messages_of_execute_and_overhead(stack: StackOnMoto) -> None:
    execute._Runs(stack, NO_PROCESS).send("line", 2)
    runs = overhead.Runs(stack, NO_PROCESS, Path())
    send(runs._queue, [runs._key("stamps")], pool=POOL)

    queue = stack.info.pools["default"].queue_url
    received = stack.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    assert len(received["Messages"]) == 3


def test_jobs_of_chain(tmp_path: Path) -> None:
    with Client("http://127.0.0.1", auth=Bearer("key")) as client:
        load = chain._Load(client, tmp_path)
    for when in (AT, ["parent"], ()):
        job = load.job("job", when)
        JobDefinition.model_validate({name: job[name] for name in job if name != "jobId"})


def test_routes_of_api(system: Deployment) -> None:
    for name, method, address, body in api._ROUTES:
        url = urlsplit(address.replace("{job}", "job"))
        answer = system.call(method, url.path, body, query=dict(parse_qsl(url.query)))
        assert answer.status < 300, (name, answer.document)


def test_imports_of_api(stack: StackOnMoto) -> None:
    stack.become_watcher()
    for code in api._IMPORTS.values():
        exec(code, {})  # noqa: S102 — ours
