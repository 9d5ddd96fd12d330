"""The monthly cost of an idle deployment, and the memory of its watcher."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from benchmarks.idle import idle_hour
from benchmarks.report import Result, progress, tell
from benchmarks.stack import POOL, Stack, wait_until
from benchmarks.stack import stack as running_stack
from infra.settings import Settings
from nextfire_cli.cost.prices import HOURS_PER_MONTH, Usage, costs
from nextfire_cli.cost.usage import WatchUsage

BOUND_USD = 2.5
BURST = 5_000
_HOUR = timedelta(hours=1)
_MIB_PER_GIB = 1024


def measure() -> Result:
    """Count the calls of a simulated hour of a watcher group without jobs, then measure the memory
    of real watchers.
    """
    result = Result()
    settings = Settings()
    with running_stack(watcher=False) as stack:
        auditor_s = _auditor_seconds(stack)
        idle_mib, burst_mib = _memory(stack)
        stack.become_watcher()
        used = idle_hour(settings.life)
        alarms = len(stack.client("cloudwatch").describe_alarms()["MetricAlarms"])
    _price(result, settings, used, alarms, auditor_s)
    result.values |= {
        "read_units_per_hour": used.read_units,
        "write_units_per_hour": used.write_units,
        "watcher_seconds_per_hour": round(used.seconds, 1),
        "watcher_idle_mib": round(idle_mib, 1),
        "watcher_burst_mib": round(burst_mib, 1),
    }
    result.say(
        "watcher's memory, idle / burst",
        f"{idle_mib:.0f} / {burst_mib:.0f} MiB of {settings.watcher_memory}",
    )
    result.notes.append(
        f"The hour: {used.calls}; {used.read_units:,.1f} read units, {used.write_units:,.0f} write "
        f"units. {settings.read_shards} shards, {settings.groups} group, {used.invocations} "
        f"invocations of {used.seconds:,.0f} s together. A simulated clock and real stores; every "
        "call is "
        "counted. Read units are computed from the answers, as in the units benchmark."
    )
    result.notes.append(
        "Memory: peak resident memory (VmHWM) of a process that runs the watcher's handler with "
        "this "
        f"machine's Python, before and after a burst of {BURST:,} entries that were due at one "
        "instant. The Lambda runtime adds to it."
    )
    result.notes.append(
        f"Auditor: runs every {settings.auditor_wake_every.total_seconds() / 60:g} minutes; an "
        f"invocation with nothing to do took {auditor_s:.2f} s here. Its few read units are not "
        "counted."
    )
    result.notes.append(
        "Not included: the polls of a Lambda executor's event source (AWS does not document their "
        "number), storage, and what depends on usage. The alarms are those of the local stack, "
        "which has "
        "one more pool than the default on AWS."
    )
    return result


def _auditor_seconds(stack: Stack) -> float:
    """Seconds that a warm auditor takes when it has nothing to do."""
    took = 0.0
    for _ in range(2):  # the first starts a process and the day's audit, of no jobs
        began = time.perf_counter()
        answer = stack.client("lambda").invoke(
            FunctionName=stack.info.functions["auditor"], Payload=b"{}"
        )
        took = time.perf_counter() - began
        if "FunctionError" in answer:
            raise RuntimeError(f"the auditor failed: {answer['Payload'].read()!r}")
    return took


def _memory(stack: Stack) -> tuple[float, float]:
    """Peak memory of a real watcher process in MiB: idle, and after a burst of `BURST` entries."""
    registrar = stack.registrar()
    due_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20 + BURST / 200)
    document = {"type": "INTERVAL", "schedule": "P1D", "startAt": due_at.isoformat()}
    with ThreadPoolExecutor(4) as threads:
        added = threads.map(
            lambda number: registrar.register(f"burst-{number}", document, datetime.now(UTC)),
            range(BURST),
        )
        for _ in progress(added, f"{BURST:,} jobs that are due together", total=BURST):
            pass
    left = (due_at - datetime.now(UTC)).total_seconds()
    if left < 12:  # noqa: PLR2004 — the watcher must be idle first
        raise RuntimeError("this machine is too slow to store the burst before it is due")
    tell(f"starting a real watcher, {left:.0f} s before the burst")
    time.sleep(left - 12)
    watcher = stack.spawn(
        "benchmarks.invoke",
        name="watcher",
        environment={**stack.watcher_environment(), "NEXTFIRE_LIFE": "PT10M"},
    )
    time.sleep(9)
    idle = watcher.peak_memory()
    queue = stack.info.pools[POOL].queue_url

    def all_sent() -> bool:
        attributes = stack.client("sqs").get_queue_attributes(
            QueueUrl=queue, AttributeNames=["ApproximateNumberOfMessages"]
        )["Attributes"]
        return int(attributes["ApproximateNumberOfMessages"]) >= BURST

    wait_until(all_sent, most=timedelta(minutes=3), what="the burst to be sent")
    time.sleep(2)
    burst = watcher.peak_memory()
    stack.end(watcher)
    stack.client("sqs").purge_queue(QueueUrl=queue)
    return idle, burst


def _price(
    result: Result,
    settings: Settings,
    used: WatchUsage,
    alarms: int,
    auditor_s: float,
) -> None:
    gib = settings.watcher_memory / _MIB_PER_GIB
    month = HOURS_PER_MONTH
    gb_s = used.seconds * gib * month * settings.groups
    audits = month * (_HOUR / settings.auditor_wake_every)
    auditor_gb_s = audits * auditor_s * settings.auditor_memory / _MIB_PER_GIB
    core = [
        Usage(f"watcher, {settings.watcher_memory} MiB", "GB-s on arm64", gb_s),
        Usage(
            "watcher's invocations", "Lambda requests", used.invocations * month * settings.groups
        ),
        Usage("polls, lease checks", "read units", used.read_units * month),
        Usage("lease renewals, cursors", "write units", used.write_units * month),
        Usage("the watcher's queue requests", "SQS FIFO requests", used.queue_requests * month),
        Usage(f"auditor, {settings.auditor_memory} MiB", "GB-s on arm64", auditor_gb_s),
        Usage("auditor's invocations", "Lambda requests", audits),
        Usage("EventBridge rules", "scheduled rule invocations", used.invocations * month + audits),
    ]
    extra = [
        Usage("alarms", "alarms", float(alarms)),
        Usage("dashboard", "dashboards", 1.0),
        Usage("metrics of an idle system", "custom metrics", 1.0),
        Usage("logs of these metrics", "GB of logs", used.log_bytes * month / 1e9),
    ]
    priced = costs(core + extra)
    for cost in priced:
        result.say(f"{cost.what}: {cost.amount:,.4g} {cost.unit}", f"${cost.usd:.2f}")
    total = sum(cost.usd for cost in priced[: len(core)])
    result.add("usd_per_month", "per month, without free tier", total, most=BOUND_USD, unit="USD")
    free = sum(cost.usd_with_free_tier for cost in priced[: len(core)])
    result.add("usd_per_month_with_free_tier", "per month, with free tier", free, unit="USD")
    monitoring = sum(cost.usd for cost in priced[len(core) :])
    result.add("usd_monitoring", "in addition: alarms, dashboard, logs", monitoring, unit="USD")
    monitoring = sum(cost.usd_with_free_tier for cost in priced[len(core) :])
    result.add(
        "usd_monitoring_with_free_tier", "in addition, with free tier", monitoring, unit="USD"
    )
    [x86] = costs([Usage("watcher", "GB-s on x86_64", gb_s)])
    result.notes.append(
        f"On x86_64 the watcher would cost ${x86.usd:.2f}. It is deployed on arm64."
    )
