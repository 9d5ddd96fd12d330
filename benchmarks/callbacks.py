"""HTTP callbacks due in one second, next to a bare loop of an async client; and Lambda's share."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.harness import Child, Stack, wait_until
from benchmarks.harness import stack as running_stack
from benchmarks.report import Result, tell
from nextfire.adapters.aws.clients import sqs
from nextfire.adapters.sqs.run_queue import SqsInbox, SqsRunQueue
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.message import RunMessage
from nextfire.settings import ExecutorSettings
from nextfire.usecases.concurrent_batch import ConcurrentBatch
from nextfire.usecases.handled import Disposition, Handled
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.executor import build_executor

POOL = "calls"
CALLS = 2000
WAIT = 0.1
"""Seconds that the server takes for a response."""
SLOTS = 64
INVOCATIONS = 20
BATCH = 10
BOUND_LAST_START = 2.0
BOUND_LAMBDA = 1 / 6
_LEASE = timedelta(seconds=60)


def measure() -> Result:
    """Run a real worker of a pool of calls against a real server, with the deployed tables and
    queue; then batches as the Lambda function processes them.
    """
    result = Result()
    with running_stack(watcher=False) as stack, receiver(stack) as (url, log):
        worker = _worker(stack)
        runs = _Runs(stack, f"{url}/callback")
        runs.await_all(runs.send(SLOTS), worker)  # starts threads, loads the job's definition
        tell(f"{CALLS} calls due at once")
        due_at = time.time()
        sent = runs.send(CALLS)
        runs.await_all(sent, worker)
        stack.end(worker)
        ids = {key.execution_id for key in sent}
        arrived = [(at, key) for at, key in arrivals(log) if key in ids]
        tell("the same calls by a bare loop of an async client")
        bare_at = time.time()
        asyncio.run(_bare_loop(f"{url}/bare"))
        bare = max(at for at, key in arrivals(log) if key.startswith("bare-")) - bare_at
        concurrent, alone = _lambda_seconds(stack, runs)
    counts = Counter(key for _, key in arrived)
    last = max(at for at, _ in arrived) - due_at
    result.add("last_start_s", f"{CALLS} due → last request arrived", last, unit="s")
    result.add("bare_last_start_s", "the same by a bare loop", bare, unit="s")
    result.add("last_start_ratio", "of the two", last / bare, most=BOUND_LAST_START)
    result.add(
        "lambda_seconds_ratio",
        f"seconds of an invocation per call, in batches of {BATCH}; of one call at a time",
        concurrent / alone,
        most=BOUND_LAMBDA,
    )
    result.add("lost", "calls that did not arrive", len(ids - counts.keys()), most=0)
    result.add("twice", "calls that arrived twice", sum(n > 1 for n in counts.values()))
    result.notes.append(
        f"A worker with {SLOTS} slots; a server that responds after {WAIT} s over plain HTTP; a "
        f"bare loop of httpx2 with {SLOTS} connections. {INVOCATIONS * BATCH} calls in batches of "
        f"{BATCH}, and {INVOCATIONS} one at a time. MiniStack and the server use the same "
        "processors at the same time."
    )
    return result


class _Quiet:
    """`MessageNotices` that report trouble only."""

    def warn(self, what: str, why: Exception | str) -> None:
        tell(f"{what}: {why}")

    fail = warn

    def handled(self, handled: Handled) -> None:
        if handled.disposition is not Disposition.ACKNOWLEDGE:
            tell(handled.reason)


class _Runs:
    """Sends runs of one MANUAL job that calls *url*, and waits for them."""

    def __init__(self, stack: Stack, url: str) -> None:
        self._stack, self._store = stack, stack.run_store()
        self._at = datetime.now(UTC).replace(microsecond=0)
        document = {"type": "MANUAL", "target": {"pool": POOL, "http": {"url": url}}}
        self._job = stack.registrar().register("callback", document, self._at)
        self._queue = SqsRunQueue(
            stack.client("sqs"),
            queues={POOL: stack.info.pools[POOL].queue_url},
            executor=ThreadPoolExecutor(8),
        )

    def send(self, count: int) -> list[RunKey]:
        """Send *count* runs that are due now."""
        keys = []
        now = datetime.now(UTC).replace(microsecond=0)
        for _ in range(count):
            self._at = max(self._at + timedelta(milliseconds=1), now)
            key = JobKey(self._stack.tenant, "callback")
            keys.append(RunKey(key, run_id(self._job.uid, self._at)))
        messages = [
            RunMessage(
                tenant=key.job.tenant,
                job_id=key.job.job_id,
                run_id=key.run_id,
                dispatch=1,
                dispatched_at=now,
            )
            for key in keys
        ]
        if len(self._queue.send([(POOL, message) for message in messages])) < count:
            raise RuntimeError("the queue did not accept all messages")
        return keys

    def await_all(self, keys: Sequence[RunKey], worker: Child) -> None:
        left = list(keys)

        def over() -> bool:
            while left:
                run = self._store.get(left[-1])
                if run is None or not run.state.ended:
                    return False
                left.pop()
            return True

        wait_until(over, most=timedelta(minutes=10), what=f"{len(keys)} runs; see {worker.log}")


def _lambda_seconds(stack: Stack, runs: _Runs) -> tuple[float, float]:
    """Seconds per call of batches, and of one call at a time, in this process."""
    stack.become_worker(POOL)
    os.environ["NEXTFIRE_AWS_CLIENT"] = "lean"  # as in a deployment
    settings = ExecutorSettings.read()
    config = executor_config(settings, worker="benchmark")
    batch = build_executor(executor_ports(settings), config, _Quiet())
    inbox = SqsInbox(sqs(long_poll=True), queue_url=settings.queue_url)
    with ThreadPoolExecutor(BATCH) as threads:
        concurrent: ConcurrentBatch[Any] = ConcurrentBatch(batch, threads)
        _invocations(runs, inbox, concurrent, BATCH, 1)  # starts threads and connections
        tell(f"{INVOCATIONS} invocations with {BATCH} calls")
        together = _invocations(runs, inbox, concurrent, BATCH, INVOCATIONS)
        tell(f"{INVOCATIONS} invocations with one call")
        alone = _invocations(runs, inbox, batch, 1, INVOCATIONS)
    return together, alone


def _invocations(runs: _Runs, inbox: SqsInbox, batch: Any, size: int, number: int) -> float:  # noqa: ANN401
    """Process up to *number* times *size* messages, in batches of up to *size*. Returns the seconds
    per call.
    """
    runs.send(number * size)
    seconds, calls, taken = 0.0, 0, 0
    while taken < number * size:
        received = inbox.receive(size, wait=timedelta(seconds=5), hidden_for=_LEASE)
        if not received and taken:
            tell(f"{number * size - taken} messages went to a receive of the worker that ended")
            break
        taken += len(received)
        began = time.perf_counter()
        stay = batch.carry_out(received, stopping=lambda: False)
        seconds += time.perf_counter() - began
        calls += len(received) - len(stay)
        inbox.acknowledge(received)
    return seconds / calls


async def _bare_loop(url: str) -> None:
    limits = httpx2.Limits(max_connections=SLOTS, max_keepalive_connections=0)
    async with httpx2.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
        turn = asyncio.Semaphore(SLOTS)  # the client's own queue is slow with many waiting calls

        async def call(number: int) -> None:
            headers = {"Idempotency-Key": f"bare-{number}", "Connection": "close"}
            async with turn:
                (await client.post(url, json={}, headers=headers)).raise_for_status()

        await asyncio.gather(*map(call, range(CALLS)))


def _worker(stack: Stack) -> Child:
    environment = {
        **stack.worker_environment(POOL),
        "NEXTFIRE_SLOTS": str(SLOTS),
        "POWERTOOLS_LOG_LEVEL": "WARNING",
    }
    return stack.spawn("functions.worker", name="worker", environment=environment)


@contextmanager
def receiver(stack: Stack) -> Iterator[tuple[str, Path]]:
    """Run the server in its own process; yields its URL and the file of arrivals."""
    log = stack.folder / "arrivals"
    child = stack.spawn("benchmarks.receiver", str(log), str(WAIT), name="receiver", environment={})
    wait_until(log.exists, most=timedelta(seconds=20), what=f"the server; see {child.log}")
    yield log.read_text().splitlines()[0], log
    stack.end(child)


def arrivals(log: Path) -> list[tuple[float, str]]:
    """The arrival of each request: seconds since 1970, and its idempotency key."""
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()[1:]]
