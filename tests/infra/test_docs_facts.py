"""Facts in the documentation are those of the code: routes, fields, settings, policies, events."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from functions.api.app import app as api
from functions.api.areas import include_all
from functions.api.resolver_parts import routes_of
from infra.pool_settings import PoolSettings
from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.decisions import MAX_OUTSTANDING
from nextfire.domain.definition import JobDefinition
from nextfire.domain.events import execution_dead, message_undecodable
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.misfire import MISFIRE_AFTER
from nextfire.domain.policies import Backoff, RetryPolicy
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.settings import ExecutorSettings
from nextfire.usecases.dispatch.reader import READ_AT_MOST
from nextfire.usecases.dispatch.tick import POLL_EVERY
from nextfire.usecases.watch import ENOUGH
from nextfire_cli.cost.model import Load, PoolKind, bill, monitoring
from nextfire_cli.cost.prices import costs
from nextfire_cli.flags import FLAGS
from tests.builders import NOON
from tests.infra.pages import (
    API,
    CODE,
    EVENTS,
    POLICIES,
    README,
    ROOT,
    RUNS,
    SCRIPTS,
    SETTINGS,
    Row,
    code,
    tables,
)
from tests.world import World

SCHEDULES = ROOT / "docs" / "guide" / "schedules.md"


def table(page: Path, *columns: str) -> list[Row]:
    """The rows of all tables of *page* with these columns."""
    found = [row for rows in tables(page) for row in rows if set(columns) == set(row)]
    assert found, f"{page.name} has no table of {columns}"
    return found


def test_the_reference_of_settings_explains_every_key() -> None:
    for row in table(SETTINGS, "key", "value", "default", "meaning"):
        assert row["meaning"], row["key"]


def test_the_guide_has_each_schedule_type_with_its_flag() -> None:
    rows = table(SCHEDULES, "type", "flag", "`schedule`", "occurrences", "example")
    flags = {flag.type: f"`{flag.name}`" for flag in FLAGS if flag.type}

    assert [row["type"] for row in rows] == [each.value for each in ScheduleType]
    for row in rows:
        named = row["flag"].partition(",")[0]
        assert flags.get(ScheduleType(row["type"]), named) == named, row["type"]


def test_routes_are_those_of_the_api() -> None:
    include_all()
    routes = {
        f"{route.method} {re.sub(r'<(.+?)>', lambda name: braced(name[1]), route.path)}"
        for route in routes_of(api)
    }

    documented = {code(row["route"]) for row in table(API, "route", "response", "notes")}
    assert documented == routes, "the table of routes in docs/reference/api.md is written by hand"


def braced(name: str) -> str:
    head, *tail = name.split("_")
    return "{" + head + "".join(part.capitalize() for part in tail) + "}"


def test_fields_of_the_policies_have_their_defaults_and_bounds() -> None:
    fields = dict(leaves(JobDefinition))
    rows = table(POLICIES, "field", "values", "default")

    assert {code(row["field"]) for row in rows} >= {"misfire.policy", "overlap", "priority"}
    for row in rows:
        field = fields[code(row["field"])]
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Enum):
            assert code(row["default"]) == default.value
            assert row["values"].split(", ") == [each.value for each in type(default)]
        else:
            assert row["default"] == "none"
            values = row["values"].replace(",", "")
            assert all(str(limit) in values for limit in limits(field))


def test_numbers_of_the_policies_are_those_of_the_code() -> None:
    text = " ".join(POLICIES.read_text().split())

    for phrase, number in (
        ("more than {} s late", MISFIRE_AFTER // timedelta(seconds=1)),
        ("A tick is {} s", POLL_EVERY.total_seconds()),
        ("2 s while {:,} entries", ENOUGH),
        ("At most {} runs of a job are outstanding", MAX_OUTSTANDING),
        ("the {:,} earliest of each shard", READ_AT_MOST),
        ("`maxBacklog` messages, {:,} unless", PoolSettings(executor="lambda").max_backlog),
    ):
        assert phrase.format(number) in text, phrase


def test_the_outage_of_the_policies_is_as_documented() -> None:
    rows = table(
        POLICIES, "`policy`", "`relevancyWindowSec`", "skipped, one record each", "dispatched"
    )

    assert len(rows) == 6
    for row in rows:
        misfire: dict[str, Any] = {"policy": row["`policy`"]}
        if row["`relevancyWindowSec`"] != "none":
            misfire["relevancyWindowSec"] = int(row["`relevancyWindowSec`"])
        skipped, dispatched = outage(misfire)
        assert row["skipped, one record each"] == (", ".join(skipped) or "none")
        assert row["dispatched"] == (", ".join(dispatched) or "none")


def outage(misfire: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a watcher that was away from 06:10 to 12:10 does with a job that is due each hour."""
    world = World("06:05")
    world.register(schedule="0 * * * *", misfire=misfire)
    world.tick_at("06:10")
    world.at("12:10")
    watcher = world.new_watcher()
    skipped: list[str] = []
    dispatched: list[str] = []
    for _ in range(20):
        report = watcher.poll(world.now)
        while watcher.next_at is not None and watcher.next_at <= world.now:
            report += watcher.release(world.now)
        for record in [*report.skipped, *missed(world)]:
            first, last = record.key.scheduled_at, record.covers_until
            until = f" to {last:%H:%M}" if last > first else ""
            skipped.append(f"{first:%H:%M}{until}")
        now = f"{world.now:%H:%M:%S.%f}"[: len("12:10:00.0")]
        for _ in report.dispatched:
            dispatched.append(f"{world.sent[len(dispatched)].split()[1]} at {now}")
        world.advance(seconds=0.5)
    return skipped, dispatched


def missed(world: World) -> list[Run]:
    """The records that an executor writes when it handles the queued messages."""
    return [record for handled in world.worker().work() for record in handled.missed]


def test_the_short_outage_of_the_policies_is_as_documented() -> None:
    rows = table(POLICIES, "policy", "skipped, one record", "runs, one each tick")

    assert len(rows) == 2
    for row in rows:
        world = World("06:00")
        world.register(type="INTERVAL", schedule="PT5S", misfire={"policy": row["policy"]})
        world.at("06:02:47")
        back_at, watcher = world.now, world.new_watcher()
        skipped: list[tuple[datetime, datetime, int]] = []
        for _ in range(20):
            report = watcher.poll(world.now)
            while watcher.next_at is not None and watcher.next_at <= world.now:
                report += watcher.release(world.now)
            records = [*report.skipped, *missed(world)]
            skipped += [(r.key.scheduled_at, r.covers_until, r.covered) for r in records]
            assert len(report.dispatched) <= 1
            world.advance(seconds=0.5)
        [(first, last, count)] = skipped
        until = f"{back_at:%H:%M:%S}"
        ran = [text for text in (sent.split()[1] for sent in world.sent) if text <= until]

        assert row["skipped, one record"] == f"{first:%T} to {last:%T}, {count} occurrences"
        span = ran[0] if len(ran) == 1 else f"{ran[0]} to {ran[-1]}"
        plural = "" if len(ran) == 1 else "s"
        assert row["runs, one each tick"] == f"{span}, {len(ran)} occurrence{plural}"


def test_misfire_and_overlap_of_the_policies_go_together_as_documented() -> None:
    hours = [f"{hour:02}" for hour in range(7, 13)]
    expected = {
        "all run": hours,
        "only the oldest runs": hours[:1],
        "only the newest runs": hours[-1:],
        "the latest runs": hours[-1:],
        "none runs": [],
    }
    columns = ("ALLOW", "QUEUE", "SKIP", "REPLACE")

    for row in table(POLICIES, "misfire", *columns):
        for overlap in columns:
            world = World("06:05")
            world.register(misfire={"policy": row["misfire"]}, overlap=overlap)
            world.tick_at("06:10")
            world.at("12:10")
            world.new_watcher()
            for _ in range(20):
                world.tick()
                world.worker().work()
                world.advance(seconds=0.5)
            ran = sorted(
                f"{run.key.scheduled_at:%H}" for run in world.runs.all.values() if run.attempt
            )
            assert ran == expected[re.split("[,:]", row[overlap])[0]], (row["misfire"], overlap)


def test_the_delays_of_runs_are_those_of_the_policy() -> None:
    rows = table(RUNS, "after attempt", *Backoff)

    for row in rows:
        for backoff in Backoff:
            policy = RetryPolicy(
                max_attempts=12,
                backoff=backoff,
                initial_delay_ms=30_000,
                max_delay_ms=6 * 3_600_000,
            )
            amounts = re.findall(r"(\d+) (h|min|s)", row[backoff])
            documented = sum(int(n) * {"h": 3600, "min": 60, "s": 1}[unit] for n, unit in amounts)
            assert policy.delay(int(row["after attempt"])).total_seconds() == documented, row


def test_fields_of_an_event_are_those_in_the_docs() -> None:
    run = Run(
        RunKey(JobKey("acme", "nightly"), run_id("uid00001", NOON)),
        RunState.DEAD,
        attempt=1,
        pool="default",
        exit_code=1,
        reason="exit code 1",
        finished_at=NOON,
        attempts=(Attempt(1, "w", NOON, NOON, AttemptOutcome.FAILED),),
    )
    published = [execution_dead(run, NOON), message_undecodable("{", "why", "default", NOON)]
    named = [[code(row["field"]) for row in rows] for rows in tables(EVENTS) if "field" in rows[0]]

    assert named == [[*event.detail] for event in published]
    text = EVENTS.read_text()
    assert all(f"## {event.kind}\n" in text for event in published)


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{path}.")
        else:
            yield path, field


def limits(field: FieldInfo) -> list[int]:
    """The numbers that bound a field; for an optional field, those of its value."""
    metadata = list(field.metadata)
    for argument in get_args(field.annotation):
        for nested in getattr(argument, "__metadata__", ()):
            metadata += getattr(nested, "metadata", [])
    names = ("ge", "le", "min_length", "max_length")
    return [limit for item in metadata for name in names if (limit := getattr(item, name, None))]


def test_variables_of_a_worker_are_those_it_reads() -> None:
    for row in table(SETTINGS, "variable", "meaning", "unit", "default"):
        field = ExecutorSettings.model_fields[
            code(row["variable"]).removeprefix("NEXTFIRE_").lower()
        ]
        assert row["default"] == str(field.default)
        bounds = row["unit"].replace(",", "")
        assert all(str(limit) in bounds for limit in limits(field)), row


def test_variables_of_a_script_are_those_it_gets() -> None:
    source = (ROOT / "layers" / "nextfire" / "targets" / "script" / "runner.py").read_text()
    [rows] = [rows for rows in tables(SCRIPTS) if "it gets" in rows[0]]
    named = {name for row in rows for name in CODE.findall(row["it gets"])}

    given = set(re.findall(r'"(NEXTFIRE_\w+)"', source))
    assert {name for name in named if name.startswith("NEXTFIRE_")} == given


def test_the_cost_of_an_idle_month_is_that_of_the_command() -> None:
    """To a dime: the command has rounded usage, `make bench NAME=cost` measures it."""
    month = bill(Load(0, 0)).usd
    shown = sum(cost.usd for cost in costs(monitoring(busy=False)))
    page = (ROOT / "docs" / "operate" / "cost.md").read_text()

    assert f"| {month:.1f} USD; " in README.read_text()
    assert f"A stack without runs costs {month:.1f} USD a month: {month - shown:.1f} for" in page


def test_the_cost_of_a_million_runs_is_that_of_the_command() -> None:
    page = (ROOT / "docs" / "operate" / "cost.md").read_text()
    pools: tuple[PoolKind, ...] = ("lambda", "fargate")
    slow, fast = (
        [Load(rate * 3_600, rate * 86_400, pool) for pool in pools] for rate in (10, 1_000)
    )
    small = replace(slow[1], task_cpu=256, task_memory=1024)

    for load in (*slow, small, *fast):
        kinds = load, replace(load, recovery=False, batch_size=10), replace(load, steady=True)
        assert " | ".join(f"{bill(each).per_million:.2f}" for each in kinds) in page
    figures = ", ".join(f"{bill(load).per_million:.2f} USD" for load in fast)
    assert figures in README.read_text()
