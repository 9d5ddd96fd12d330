"""What a recurring run costs through dispatch, in DynamoDB units and SQS requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from benchmarks.harness import Meter, SimulatedClock, Stack, Tally, drive, new_watch, next_hour
from benchmarks.harness import stack as running_stack
from benchmarks.report import Result, tell

TOGETHER = 100
_MINUTE = timedelta(minutes=1)
_HALF = timedelta(seconds=30)
_WARM_UP = timedelta(seconds=10)


def measure() -> Result:
    """Two minutes of a holder in simulated time: one idle, one in which runs are due. The
    difference is what the runs cost.
    """
    result = Result()
    with running_stack(watcher=False) as stack:
        stack.become_watcher()
        meter = Meter()
        for runs, prefix, bounds in (
            (TOGETHER, "", (2.0, 1.0, 0.1)),
            (1, "lonely_", (None, None, None)),
        ):
            due_at = next_hour() + timedelta(hours=runs == 1)
            idle, busy = _minutes(stack, meter, due_at, runs)
            _add(result, busy - idle, runs, prefix, bounds)
            _explain(result, f"{runs} due together" if runs > 1 else "1 alone", idle, busy)
    result.notes.append(
        "Through dispatch: the put of the successor, the delete of the entry, the reads of both "
        "and of the job, the message; claim and finish are the executor's. Write units are those "
        "that the answers tell, read units are computed from the items in them. What a minute of "
        "polling costs by itself is taken off."
    )
    return result


def _minutes(stack: Stack, meter: Meter, due_at: datetime, runs: int) -> tuple[Tally, Tally]:
    """The tallies of an idle minute of a lease holder, and of one in the middle of which *runs*
    hourly jobs are due.
    """
    idle_from, busy_from = due_at - _HALF - _MINUTE, due_at - _HALF
    registrar = stack.registrar()
    cron = f"{due_at.minute} {due_at.hour} * * *"
    for number in range(runs):
        document = {"type": "CRON", "schedule": cron}
        registrar.register(f"units-{runs}-{number}", document, due_at - timedelta(hours=1))
    tell(f"two simulated minutes, {runs} due")
    clock = SimulatedClock(idle_from - _WARM_UP)
    watch = new_watch(clock)
    drive([watch], clock, idle_from)
    meter.take()
    drive([watch], clock, busy_from)
    idle = meter.take()
    dispatched = drive([watch], clock, busy_from + _MINUTE)
    busy = meter.take()
    watch.end()
    if dispatched != runs:
        raise RuntimeError(f"{dispatched} runs were dispatched, not {runs}")
    return idle, busy


def _add(
    result: Result, spent: Tally, runs: int, prefix: str, bounds: Sequence[float | None]
) -> None:
    sends = spent.calls["sqs SendMessageBatch"] + spent.calls["sqs SendMessage"]
    together = f"{runs} due together" if runs > 1 else "one alone"
    for what, amount, bound in (
        ("write_units", spent.write_units, bounds[0]),
        ("read_units", spent.read_units, bounds[1]),
        ("sqs_sends", sends, bounds[2]),
    ):
        text = f"{what.replace('_', ' ')} per run, {together}"
        result.add(f"{prefix}{what}_per_run", text, amount / runs, most=bound)


def _explain(result: Result, what: str, idle: Tally, busy: Tally) -> None:
    for name, tally in (("idle minute before", idle), ("minute with them", busy)):
        calls = ", ".join(f"{count} {call.split()[1]}" for call, count in tally.calls.most_common())
        result.notes.append(
            f"{what}, {name}: {tally.write_units:g} write units, {tally.read_units:g} read units; "
            f"{calls}"
        )
