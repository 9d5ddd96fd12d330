"""The lateness of sent and started runs at 50 runs per second, and of scripts at 10 per second."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from benchmarks.figures import percentile
from benchmarks.load import Load, Planned, dates, interval, once
from benchmarks.report import Result, tell
from benchmarks.stack import POOL, Stack, wait_until
from benchmarks.stack import stack as running_stack
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.run import RunState

SECONDS = 60
PER_SECOND = 50
BOUND_P50 = 0.1
BOUND_P99 = 1.0
_EVERY = 5  # seconds between the runs of an INTERVAL job
SCRIPTS = 300
SCRIPTS_PER_SECOND = 10
_LINE = b"import time; print(time.time())"


def measure() -> Result:
    """The deployed watcher dispatches; one worker process executes."""
    result = Result()
    with running_stack(watcher=True) as stack:
        first_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30)
        load = Load(stack, plan(first_at))
        load.store()
        consumer = load.consume()
        left = (first_at - datetime.now(UTC)).total_seconds()
        if left < 2:  # noqa: PLR2004 — the consumer has to start first
            raise RuntimeError("this machine is too slow to store the load before it is due")
        time.sleep(left)
        tell(f"sending {PER_SECOND} runs/s for {SECONDS} s")
        time.sleep(SECONDS)
        load.await_all(most=timedelta(minutes=2))
        found = load.account()
        stack.end(consumer)
        scripts_late = _scripts(stack)
    result.add("runs", "runs", len(load.expected))
    for what, lateness, bounds in (
        ("dispatch", found.dispatch_lateness, {50: BOUND_P50, 99: BOUND_P99}),
        ("start", found.start_lateness, {}),
    ):
        late = [lateness[occurrence] for occurrence in load.expected if occurrence in lateness]
        label = {"dispatch": "due → accepted by the queue", "start": "due → started"}[what]
        for percent in (50, 95, 99):
            result.add(
                f"{what}_p{percent}_s",
                f"{label}, p{percent}",
                percentile(late, percent),
                most=bounds.get(percent),
                unit="s",
            )
        result.add(f"{what}_max_s", f"{label}, max", max(late), unit="s")
    for percent in (50, 95, 99):
        result.add(
            f"script_p{percent}_s",
            f"due → first line of a script in a process, p{percent}",
            percentile(scripts_late, percent),
            unit="s",
        )
    result.add(
        "script_max_s",
        "due → first line of a script in a process, max",
        max(scripts_late),
        unit="s",
    )
    for key in ("lost", "duplicated", "unfinished", "sent_twice", "unexpected"):
        result.add(key, key.replace("_", " "), len(getattr(found, key)), most=0)
    if found.lost or found.duplicated or found.unfinished:
        result.notes.append("NOT ALL RUNS ARE ACCOUNTED FOR: see lost, duplicated, unfinished.")
    result.notes.append(
        f"{PER_SECOND} runs/s for {SECONDS} s: 3/5 of ONCE, 1/5 of DATES, 1/5 of INTERVAL jobs. "
        "The watcher is the deployed Lambda function. One worker process with 16 slots claims and "
        "finishes the runs, with scripts that end immediately. Accepted: SentTimestamp of SQS. "
        "Then "
        f"{SCRIPTS} ONCE jobs, {SCRIPTS_PER_SECOND} per second, whose scripts print the time, in a "
        "real worker with 16 slots. The emulator answers a long poll at most 0.1 s late."
    )
    return result


def _scripts(stack: Stack) -> list[float]:
    """Seconds from the due time of each of `SCRIPTS` runs to the first line of its script."""
    stack.push_script("line", _LINE)
    worker = stack.spawn(
        "functions.worker",
        name="scripts",
        environment={
            **stack.worker_environment(),
            "NEXTFIRE_SLOTS": "16",
            "POWERTOOLS_LOG_LEVEL": "WARNING",
        },
    )
    tell(f"running {SCRIPTS} scripts, {SCRIPTS_PER_SECOND} per second")
    first_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=30)
    due_at = [first_at + timedelta(seconds=n / SCRIPTS_PER_SECOND) for n in range(SCRIPTS)]
    registrar = stack.registrar()

    def store(number: int) -> RunKey:
        at = due_at[number]
        document = {
            "type": "ONCE",
            "schedule": isoformat(at),
            "target": {"pool": POOL, "handler": "line"},
        }
        job = registrar.register(f"line-{number}", document, datetime.now(UTC))
        return job.run_key(at)

    with ThreadPoolExecutor(4) as threads:
        keys = list(threads.map(store, range(SCRIPTS)))
    if datetime.now(UTC) > first_at - timedelta(seconds=2):
        raise RuntimeError("this machine is too slow to store the scripts before they are due")
    runs, late = stack.run_store(), []
    for key, at in zip(reversed(keys), reversed(due_at), strict=True):

        def over(key: RunKey = key) -> bool:
            run = runs.get(key)
            return run is not None and run.state is RunState.SUCCEEDED

        wait_until(over, most=timedelta(minutes=3), what=f"{key}; see {worker.log}")
        run = runs.get(key)
        late.append(float((run and run.stdout) or "nan") - at.timestamp())
    return late


def plan(first_at: datetime) -> list[Planned]:
    """A run every 1/`PER_SECOND` s, starting at *first_at*."""
    total = SECONDS * PER_SECOND
    at = [first_at + timedelta(seconds=n / PER_SECOND) for n in range(total)]
    half = total // 2
    jobs: list[Planned] = []
    for n in range(total):
        match n % 5:
            case 0 if n < _EVERY * PER_SECOND:
                jobs.append(interval(f"interval-{n}", at[n], _EVERY, SECONDS // _EVERY))
            case 1 if n < half:
                jobs.append(dates(f"dates-{n}", [at[n], at[n + half]]))
            case 2 | 3 | 4:
                jobs.append(once(f"once-{n}", at[n]))
    return jobs
