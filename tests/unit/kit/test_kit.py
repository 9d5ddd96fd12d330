"""The test kit: the whole scheduler in memory under simulated time."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from nextfire import Invalid, NotEndedError, NotFound
from nextfire.testing import HttpRequest, ScriptRun, Stack
from tests.fakes import Killed
from tests.unit.kit.conftest import HOURLY, NIGHTLY, ON_REQUEST, ROOT, outcomes, states
from tests.world import World

# Time


def test_a_year_of_a_nightly_job(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY)

    assert stack.advance(days=365) == datetime(2028, 1, 1, tzinfo=UTC)

    runs = stack.runs("nightly", state="SUCCEEDED")
    assert len(runs) == 365
    assert [run.started_at for run in runs] == [run.scheduled_at for run in runs]


def test_what_is_due_at_the_instant_happens(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY)

    stack.advance_to("2027-01-01T02:59:59.999Z")
    assert stack.runs("nightly") == []
    stack.advance_to("2027-01-01T04:00:00+01:00")
    assert states(stack.runs("nightly")) == ["SUCCEEDED"]


def test_a_run_on_request_starts_when_time_advances_by_nothing(stack: Stack) -> None:
    stack.put("h", ON_REQUEST)
    for number in range(1, 4):
        stack.run("h")
        stack.advance()
        assert states(stack.runs("h")) == ["SUCCEEDED"] * number


def test_time_passes_while_the_client_waits_for_a_run(stack: Stack) -> None:
    def report(run: ScriptRun) -> None:
        run.log("begins")
        run.sleep(minutes=4)
        run.log("ends")

    stack.script("report", report)
    stack.put("h", ON_REQUEST)
    first, second = stack.run("h"), stack.run("h")

    log = stack.client.log(first.execution_id, follow=True)
    assert [line.text for line in log] == ["begins", "ends"]
    assert stack.client.wait(second.execution_id).state == "SUCCEEDED"
    assert stack.now < datetime(2027, 1, 1, 0, 5, tzinfo=UTC)


def test_the_client_waits_at_most_for_its_timeout(stack: Stack) -> None:
    stack.script("report", lambda run: run.sleep(minutes=4))
    stack.put("h", ON_REQUEST)
    run = stack.run("h")

    with pytest.raises(NotEndedError):
        stack.client.wait(run.execution_id, timeout=60.001)
    assert stack.now == datetime(2027, 1, 1, 0, 1, 0, 1000, tzinfo=UTC)


def test_a_function_cannot_wait_for_a_run(stack: Stack) -> None:
    stack.script("report", lambda run: stack.client.wait(run.execution_id))
    stack.put("h", ON_REQUEST | {"retryPolicy": {"maxAttempts": 1}})
    stack.run("h")
    stack.advance()

    assert "A script cannot advance the stack" in (stack.runs("h")[0].reason or "")


def test_time_never_goes_back(stack: Stack) -> None:
    with pytest.raises(ValueError, match="is before the stack's time, 2027-01-01T00:00:00Z"):
        stack.advance(seconds=-1)


def test_an_instant_without_an_offset_is_rejected() -> None:
    with pytest.raises(ValueError, match="has no offset: write 2027-01-01T00:00:00Z"):
        Stack(start="2027-01-01T00:00:00")


def test_a_function_cannot_advance_the_stack(stack: Stack) -> None:
    stack.script("report", lambda _: stack.advance(hours=1))
    stack.put("h", ON_REQUEST | {"retryPolicy": {"maxAttempts": 1}})
    stack.run("h")

    stack.advance(hours=1)

    [run] = stack.runs("h", state="DEAD")
    assert "call run.sleep(minutes=5)" in (run.stderr or "")


def test_over_a_clock_change_a_local_time_runs_once_a_day(stack: Stack) -> None:
    stack = Stack(start="2027-10-30T00:00:00+02:00")
    stack.script("report", lambda _: None)
    stack.put("each", NIGHTLY | {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"})

    stack.advance(days=3)

    assert [f"{run.scheduled_at:%d %H:%M}" for run in stack.runs("each")] == [
        "30 00:30", "31 00:30", "01 01:30",
    ]  # fmt: skip


# Jobs


@pytest.mark.parametrize("job", [NIGHTLY, HOURLY, ON_REQUEST])
def test_the_id_of_a_deleted_job_is_free_after_hours_without_a_run(
    stack: Stack, job: dict[str, Any]
) -> None:
    stack.put("h", job)
    stack.advance(days=1)
    stack.delete("h")
    stack.advance(hours=5)

    stack.put("h", job)
    stack.advance(days=1)
    stack.delete("h")
    stack.put("h", job)


def test_its_watcher_is_asleep_while_nothing_is_due_and_stopped_in_an_outage(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY)

    for hours in (1, 5, 24):  # before the first run, after it, a day of one run
        stack.advance(hours=hours)
        assert watcher_states(stack) == ["ASLEEP"]
    with stack.outage():
        stack.advance(hours=1)
        assert watcher_states(stack) == ["STOPPED"]
    stack.advance()
    assert watcher_states(stack) == ["ASLEEP"]


def watcher_states(stack: Stack) -> list[str]:
    return [each.state.value for each in stack.client.get_overview().watchers]


def test_jobs_are_checked_as_by_the_api(stack: Stack) -> None:
    with pytest.raises(Invalid, match=r"61 is not in 0 to 59 \(got '61 \* \* \* \*'\)"):
        stack.put("bad", NIGHTLY | {"schedule": "61 * * * *"})
    with pytest.raises(Invalid, match="Available: calls, default"):
        stack.put("bad", NIGHTLY | {"target": {"handler": "report", "pool": "etl"}})
    with pytest.raises(NotFound, match="Job 'missing' was not found"):
        stack.run("missing")


def test_paused_jobs_do_not_run_and_deleted_ones_never_again(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY | {"misfire": {"policy": "SKIP"}})
    assert stack.pause("nightly").state == "PAUSED"
    stack.advance(days=2)
    assert stack.runs("nightly", state="SUCCEEDED") == []
    stack.resume("nightly")
    stack.advance(days=1)
    assert len(stack.runs("nightly", state="SUCCEEDED")) == 1
    stack.delete("nightly")
    stack.advance(days=2)
    assert len(stack.runs("nightly", state="SUCCEEDED")) == 1


def test_stacks_are_separate(stack: Stack) -> None:
    other = Stack(start="2030-06-01T00:00:00Z")
    stack.put("nightly", NIGHTLY)
    with pytest.raises(NotFound):
        other.client.get_job("nightly")
    assert other.client.get_health().time != stack.client.get_health().time


def test_pools_and_quotas_are_those_of_the_stack() -> None:
    stack = Stack(pools=["etl"], quotas={"runsPerMinute": 2})
    stack.script("report", lambda _: None)
    job = ON_REQUEST | {"target": {"handler": "report", "pool": "etl"}}
    for number in range(5):
        stack.put(f"job{number}", job)
        stack.run(f"job{number}")

    stack.advance(minutes=3)

    minutes = [run.started_at.minute for run in stack.runs() if run.started_at]
    assert sorted(minutes) == [0, 0, 1, 1, 2]


# Policies


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("ALLOW", ["SUCCEEDED", "RUNNING", "RUNNING"]),
        ("SKIP", ["SUCCEEDED", "SKIPPED", "RUNNING"]),
        ("QUEUE", ["SUCCEEDED", "RUNNING"]),
        ("REPLACE", ["CANCELLED", "CANCELLED", "RUNNING"]),
    ],
)
def test_overlapping_runs_follow_the_policy(
    stack: Stack, overlap: str, expected: list[str]
) -> None:
    stack.script("report", lambda run: run.sleep(hours=2))
    stack.put("hourly", HOURLY | {"overlap": overlap})

    stack.advance(hours=3, minutes=30)

    assert states(stack.runs("hourly")) == expected


@pytest.mark.parametrize(("policy", "started"), [("RUN_LATEST", 1), ("RUN_ALL", 3), ("SKIP", 0)])
def test_after_an_outage_the_misfire_policy_decides(
    stack: Stack, policy: str, started: int
) -> None:
    stack.put("hourly", HOURLY | {"misfire": {"policy": policy}})
    with stack.outage():
        stack.advance(hours=3, minutes=30)
        assert stack.runs("hourly") == []

    stack.advance(minutes=20)

    assert len(stack.runs("hourly", state="SUCCEEDED")) == started


# Sequences and calls


def test_a_chain_passes_results_on(stack: Stack) -> None:
    stack.script("load", lambda run: run.upstream["extract"]["result"]["rows"] * 2)
    stack.script("report", lambda _: {"rows": 21})
    stack.put("extract", NIGHTLY)
    stack.put(
        "load", {"type": "AFTER", "after": [{"job": "extract"}], "target": {"handler": "load"}}
    )
    stack.advance(days=1)

    [run] = stack.runs("load")
    assert stack.result(run) == 42
    assert [node.job_id for node in stack.tree(run).items] == ["extract", "load"]


def test_a_sequence_is_redriven_and_cancelled_by_the_stack_s_clock(stack: Stack) -> None:
    stack.put("extract", ON_REQUEST | {"retryPolicy": {"maxAttempts": 1}})
    stack.put("load", NIGHTLY | {"type": "AFTER", "schedule": None, "after": [{"job": "extract"}]})
    stack.script("report", lambda _: 1 / 0)
    run = stack.run("extract")
    stack.advance(hours=1)
    assert states(stack.runs("extract")) == ["DEAD"]

    stack.client.redrive_chain(run.execution_id, from_="extract")
    [redriven] = stack.runs("extract")
    assert redriven.retry_at == stack.now
    stack.client.cancel_chain(run.execution_id)
    [cancelled] = stack.runs("extract")
    assert (cancelled.state, cancelled.finished_at) == ("CANCELLED", stack.now)


# The kit itself


def test_it_records_what_the_use_cases_record_elsewhere() -> None:
    """The same scenario, by hand in the `World` of the other tests and on the kit: a failure, a
    crash, a success.
    """
    policy = {"maxAttempts": 3, "backoff": "FIXED", "initialDelayMs": 30_000}
    world = World("11:59:00")
    world.tick()
    job = world.register(retryPolicy=policy)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker("a").work()
    world.tick_at("12:00:30")
    world.faults.call_before_next("runs.advance", lambda: world.faults.kill_after(0))
    with pytest.raises(Killed):
        world.worker("b").work()
    world.faults.clear()
    world.at("12:01:30")
    world.worker("c").work()
    by_hand = world.run(job, "12:00")

    stack = Stack(start="2026-05-24T11:59:00Z")
    stack.script("report", lambda _: None)
    stack.put("report", HOURLY | {"retryPolicy": policy})
    stack.fail("report")
    stack.advance(seconds=90)  # the failed attempt has ended, the second one comes at 12:00:30
    stack.crash_worker(during="report")
    stack.advance(minutes=5)
    [on_the_kit] = stack.runs("report")

    assert by_hand.state == on_the_kit.state == "SUCCEEDED"
    assert [each.outcome for each in by_hand.attempts] == outcomes(on_the_kit)
    assert [each.started_at for each in by_hand.attempts] == [
        each.started_at for each in on_the_kit.attempts or []
    ]


@pytest.mark.parametrize("module", ["nextfire", "nextfire_pytest"])
def test_it_is_not_imported_unless_it_is_used(module: str) -> None:
    code = f"import sys, {module}; print(*[n for n in sys.modules if n.startswith('nextfire.')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"


def test_the_examples_of_tests_pass() -> None:
    """In a pytest of their own, which finds the fixture by the entry point of the package."""
    without = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", *without]
    command += ["--rootdir", str(ROOT / "examples"), str(ROOT / "examples" / "test_my_jobs.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_the_guide_shows_the_examples_and_names_everything() -> None:
    guide = (ROOT / "docs" / "guide" / "testing-jobs.md").read_text()
    source = (ROOT / "examples" / "test_my_jobs.py").read_text()
    shown = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)

    assert len(shown) == 5
    for block in shown:
        assert block.removeprefix("from nextfire.testing import Stack\n\n\n") in source
    for public in (Stack, ScriptRun, HttpRequest):
        names = {each for each in dir(public) if not each.startswith("_")}
        assert {name for name in names if not re.search(rf"\b{name}\b", guide)} == set()
