"""The watcher's handler, invoked for about two seconds."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from functions.watcher import handler as watcher
from infra.limits import MAX_GROUPS
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut
from nextfire.domain.message import decode_message
from nextfire.wiring import watcher_ports
from tests.builders import a_fire
from tests.integration.deployment import SHARDS, Context, Deployment, Proxy
from tests.integration.watcher.conftest import SECOND, once, refusal

LAMBDA_THREADS = 1_024
"""Maximum number of threads and processes of a Lambda executor."""


def test_handlers_of_two_groups_share_the_shards(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, groups="2", life="PT2S")
    now = cut(SystemClock().now())
    jobs = {f"job-{n}": system.register(jobId=f"job-{n}", schedule="0 0 1 1 *") for n in range(8)}
    assert {JobKey(job.key.tenant, job_id).shard(SHARDS) for job_id, job in jobs.items()} == {
        *range(SHARDS)
    }
    due_at = now + SECOND
    system.due.put({a_fire(job, due_at) for job in jobs.values()}, now)

    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda group: watcher.handler({"group": group}, Context()), range(2))
        )

    received = [decode_message(message["Body"]) for message in system.receive()]
    assert Counter(message.job_id for message in received) == dict.fromkeys(jobs, 1)
    assert sum(answer["dispatched"] for answer in answers) == 8
    assert all(answer["dispatched"] for answer in answers)
    assert all(message.dispatched_at >= due_at for message in received)
    control = DynamoDbControlStore(system.database, table=system.control_table)
    for group in range(2):
        lease = control.lease(group)
        assert lease is not None
        assert lease.released, "the next invocation must not have to wait for its expiry"


def test_a_process_that_serves_many_groups_has_the_threads_of_one(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch)
    pools: list[int] = []

    def pool(threads: int) -> ThreadPoolExecutor:
        pools.append(threads)
        return ThreadPoolExecutor(threads)

    monkeypatch.setattr(watcher_ports, "ThreadPoolExecutor", pool)

    for group in range(MAX_GROUPS):
        watcher._watcher_of(group)  # noqa: SLF001 — cached per process

    assert 0 < sum(pools) < LAMBDA_THREADS / 2


def test_a_group_that_does_not_exist_is_not_watched(system: Deployment) -> None:
    job = system.register(jobId="a", schedule="0 0 1 1 *")
    now = cut(SystemClock().now())
    system.due.put([a_fire(job, now)], now)

    assert watcher.handler({"group": 7}, Context()) == {"dispatched": 0}
    assert system.receive() == []


def test_handler_outlives_a_store_that_does_not_answer(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, life="PT1.2S")
    job = system.register(jobId="a", schedule="0 0 1 1 *")
    now = cut(SystemClock().now())
    system.due.put([a_fire(job, now + SECOND / 2)], now)
    proxy = Proxy(system.database)
    once(proxy, "query", refusal("ThrottlingException"))
    monkeypatch.setattr(watcher_ports, "dynamodb", lambda: proxy)

    assert watcher.handler({"group": 0}, Context()) == {"dispatched": 1}

    assert len(system.receive()) == 1
