"""The whole cost of a recurring run, and of an idle stack: measured usage at list prices."""

from __future__ import annotations

from dataclasses import asdict, replace

from benchmarks.idle import idle_hour
from benchmarks.report import Result
from benchmarks.run_usage import measure_runs
from benchmarks.stack import stack as running_stack
from infra.settings import Settings
from nextfire_cli.cost import model
from nextfire_cli.cost import usage as stated
from nextfire_cli.cost.model import Bill, Load, PoolKind, bill
from nextfire_cli.cost.prices import PRICED_ON, REGION, costs
from nextfire_cli.cost.usage import RunUsage, WatchUsage

RATES = (10, 1_000)
BOUNDS: dict[PoolKind, float] = {"lambda": 5.0, "fargate": 4.0}
BOUND_IDLE = 2.5
BOUND_IDLE_WATCHED = 5.0
SMALL_CPU, SMALL_MEMORY = 256, 1024
"""A task that carries 10 runs per second."""
_RUNS_PER_JOB = 24
_DAY = 86_400
_TOLERANCE = 0.2


def measure() -> Result:
    """Measure what runs and an hour without runs use; price a month of each load."""
    result = Result()
    with running_stack(watcher=False) as stack:
        runs = measure_runs(stack)
        stack.become_watcher()
        asleep = idle_hour(Settings().life)
        stack.become_watcher()
        awake = idle_hour(Settings().life, sleeps=False)
    for pool, bound in BOUNDS.items():
        for rate in RATES:
            _add_runs(result, runs[pool], pool, rate, bound)
    _add_idle(result, asleep)
    for name, found, ours in (
        ("a run on Lambda", runs["lambda"], stated.RUNS["lambda"]),
        ("a run on a worker", runs["fargate"], stated.RUNS["fargate"]),
        ("an idle hour", asleep, stated.ASLEEP),
        ("an hour of awake watchers", awake, stated.AWAKE),
    ):
        result.notes.append(f"Measured, {name}: {found}")
        _compare(result, name, found, ours)
    result.notes.append(
        f"Prices of {REGION}, {PRICED_ON}, without free tier. Assumed and not measured: "
        f"{model.REQUEST_SECONDS * 1000:g} ms for a request to AWS, no lines of Lambda itself, "
        f"{model.LAMBDA_CORE_MIB} MiB for a core, polls of event "
        f"sources, tasks whose CPU is used at {model.TASK_LOAD:.0%}. Ten runs are due together, "
        "and all run one script: with a script for each job, S3 requests cost up to "
        "0.40 USD more. The figures count all but the scripts' own time."
    )
    return result


def _add_runs(result: Result, usage: RunUsage, pool: PoolKind, rate: int, bound: float) -> None:
    load = Load(rate * _DAY // _RUNS_PER_JOB, rate * _DAY, pool, measured=usage)
    month = bill(load)
    key = f"usd_per_million_{pool}" + ("" if rate == RATES[0] else f"_at_{rate}")
    result.add(
        key, f"{pool}: a million runs at {rate:,}/s", month.per_million, most=bound, unit="USD"
    )
    _say_items(result, month)
    starts = month.usd_scripts / month.runs * 1e6
    result.say("  not included: scripts: start of their interpreters", f"${starts:.2f}")
    steady = replace(load, steady=True)
    if pool == "fargate" and rate == RATES[0]:
        steady = replace(steady, task_cpu=SMALL_CPU, task_memory=SMALL_MEMORY)
    what = f"…steady: {steady.due_capacity}"
    what += f", a task of {steady.task_cpu} / {steady.task_memory}" if pool == "fargate" else ""
    result.add(f"{key}_steady", what, bill(steady).per_million, most=bound, unit="USD")
    lean = bill(replace(load, recovery=False, batch_size=10))
    what = "…without runsRecovery" + (", batchSize 10, full batches" if pool == "lambda" else "")
    result.add(f"{key}_lean", what, lean.per_million, unit="USD")


def _say_items(result: Result, month: Bill) -> None:
    for cost in sorted(month.scheduler, key=lambda cost: -cost.usd)[:8]:
        result.say(f"  {cost.what}", f"${cost.usd / month.runs * 1e6:.2f}")


def _add_idle(result: Result, asleep: WatchUsage) -> None:
    core = costs([*model.watchers(asleep), *model.auditor(Load(0, 0)), *model.idle_polls()])
    for cost in core:
        result.say(f"  {cost.what}: {cost.amount:,.4g} {cost.unit}", f"${cost.usd:.2f}")
    idle = sum(cost.usd for cost in core)
    result.add("usd_per_month_idle", "an idle month", idle, most=BOUND_IDLE, unit="USD")
    shown = sum(cost.usd for cost in costs(model.monitoring(busy=False)))
    result.add(
        "usd_per_month_idle_monitoring",
        "in addition: alarms, dashboard, metrics",
        shown,
        most=BOUND_IDLE_WATCHED,
        unit="USD",
    )


def _compare(
    result: Result, name: str, found: RunUsage | WatchUsage, ours: RunUsage | WatchUsage
) -> None:
    """Note where `nextfire cost` uses other figures than those just measured."""
    measured = asdict(found)
    for key, value in asdict(ours).items():
        if key != "calls" and abs(measured[key] - value) > _TOLERANCE * max(abs(value), 0.01):
            result.notes.append(
                f"`nextfire cost` assumes {key} {value:g} of {name}, not {measured[key]:g}"
            )
