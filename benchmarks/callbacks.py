"""HTTP callbacks due at one instant, next to a bare loop of an async client; and Lambda's share."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.embedded import embedded_stack, state_folder
from benchmarks.invocations import BATCH, INVOCATIONS, lambda_seconds
from benchmarks.messages import send
from benchmarks.report import Result, tell
from benchmarks.stack import Child, Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire import Client
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.ids import JobKey, RunKey, run_id

POOL = "calls"
CALLS = 2000
WAIT = 0.1
"""Seconds that the server takes for a response."""
SLOTS = 64
BOUND_LAST_START = 2.0
BOUND_LAMBDA = 1 / 6
_SHORT_LEAD, _LEAD = timedelta(seconds=3), timedelta(seconds=20)
"""Time to create jobs before they are due."""
_MOST = timedelta(minutes=10)
_PER_REQUEST = 100


def measure() -> Result:
    """Run the embedded stack, batches as the Lambda function processes them, and a worker on the
    emulated stack, against a real server.
    """
    result = Result()
    _embedded(result)
    with state_folder("bench-callbacks-") as state, local_receiver(state) as (url, log):
        concurrent, alone = lambda_seconds(state, f"{url}/callback")
    result.add(
        "lambda_seconds_ratio",
        f"seconds of an invocation per call, in batches of {BATCH}; of one call at a time",
        concurrent / alone,
        most=BOUND_LAMBDA,
    )
    with running_stack(watcher=False) as stack, receiver(stack) as (url, log):
        worker = _worker(stack)
        runs = _Runs(stack, f"{url}/callback")
        runs.await_all(runs.send(SLOTS), worker)  # starts threads, loads the job's definition
        tell(f"{CALLS} calls sent at once to the emulated queue")
        sent_at = time.time()
        sent = runs.send(CALLS)
        runs.await_all(sent, worker)
        stack.end(worker)
        last = _Calls(log, {key.execution_id for key in sent}).last - sent_at
        bare = _bare(url, log)
    result.add("emulated_last_start_ratio", "the same on the emulated stack", last / bare)
    result.notes.append(
        f"Embedded: {CALLS} jobs due at one instant, sent by the watcher, called by a worker with "
        f"{SLOTS} slots. Emulated: {CALLS} messages sent at once, called by a worker with {SLOTS} "
        "slots; MiniStack serves one request after the other. A server "
        f"that responds after {WAIT} s over plain HTTP; a bare loop of httpx2 with {SLOTS} "
        f"connections. {INVOCATIONS * BATCH} calls in batches of {BATCH}, and {INVOCATIONS} one at "
        "a time, by what the function runs, with the embedded stack's adapters. Everything shares "
        "the processors."
    )
    return result


class _Calls:
    """The calls of *expected* in the file of arrivals *log*."""

    def __init__(self, log: Path, expected: set[str]) -> None:
        arrived = [(at, key) for at, key in arrivals(log) if key in expected]
        self.last = max(at for at, _ in arrived)
        counts = Counter(key for _, key in arrived)
        self.lost = len(expected - counts.keys())
        self.twice = sum(count > 1 for count in counts.values())


def _embedded(result: Result) -> None:
    with (
        embedded_stack("bench-callbacks-") as (state, _, client),
        local_receiver(state) as (url, log),
    ):
        _await_calls(client, _create(client, url, SLOTS, _SHORT_LEAD))
        tell(f"{CALLS} calls due at once")
        jobs = _create(client, url, CALLS, _LEAD)
        # Without the API, which would take processor time from the calls.
        wait_until(lambda: len(arrivals(log)) >= SLOTS + CALLS, most=_MOST, what="the calls")
        executions = _await_calls(client, jobs)
        calls = _Calls(log, set(executions))
        due = max(datetime.fromisoformat(each["scheduledAt"]) for each in executions.values())
        last = calls.last - due.timestamp()
        bare = _bare(url, log)
    result.add("last_start_s", f"{CALLS} due → last request arrived", last, unit="s")
    result.add("bare_last_start_s", "the same by a bare loop", bare, unit="s")
    result.add("last_start_ratio", "of the two", last / bare, most=BOUND_LAST_START)
    result.add("lost", "calls that did not arrive", calls.lost, most=0)
    result.add("twice", "calls that arrived twice", calls.twice)


def _create(client: Client, url: str, count: int, lead: timedelta) -> list[str]:
    """Create *count* jobs that call *url* once, all *lead* from now. Returns their ids."""
    at = (datetime.now(UTC) + lead).replace(microsecond=0)
    job = {
        "type": "ONCE",
        "schedule": at.isoformat(),
        "target": {"pool": POOL, "http": {"url": f"{url}/callback"}},
    }
    ids = []
    for first in range(0, count, _PER_REQUEST):
        made = client.create_jobs([job] * min(_PER_REQUEST, count - first))
        ids += [each.job.job_id for each in made.results if each.job is not None]
    return ids


def _await_calls(client: Client, jobs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The executions of *jobs*, by id, once all have ended."""
    found: dict[str, dict[str, Any]] = {}

    def over() -> bool:
        for job in jobs[len(found) :]:
            items = client.list_executions(job).items
            if not items or items[0].finished_at is None:
                return False
            found[items[0].execution_id] = items[0].document
        return True

    wait_until(over, most=_MOST, what=f"{len(jobs)} runs")
    return found


def _bare(url: str, log: Path) -> float:
    """Seconds until the last request of the bare loop arrives."""
    tell("the same calls by a bare loop of an async client")
    began = time.time()
    asyncio.run(_bare_loop(f"{url}/bare"))
    return max(at for at, key in arrivals(log) if key.startswith("bare-")) - began


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
        send(self._queue, keys, pool=POOL)
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

        wait_until(over, most=_MOST, what=f"{len(keys)} runs; see {worker.log}")


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
def local_receiver(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run the server in its own process, which keeps the file of arrivals in *folder*."""
    log = folder / "arrivals"
    program = [sys.executable, "-m", "benchmarks.receiver", str(log), str(WAIT)]
    with subprocess.Popen(program) as process:
        try:
            wait_until(log.exists, most=timedelta(seconds=20), what="the server")
            yield log.read_text().splitlines()[0], log
        finally:
            process.terminate()


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
