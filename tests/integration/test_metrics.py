"""Alarms and the dashboard use the metrics that the functions emit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from functions.auditor import handler as auditor
from functions.watcher import handler as watcher
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.domain.due import Slot
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import cut, floor_minute
from nextfire.domain.message import RunMessage
from nextfire.domain.metrics import NAMESPACE, OF_GROUPS, Metric
from nextfire.settings import ExecutorSettings
from nextfire.usecases.dispatch.report import Dispatched, TickReport
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.message_batch import MessageBatch
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.telemetry import Telemetry, WorkerTelemetry
from tests.builders import SKIP, a_fire, a_retry, claim_run, run_key
from tests.infra.conftest import Template, synthesize
from tests.integration.deployment import LIMIT, SHARDS, Context, Deployment, message_for

Series = tuple[str, frozenset[tuple[str, str]]]
"""A metric of our namespace: its name and its dimensions."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    pools = {"default": {"executor": "lambda"}, "long-jobs": {"executor": "worker"}}
    file: Path = synthesize(tmp_path_factory.mktemp("metrics"), {"pools": pools})[3]
    loaded: Template = json.loads(file.read_text())
    return loaded


def of_type(template: Template, kind: str) -> list[dict[str, Any]]:
    resources = template["Resources"].values()
    return [r["Properties"] for r in resources if r["Type"] == f"AWS::CloudWatch::{kind}"]


def alarmed(template: Template) -> set[Series]:
    alarms = of_type(template, "Alarm")
    single = [alarm for alarm in alarms if "Metrics" not in alarm]
    of_expressions = [
        metric["MetricStat"]["Metric"]
        for alarm in alarms
        for metric in alarm.get("Metrics", [])
        if "MetricStat" in metric
    ]
    return {
        (
            metric["MetricName"],
            frozenset((d["Name"], d["Value"]) for d in metric.get("Dimensions", [])),
        )
        for metric in [*single, *of_expressions]
        if metric["Namespace"] == NAMESPACE
    }


def drawn(template: Template) -> set[Series]:
    [dashboard] = of_type(template, "Dashboard")
    body = dashboard["DashboardBody"]
    if isinstance(body, dict):
        _, parts = body["Fn::Join"]
        body = "".join(part if isinstance(part, str) else "X" for part in parts)
    found: set[Series] = set()
    for widget in json.loads(body)["widgets"]:
        for namespace, name, *rest in widget["properties"].get("metrics", []):
            dimensions = [part for part in rest if isinstance(part, str)]
            if namespace == NAMESPACE:
                pairs = zip(dimensions[::2], dimensions[1::2], strict=True)
                found.add((name, frozenset(pairs)))
    return found


def emitted(output: str) -> Iterator[tuple[Series, str, list[float]]]:
    """Each metric of the EMF lines in *output*, with its unit and values."""
    for line in output.splitlines():
        document = json.loads(line) if '"_aws"' in line else {}
        for directive in document.get("_aws", {}).get("CloudWatchMetrics", []):
            assert directive["Namespace"] == NAMESPACE
            for dimensions in directive["Dimensions"]:
                pairs = frozenset((name, str(document[name])) for name in dimensions)
                for metric in directive["Metrics"]:
                    values = document[metric["Name"]]
                    yield (
                        (metric["Name"], pairs),
                        metric["Unit"],
                        values if isinstance(values, list) else [values],
                    )


def service_of(series: Iterable[Series]) -> dict[str, set[str]]:
    """The names of *series* by their service, the only dimension except for those of groups."""
    found: dict[str, set[str]] = {}
    for name, dimensions in series:
        assert {dimension for dimension, _ in dimensions} == (
            {"service", "group"} if name in OF_GROUPS else {"service"}
        )
        found.setdefault(dict(dimensions)["service"], set()).add(name)
    return found


def watch(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a watcher. It dispatches a run, dispatches a run that was held back, skips one, finds the
    queue of one full, and quarantines a broken entry. An entry of a pool that does not exist keeps
    its group behind.
    """
    pool = {"queueUrl": system.queue_url, "maxTimeout": LIMIT, "maxBacklog": 2}
    system.configure(monkeypatch, pools=json.dumps({"default": pool, "gone": pool}))
    target = {"handler": "report", "pool": "gone"}
    homeless = system.register(schedule="0 0 1 1 *", target=target)
    system.configure(monkeypatch, life="PT2S", pools=json.dumps({"default": pool}))
    job = system.register(schedule="0 0 1 1 *", misfire=SKIP)
    now = cut(SystemClock().now())
    entry = a_fire(job, now)
    missed = a_fire(job, now - timedelta(minutes=2))
    crowd = a_retry(message_for(job, now - timedelta(minutes=3)).key, now)
    before = now - timedelta(minutes=5)
    nowhere = a_retry(message_for(homeless, now).key, before, pool="gone")
    earlier = message_for(job, now - timedelta(minutes=4)).key
    waited = replace(a_retry(earlier, now - timedelta(seconds=1)), held=True)
    system.due.put([entry, missed, crowd, waited], now)
    system.due.put([nowhere], before)
    control = DynamoDbControlStore(system.database, table=system.control_table)
    for shard in range(SHARDS):
        control.move_cursor(shard, floor_minute(before), epoch=1)
    broken = Slot(entry.bucket(now, 1), "0000000000000#broken")
    item: Any = {"bucket": {"S": broken.bucket}, "entry": {"S": broken.sort_key}}
    system.database.put_item(TableName=system.due_table, Item=item)
    assert watcher.handler({"group": 0}, Context()) == {"dispatched": 2}
    system.queues.purge_queue(QueueUrl=system.queue_url)
    system.configure(monkeypatch)


def load(system: Deployment) -> None:
    """Send messages with all outcomes: success, failure, a lost worker, a late start, an
    undecodable body.
    """
    system.upload("", "good")
    system.upload("raise SystemExit(1)", "bad")
    now = floor_minute(SystemClock().now())
    good = system.register(target={"handler": "good"})
    bad = system.register(target={"handler": "bad"})
    brief = system.register(misfire={"relevancyWindowSec": 60})
    lost = message_for(good, now - timedelta(minutes=1))
    claim_run(
        system.runs,
        lost,
        now - timedelta(hours=2),
        lease_until=now - timedelta(hours=1),
        worker="vanished",
    )
    messages: list[RunMessage] = [
        message_for(good, now),
        message_for(bad, now),
        message_for(brief, now - timedelta(minutes=2)),
        lost,
    ]
    for body in [*(message.encode() for message in messages), "rubbish"]:
        system.send(body, group=str(hash(body)), dedup=str(hash(body)))


def work(system: Deployment) -> None:
    """Have a worker handle what `load` sent."""
    settings = ExecutorSettings.read()
    inbox = SqsInbox(system.queues, queue_url=system.queue_url)
    telemetry = WorkerTelemetry()
    batch: MessageBatch[SqsDelivery] = MessageBatch(
        ExecuteRun(executor_ports(settings, telemetry), executor_config(settings, worker="w")),
        telemetry,
    )
    received = inbox.receive(10, wait=timedelta(), hidden_for=settings.lease)
    assert batch.carry_out(received, stopping=lambda: False) == []
    telemetry.flush()


def audit(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an audit that finds a job without an entry, and an item that is not a job."""
    monkeypatch.setattr("nextfire.usecases.audit.RECHECK_AFTER", timedelta())
    job = system.register(schedule="0 0 1 1 *")
    [entry] = [item for item in system.due_items() if item.get("uid") == {"S": job.uid}]
    key = {name: entry[name] for name in ("bucket", "entry")}
    system.database.delete_item(TableName=system.due_table, Key=key)
    item: Any = {"tenant": {"S": "acme"}, "job_id": {"S": "broken"}}
    system.database.put_item(TableName=system.jobs_table, Item=item)
    report = auditor.handler({}, Context())
    assert (report["restored"], report["quarantined"]) == (1, 1)


@pytest.fixture
def lines(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[tuple[Series, str, list[float]]]:
    """The metrics of all functions after every counted event has happened once."""
    capsys.readouterr()
    watch(system, monkeypatch)
    load(system)
    assert system.execute(system.receive()) == set()
    load(system)
    work(system)
    audit(system, monkeypatch)
    for telemetry in (Telemetry("api"), Telemetry("executor"), WorkerTelemetry()):
        telemetry.wake_up_lost(UnavailableError("Lambda is throttled"))
        telemetry.flush()
    return list(emitted(capsys.readouterr().out))


def test_what_is_watched_is_emitted_and_what_is_emitted_is_watched(
    template: Template, lines: list[tuple[Series, str, list[float]]]
) -> None:
    watched = alarmed(template) | drawn(template)
    assert alarmed(template)
    assert drawn(template)

    assert service_of(watched) == service_of(series for series, _, _ in lines)


def test_every_metric_is_emitted(lines: list[tuple[Series, str, list[float]]]) -> None:
    assert {name for (name, _), _, _ in lines} == {metric.value for metric in Metric}


def test_numbers_and_units_are_as_the_alarms_read_them(
    lines: list[tuple[Series, str, list[float]]],
) -> None:
    totals: dict[str, dict[str, float]] = {}
    for (name, dimensions), unit, values in lines:
        durations = {Metric.DISPATCH_LATENESS, Metric.HELD_BACK_FOR, Metric.BEHIND}
        assert unit == ("Milliseconds" if name in durations else "Count")
        of_service = totals.setdefault(dict(dimensions)["service"], {})
        of_service[name] = of_service.get(name, 0) + sum(values)

    attempts = {"Started": 3, "Succeeded": 2, "Failed": 1, "Lost": 1}
    others = {"Skipped": 1, "Quarantined": 1, "WakeUpsLost": 1}
    assert totals["executor"] == totals["worker"] == attempts | others
    assert totals["api"] == {"WakeUpsLost": 1}
    counted = {name: totals["watcher"][name] for name in ("Dispatched", "Skipped", "Quarantined")}
    assert counted == {"Dispatched": 2, "Skipped": 1, "Quarantined": 1}
    assert totals["any"] == {"Defects": 5}, "each service's Quarantined, and the Repaired"
    assert totals["auditor"]["Audited"] >= 1
    assert (totals["auditor"]["Repaired"], totals["auditor"]["Quarantined"]) == (1, 1)
    assert totals["watcher"]["HeldBack"] >= 1
    assert totals["watcher"]["Ticks"] >= 2
    assert totals["watcher"]["Behind"] >= 5 * 60_000
    assert totals["watcher"]["DueBacklog"] >= 1
    assert totals["watcher"]["DispatchLateness"] >= 0


def test_held_back_runs_are_counted_separately(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = Telemetry("watcher")
    late = [(timedelta(milliseconds=n), n > 100) for n in (7, 60_000, 8, 3_600_000)]
    runs = [Dispatched(run_key(), lateness, "due", held) for lateness, held in late]

    telemetry.tick(TickReport(dispatched=runs))
    telemetry.flush()

    found = {name: values for (name, _), _, values in emitted(capsys.readouterr().out)}
    assert found["DispatchLateness"] == [7, 8]
    assert found["HeldBackFor"] == [60_000, 3_600_000]


def test_what_a_hundred_runs_and_more_emit(capsys: pytest.CaptureFixture[str]) -> None:
    """One line holds up to a hundred values; for more, values with the same percentiles."""
    for count in (98, 99, 100, 101, 250, 10_000):
        capsys.readouterr()
        telemetry = Telemetry("watcher")
        late = [timedelta(milliseconds=n) for n in range(count, 0, -1)]
        runs = [Dispatched(run_key(), lateness, "due") for lateness in late]
        telemetry.tick(TickReport(dispatched=runs))
        telemetry.flush()
        lines = capsys.readouterr().out
        found = list(emitted(lines))

        lateness = sorted(v for (name, _), _, vs in found if name == "DispatchLateness" for v in vs)
        assert len(lateness) == min(count, 99)
        assert (lateness[0], lateness[-1]) == (1, count)
        assert abs(lateness[len(lateness) // 2] - count / 2) <= count / 98 + 1
        assert sum(v for (name, _), _, vs in found if name == "Dispatched" for v in vs) == count
        assert service_of(series for series, _, _ in found).keys() == {"watcher"}
        assert len(lines.splitlines()) == 1
