"""Sequences: how soon a child starts after its parent, a wide fan-out and fan-in, write units."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.embedded import embedded_stack
from benchmarks.figures import percentile
from benchmarks.meter import Meter, Tally
from benchmarks.report import Result, progress, tell
from benchmarks.stack import POOL, Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire import Client
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.message import RunMessage
from nextfire.responses.executions import ExecutionResponse
from nextfire.usecases.hand_over import MAX_SENT

CHAINS, LINKS = 100, 10
EVERY = timedelta(seconds=1)
"""Between the starts of two chains."""
WIDTH = 1_000
"""Of the fan: the maximum number of children of a job, and of parents of a join."""
UNITS_CHAINS, UNITS_WIDTH = 10, 100
"""Of the sequences whose write units are counted."""
MAX_LINK_P99, MAX_UNITS = 0.3, 5
_BATCH = 100
_TRIES = 20
_LEAD = timedelta(seconds=20)
_MOST = timedelta(minutes=15)
_SCRIPT = b"""
import json, os, sys
marks = os.open(json.load(sys.stdin)["marks"], os.O_WRONLY | os.O_APPEND)
os.write(marks, (os.environ["NEXTFIRE_EXECUTION_ID"] + "\\n").encode())
"""
Job = dict[str, Any]


def measure() -> Result:
    """Run the embedded stack with one worker of 16 slots, and scripts in processes. Then count the
    units of a worker's parts on the emulated stack.
    """
    result = Result()
    with embedded_stack("bench-chain-") as (state, _, client):
        client.push_script("mark", _SCRIPT)
        load = _Load(client, state)
        _chains(result, load)
        _fan(result, load)
        lost, twice = load.account()
        result.add("lost", "runs lost", lost, most=0)
        result.add("duplicated", "runs started twice", twice, most=0)
    _units(result)
    result.notes.append(
        f"{CHAINS} chains of {LINKS} jobs, one started every {EVERY.total_seconds():g} s; then one "
        f"job, {WIDTH:,} children and their join. A script in its own process, one worker "
        "with 16 slots; its scripts, the API, the watcher and the benchmark share the processors. "
        f"Units: {UNITS_CHAINS} chains of {LINKS} jobs, a join of {UNITS_WIDTH}, by the parts of "
        "the worker in one thread on the emulated stack, as its answers report them."
    )
    return result


class _Load:
    """Creates jobs, and accounts for their runs."""

    def __init__(self, client: Client, state: Path) -> None:
        self.client = client
        self._marks = state / "marks"
        self._marks.touch()
        self._marks.chmod(0o666)
        self._created = 0

    def job(self, job_id: str, when: datetime | Sequence[str]) -> Job:
        """A job that is due at *when*, or that runs after the jobs *when*; on request if none."""
        kind: Job = {"type": "MANUAL"}
        if isinstance(when, datetime):
            kind = {"type": "ONCE", "schedule": when.isoformat()}
        elif when:
            kind = {"type": "AFTER", "after": [{"job": parent} for parent in when]}
        payload = {"marks": str(self._marks)}
        return {"jobId": job_id, "target": {"handler": "mark"}, "payload": payload, **kind}

    def create(self, jobs: Sequence[Job]) -> None:
        self._created += len(jobs)
        for first in range(0, len(jobs), _BATCH):
            self._create(jobs[first : first + _BATCH])

    def _create(self, jobs: Sequence[Job]) -> None:
        """Create *jobs*, whose parents exist. New children of one job race with each other."""
        for _ in range(_TRIES):
            made = self.client.create_jobs([*jobs]).results
            jobs = [job for job, one in zip(jobs, made, strict=True) if one.problem is not None]
            if not jobs:
                return
        raise RuntimeError(f"{len(jobs)} jobs could not be created, for example {jobs[0]}")

    def started(self) -> Counter[str]:
        """The executions that have run, with the number of their starts."""
        return Counter(self._marks.read_text().split())

    def await_all(self) -> None:
        wait_until(lambda: len(self.started()) >= self._created, most=_MOST, what="the runs")

    def account(self) -> tuple[int, int]:
        """The number of jobs that did not run, and of executions that ran twice."""
        starts = self.started()
        return self._created - len(starts), sum(count > 1 for count in starts.values())

    def run_of(self, job_id: str) -> ExecutionResponse:
        """The only execution of a job, once it has ended."""

        def ended() -> bool:
            return self.client.list_executions(job_id).items[0].finished_at is not None

        wait_until(ended, most=_MOST, what=f"the end of {job_id}")
        [run] = self.client.list_executions(job_id).items
        return run


def _chains(result: Result, load: _Load) -> None:
    tell(f"creating {CHAINS} chains of {LINKS} jobs")
    first = datetime.now(UTC).replace(microsecond=0) + 2 * _LEAD
    for level in range(LINKS):
        load.create(
            [
                load.job(f"c{chain}-{level}", [f"c{chain}-{level - 1}"])
                if level
                else load.job(f"c{chain}-0", first + chain * EVERY)
                for chain in range(CHAINS)
            ]
        )
    if datetime.now(UTC) > first:
        tell("the first chains were due before all jobs existed")
    load.await_all()
    waits = [
        wait
        for chain in progress(range(CHAINS), "records")
        for wait in _waits(load, load.run_of(f"c{chain}-{LINKS - 1}").execution_id)
    ]
    what = "end of the parent → start of the child"
    result.add("link_p50_s", f"{what}, p50", percentile(waits, 50), unit="s")
    result.add("link_p99_s", f"{what}, p99", percentile(waits, 99), most=MAX_LINK_P99, unit="s")


def _waits(load: _Load, execution_id: str) -> Iterator[float]:
    """The seconds between the end of each parent of a chain and the start of its child."""
    nodes = {node.job_id: node for node in load.client.get_chain(execution_id).items}
    for node in nodes.values():
        for parent in node.after:
            started_at, ended_at = node.started_at, nodes[parent].finished_at
            if started_at is None or ended_at is None:
                raise RuntimeError(f"{node.job_id} did not run")
            yield (started_at - ended_at).total_seconds()


def _fan(result: Result, load: _Load) -> None:
    tell(f"creating a fan of {WIDTH:,}")
    children = [f"f{number}" for number in range(WIDTH)]
    load.create([load.job("fan", ())])
    load.create([load.job(child, ["fan"]) for child in children])
    load.create([load.job("join", children)])
    load.client.run_job("fan")
    load.await_all()
    ended, joined = load.run_of("fan").finished_at, load.run_of("join").started_at
    if ended is None or joined is None:
        raise RuntimeError("the join did not run")
    what = f"end of the job → {WIDTH:,} children have run and their join starts"
    result.add("fan_s", what, (joined - ended).total_seconds(), unit="s")


def _units(result: Result) -> None:
    with running_stack(watcher=False) as stack:
        stack.push_script("instant", b"pass\n")
        now = datetime.now(UTC).replace(microsecond=0)
        registrar = stack.registrar()

        def register(job_id: str, parents: Sequence[str]) -> str:
            kind: Mapping[str, object] = {"type": "MANUAL"}
            if parents:
                kind = {"type": "AFTER", "after": [{"job": parent} for parent in parents]}
            return registrar.register(job_id, kind, now).uid

        roots = {f"u{chain}-0": register(f"u{chain}-0", ()) for chain in range(UNITS_CHAINS)}
        for chain in range(UNITS_CHAINS):
            for level in range(1, LINKS):
                register(f"u{chain}-{level}", [f"u{chain}-{level - 1}"])
        fan = {"ufan": register("ufan", ())}
        # A run with more children leaves their messages to the watcher, which is not measured.
        groups = [f"ufan-{number}" for number in range(UNITS_WIDTH // MAX_SENT)]
        children = [f"{group}-{number}" for group in groups for number in range(MAX_SENT)]
        for child in [*groups, *children]:
            register(child, [child.rpartition("-")[0]])
        register("ujoin", children)
        stack.become_worker()
        work = _worker_of(stack, Meter(), datetime.now(UTC))
        chains = work(roots, UNITS_CHAINS * LINKS)
        wide = work(fan, len(groups) + UNITS_WIDTH + 2)
    per_link = chains.write_units / (UNITS_CHAINS * LINKS)
    result.add("write_units_per_link", "write units per link of a chain", per_link, most=MAX_UNITS)
    per_parent = (wide.write_units - (len(groups) + 2) * per_link) / UNITS_WIDTH
    what = f"write units per parent of a join of {UNITS_WIDTH}"
    result.add("write_units_per_parent", what, per_parent, most=MAX_UNITS)


def _worker_of(
    stack: Stack, meter: Meter, now: datetime
) -> Callable[[Mapping[str, str], int], Tally]:
    """A function that sends a run of each of some jobs, by uid, and executes it and those that
    follow: their given number. It returns the tally.
    """
    # Imported here because these modules read the environment, which must be a worker's by now.
    from benchmarks.units import Outcomes  # noqa: PLC0415
    from nextfire.adapters.aws.clients import sqs  # noqa: PLC0415
    from nextfire.adapters.sqs.run_queue import (  # noqa: PLC0415
        SqsDelivery,
        SqsInbox,
        SqsRunQueue,
    )
    from nextfire.settings import ExecutorSettings  # noqa: PLC0415
    from nextfire.usecases.execute_run import ExecuteRun  # noqa: PLC0415
    from nextfire.usecases.message_batch import MessageBatch  # noqa: PLC0415
    from nextfire.wiring.execution import executor_config, executor_ports  # noqa: PLC0415

    settings = ExecutorSettings.read()
    outcomes = Outcomes()
    execute_run = ExecuteRun(
        executor_ports(settings, outcomes), executor_config(settings, worker="benchmark")
    )
    batch: MessageBatch[SqsDelivery] = MessageBatch(execute_run, outcomes)
    inbox = SqsInbox(sqs(), queue_url=settings.queue_url)
    queue = SqsRunQueue(
        stack.client("sqs"),
        queues={POOL: stack.info.pools[POOL].queue_url},
        executor=ThreadPoolExecutor(1),
    )

    def work(roots: Mapping[str, str], runs: int) -> Tally:
        keys = [RunKey(JobKey(stack.tenant, n), run_id(uid, now)) for n, uid in roots.items()]
        queue.send([(POOL, RunMessage.of(key, 1, now)) for key in keys])
        meter.take()
        done, until = outcomes.succeeded + runs, time.monotonic() + _MOST.total_seconds()
        while outcomes.succeeded < done and time.monotonic() < until:
            received = inbox.receive(10, wait=timedelta(seconds=1), hidden_for=settings.lease)
            batch.carry_out(received, stopping=lambda: False)
            if received:
                inbox.acknowledge(received)
        if outcomes.succeeded != done:
            raise RuntimeError(f"{done - outcomes.succeeded} runs did not succeed")
        return meter.take()

    return work
