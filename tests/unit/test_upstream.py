"""What a target is passed about the runs of its parents, and what that costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, cast

import pytest

from nextfire.domain import attempt
from nextfire.domain.attempt import Value
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import MOMENT
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.testing import Stack
from nextfire.usecases import read_upstream as module
from tests.builders import UID, at, run_key
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World

PARENT = {"type": "MANUAL", "target": {"handler": "extract"}}
AFTER: dict[str, Any] = {"type": "AFTER", "after": [{"job": "extract"}]}
RESULT = {"rows": [0] * 100}
URL = "https://api.example.com/"


@pytest.fixture
def stack() -> Iterator[Stack]:
    with Stack() as stack:
        stack.script("extract", lambda _: RESULT)
        stack.put("extract", PARENT)
        yield stack


def run(stack: Stack) -> None:
    stack.client.run_job("extract")
    stack.advance(minutes=1)


@pytest.mark.parametrize(
    ("most", "passed"), [(210, {"result": RESULT}), (209, {"result": None, "resultBytes": 210})]
)
def test_results_are_passed_up_to_a_size_of_all(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, most: int, passed: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "MAX_UPSTREAM_BYTES", most)
    seen: list[dict[str, Any]] = []
    stack.script("load", lambda run: seen.append(run.upstream["extract"]))
    stack.put("load", {**AFTER, "target": {"handler": "load"}})

    run(stack)

    [upstream] = seen
    assert {name: upstream[name] for name in upstream if name.startswith("result")} == passed


def test_a_result_that_an_older_version_kept_may_be_too_deep(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "is_nested_too_deeply", lambda _: False)
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    stack.script("extract", lambda _: deep)
    seen: list[dict[str, Any]] = []
    stack.script("load", lambda run: seen.append(run.upstream["extract"]))
    stack.put("load", {**AFTER, "target": {"handler": "load"}})

    run(stack)

    [upstream] = seen
    assert (upstream["state"], upstream["result"]) == ("SUCCEEDED", None)
    assert upstream["resultBytes"] == 402


@pytest.mark.parametrize(
    ("body", "reads"), [({"a": 1}, 0), ({"a": "{{upstream.extract.state}}"}, 1)]
)
def test_a_call_reads_its_parents_only_if_a_placeholder_names_them(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], reads: int
) -> None:
    read = module.read_upstream
    calls: list[object] = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(module, "read_upstream", counted)
    stack.http(URL, lambda _request: 200)
    http = {"url": f"{URL}hook", "body": body}
    stack.put("load", {**AFTER, "target": {"pool": "calls", "http": http}})

    run(stack)

    [ended] = stack.runs("load")
    assert (ended.state, len(calls)) == ("SUCCEEDED", reads)


def test_a_parent_that_does_not_decode_uses_up_no_attempt(world: World) -> None:
    """For example after a rollback. The run waits, and says for what."""
    a = world.register("a")
    b = world.register("b", **after("a"))
    world.tick_at("12:00")
    world.worker().work_one()
    key = world.run(a, "12:00").key
    world.runs.spoil(key)
    world.worker().work_one()
    waits = world.run(b, "12:00")
    assert (waits.state, waits.attempt) == (RunState.PENDING, 0)
    assert waits.reason == "the runs of its parents cannot be read: run does not decode"

    for minute in range(60):
        world.advance_and_work(minutes=1)
        if minute == 40:
            assert world.state(b, "12:00") is RunState.PENDING
            world.runs.repair(key)

    run = world.run(b, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


def test_a_table_that_does_not_answer_for_the_parents_uses_up_no_attempt(world: World) -> None:
    """Nor a slot: the reads of a hundred parents are not repeated every second."""
    world.register("a")
    b = world.register("b", **after("a"), **ONE_ATTEMPT)
    world.tick_at("12:00")
    world.worker().work_one()
    world.faults.refuse("runs.between", 10)

    world.worker().work_one()

    waits = world.run(b, "12:00")
    assert (waits.state, waits.attempt) == (RunState.PENDING, 0)
    assert world.now - at("12:00") < timedelta(seconds=5)
    world.faults.clear()
    for _ in range(5):
        world.advance_and_work(seconds=30)
    run = world.run(b, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


class Records:
    """A store with a run of each job every minute, with a result of 8 KB, and *on_request* others
    in each. It makes records when they are read, as one of pages does.
    """

    def __init__(self, on_request: int) -> None:
        self.seconds = 60 // (1 + on_request)

    def between(self, job: JobKey, first: str, last: str, **_: Any) -> Iterator[Run]:
        until = RunKey(job, f"{last}-{UID}").scheduled_at
        # The search for the earliest run, newest first, ends with its record.
        since = until - MOMENT if first == "0" else RunKey(job, f"{first}-{UID}").scheduled_at
        begin = ceil(since.timestamp() / self.seconds) * self.seconds
        for second in range(begin, ceil(until.timestamp()), self.seconds):
            text = f'"{"x" * 8_000}"'
            trigger = Trigger.MANUAL if second % 60 else Trigger.SCHEDULE
            key = run_key(datetime.fromtimestamp(second, UTC), job_id=job.job_id)
            result = Value(len(text), text=text)
            yield Run(key, RunState.SUCCEEDED, result=result, trigger=trigger)


@pytest.mark.parametrize(("parents", "on_request"), [(20, 0), (2, 9)])
def test_the_results_of_thousands_of_runs_are_not_held_at_once(
    parents: int, on_request: int
) -> None:
    world, names = World("09:59"), [f"p{n}" for n in range(parents)]
    for name in names:
        world.register(name, schedule="* * * * *")
    edges = [{"job": name, "which": "all"} for name in names]
    child = world.register("load", schedule="0 0,12 * * *", after=edges)
    key, records = child.run_key(at("12:00")), cast("RunStore", Records(on_request))

    tracemalloc.start()
    try:
        found: Any = module.read_upstream(world.jobs, records, child, key)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [len(found[name]["runs"]) for name in names] == [121] * parents
    assert all(each["state"] == "SUCCEEDED" for name in names for each in found[name]["runs"])
    assert peak < 8 * 2**20
