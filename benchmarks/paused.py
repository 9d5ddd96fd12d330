"""Stops a watcher of the local stack for some minutes: when are its runs on time again?"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from benchmarks.failover import Watchers
from benchmarks.figures import Occurrence
from benchmarks.load import Load, Planned
from benchmarks.report import Result, tell
from benchmarks.stack import Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.run import Run

JOBS = 300
POLICIES = ("RUN_LATEST", "RUN_ALL", "SKIP")
MINUTE = timedelta(minutes=1)
BEFORE = timedelta(seconds=30)
STOPPED = timedelta(seconds=210)
AFTER = timedelta(seconds=120)
ON_TIME = timedelta(seconds=1)
WITHIN = 90
"""Maximum seconds from the watcher's continuation until the last late run is sent."""
_SETTLE = timedelta(seconds=5)


def measure() -> Result:
    """Measure this alone, without the model of `overload`."""
    result = Result()
    measure_paused(result)
    return result


def measure_paused(result: Result) -> None:
    """Stop a real watcher process for `STOPPED`; add the outcome of the runs to *result*."""
    with running_stack(watcher=False) as stack:
        first_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30)
        end_at = first_at + BEFORE + STOPPED + AFTER
        load = Load(stack, [_planned(number, first_at, end_at) for number in range(JOBS)])
        load.store()
        load.consume()
        watchers = Watchers(stack)
        watchers.start()
        wait_until(lambda: watchers.holder() is not None, most=4 * _SETTLE, what="a lease holder")
        _sleep_until(first_at + BEFORE)
        holder = watchers.holder()
        assert holder is not None, "no live watcher holds the lease"  # noqa: S101
        tell(f"the watcher is stopped for {STOPPED.total_seconds():.0f} s")
        os.kill(holder.record.pid, signal.SIGSTOP)
        try:
            _sleep_until(first_at + BEFORE + STOPPED)
        finally:
            os.kill(holder.record.pid, signal.SIGCONT)
        resumed_at = datetime.now(UTC)
        tell(f"the watcher continues; observing it for {AFTER.total_seconds():.0f} s")
        _sleep_until(end_at + _SETTLE)
        load.await_empty_queue()
        sent = {each.occurrence: each.accepted_at for each in reversed(load.sent())}
        covered = _covered(stack)
    late = [at for of, at in sent.items() if at >= resumed_at and at - of.at >= ON_TIME]
    recovered = (max(late) - resumed_at).total_seconds() if late else 0.0
    expected = [each for each in load.expected if each.at < end_at - _SETTLE]
    lost = [of for of in expected if of not in sent and not _is_covered(of, covered)]
    both = [of for of in sent if _is_covered(of, covered)]
    result.add(
        "local_recovered_s",
        "local stack: until the last late run",
        recovered,
        most=WITHIN,
        unit="s",
    )
    result.add("local_runs", "local stack: runs sent", len(sent))
    result.add("local_unaccounted", "local stack: neither run nor recorded", len(lost), most=0)
    result.add("local_twice", "local stack: run, and also recorded as skipped", len(both), most=0)
    result.notes.append(
        f"Local stack: {JOBS} INTERVAL jobs of a minute, a third for each misfire policy, spread "
        f"evenly. The watcher process was stopped (SIGSTOP) for {STOPPED.total_seconds():.0f} s. "
        "Recovered: from SIGCONT until the last run was sent a second or more after it was due, "
        f"in the {AFTER.total_seconds():.0f} s of observation."
    )


def _planned(number: int, first_at: datetime, end_at: datetime) -> Planned:
    start_at = first_at + MINUTE * number / JOBS
    times = int((end_at - start_at) / MINUTE) + 1
    document: dict[str, object] = {
        "type": "INTERVAL",
        "schedule": "PT60S",
        "startAt": isoformat(start_at),
        "misfire": {"policy": POLICIES[number % len(POLICIES)]},
    }
    instants = tuple(start_at + MINUTE * n for n in range(times))
    return Planned(_job_id(number), document, instants)


def _job_id(number: int) -> str:
    return f"paused-{number}"


def _covered(stack: Stack) -> dict[str, list[Run]]:
    """The range records of each job."""
    runs = stack.run_store()
    found: dict[str, list[Run]] = defaultdict(list)

    def of_job(number: int) -> Sequence[Run]:
        page = runs.list(JobKey(stack.tenant, _job_id(number)), cursor=None, limit=100)
        return [run for run in page.items if run.state == "SKIPPED"]

    with ThreadPoolExecutor(4) as threads:
        for number, ranges in enumerate(threads.map(of_job, range(JOBS))):
            found[_job_id(number)] += ranges
    return found


def _is_covered(of: Occurrence, covered: dict[str, list[Run]]) -> bool:
    return any(run.key.scheduled_at <= of.at <= run.covers_until for run in covered[of.job_id])


def _sleep_until(at: datetime) -> None:
    time.sleep(max((at - datetime.now(UTC)).total_seconds(), 0))
