"""The test kit: the whole scheduler in memory under simulated time."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire import Invalid, NotFound
from nextfire.responses.executions import ExecutionResponse
from nextfire.testing import AwsError, HttpAnswer, HttpRequest, ScriptRun, Stack
from tests.fakes import Killed
from tests.world import World

ROOT = Path(__file__).parents[2]
NIGHTLY: dict[str, Any] = {
    "type": "CRON",
    "schedule": "0 3 * * *",
    "target": {"handler": "report"},
    "retryPolicy": {"maxAttempts": 3},
}
ON_REQUEST = NIGHTLY | {"type": "MANUAL", "schedule": None}
HOURLY = NIGHTLY | {"schedule": "0 * * * *", "timeoutSec": 10_800}


@pytest.fixture
def stack() -> Stack:
    stack = Stack()
    stack.script("report", lambda run: {"attempt": run.attempt})
    return stack


def states(runs: list[ExecutionResponse]) -> list[str]:
    return [run.state.value for run in runs]


def outcomes(run: ExecutionResponse) -> list[str | None]:
    return [each.outcome and each.outcome.value for each in run.attempts or []]


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


# Scripts


def test_a_function_has_what_a_script_has(stack: Stack) -> None:
    seen: list[Any] = []

    def report(run: ScriptRun) -> dict[str, int]:
        seen.append((run.script, run.job_id, run.payload, run.attempt, run.env["REGION"]))
        seen.append((run.scheduled_at, run.now, run.deadline - run.now, run.checkpoint))
        run.log(f"key {run.env['KEY']}")
        run.save_checkpoint({"page": 3})
        assert run.checkpoint == {"page": 3}
        return {"rows": 4}

    stack.script("report", report)
    stack.secret("billing", "s3cr3t-value")
    env = {"REGION": "eu", "KEY": {"secret": "billing"}}
    job = NIGHTLY | {"payload": {"to": "x"}, "target": {"handler": "report", "env": env}}
    stack.put("nightly", job)
    stack.advance(days=1)

    [run] = stack.runs("nightly")
    at = datetime(2027, 1, 1, 3, tzinfo=UTC)
    assert seen == [
        ("report", "nightly", {"to": "x"}, 1, "eu"),
        (at, at, timedelta(minutes=5), None),
    ]
    assert stack.result(run) == {"rows": 4}
    assert stack.log(run) == ["key ***"]
    assert run.stdout == "key ***\n"


def test_an_exception_is_a_failed_attempt(stack: Stack) -> None:
    def report(run: ScriptRun) -> None:
        if run.attempt == 1:
            raise ValueError("no rows")
        sys.exit(3 if run.attempt == 2 else "stopped")

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    [run] = stack.runs("nightly", state="DEAD")
    assert [each.exit_code for each in run.attempts or []] == [1, 3, 1]
    assert "ValueError: no rows" in stack.log(run)
    assert stack.log(run)[-1] == "stopped"
    assert stack.dead_letters == [run.execution_id]
    [event] = stack.events
    assert (event["detail-type"], event["detail"]["executionId"]) == (
        "Execution Dead",
        run.execution_id,
    )


def test_a_function_that_sleeps_beyond_its_timeout_is_ended(stack: Stack) -> None:
    cleaned = []

    def report(run: ScriptRun) -> None:
        try:
            run.sleep(hours=1)
        except Exception:  # noqa: BLE001 - must not catch the end of the function
            cleaned.append("caught")
        finally:
            cleaned.append("finally")

    stack.script("report", report)
    stack.put("h", ON_REQUEST | {"timeoutSec": 90, "retryPolicy": {"maxAttempts": 1}})
    stack.run("h")
    stack.advance(hours=1)

    [run] = stack.runs("h")
    assert (outcomes(run), cleaned) == (["TIMED_OUT"], ["finally"])
    assert run.finished_at == datetime(2027, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_a_running_function_is_cancelled(stack: Stack) -> None:
    stack.script("report", lambda run: run.sleep(minutes=4))
    stack.put("h", ON_REQUEST)
    run = stack.run("h")
    stack.advance(minutes=1)
    assert states(stack.runs("h")) == ["RUNNING"]

    stack.client.cancel_execution(run.execution_id)
    stack.advance(seconds=5)

    assert states(stack.runs("h")) == ["CANCELLED"]


def test_a_file_runs_in_a_process(stack: Stack) -> None:
    stack.script("hello", path=ROOT / "examples" / "hello.py")
    stack.put("h", ON_REQUEST | {"target": {"handler": "hello"}, "payload": {"name": "you"}})
    stack.run("h")

    stack.advance()

    [run] = stack.runs("h")
    assert (run.stdout or "").startswith("Hello, you!\n")
    assert run.finished_at == run.started_at


def test_a_file_must_have_the_digest_to_which_its_job_is_pinned(stack: Stack) -> None:
    stack.script("hello", path=ROOT / "examples" / "hello.py")
    stack.put("h", ON_REQUEST | {"target": {"handler": f"hello@sha256:{'0' * 64}"}})
    stack.run("h")

    stack.advance()

    [run] = stack.runs("h", state="DEAD")
    assert "no version has the digest sha256:000" in (run.reason or "")


@pytest.mark.parametrize("given", [{}, {"function": print, "path": "x.py"}])
def test_a_script_is_a_function_or_a_file(stack: Stack, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Give a function or a path"):
        stack.script("report", **given)


def test_a_file_must_exist(stack: Stack) -> None:
    with pytest.raises(FileNotFoundError, match="no such script"):
        stack.script("report", path="nowhere.py")


def test_a_script_that_is_missing_is_named(stack: Stack) -> None:
    stack.put("h", ON_REQUEST | {"target": {"handler": "other"}})
    stack.run("h")
    stack.advance(hours=1)

    [run] = stack.runs("h", state="DEAD")
    assert 'stack.script("other", lambda run: None). It has: report' in (run.reason or "")


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


# Faults


def test_a_failed_script_is_not_called(stack: Stack) -> None:
    called: list[int] = []
    stack.script("report", lambda run: called.append(run.attempt))
    stack.put("nightly", NIGHTLY)
    stack.fail("report", times=2)
    stack.advance(days=1)

    [run] = stack.runs("nightly")
    assert (outcomes(run), called) == (["FAILED", "FAILED", "SUCCEEDED"], [3])


def test_a_crashed_worker_did_its_work_and_is_followed_by_another_after_its_lease(
    stack: Stack,
) -> None:
    called: list[str] = []
    stack.script("report", lambda run: called.append(run.execution_id))
    stack.put("nightly", NIGHTLY)
    stack.crash_worker(during="report")
    stack.advance(days=1)

    [run] = stack.runs("nightly")
    first, second = run.attempts or []
    assert outcomes(run) == ["WORKER_LOST", "SUCCEEDED"]
    assert second.started_at - first.started_at == timedelta(seconds=60)
    assert first.worker != second.worker
    assert called == [run.execution_id] * 2


def test_the_next_attempt_finds_the_checkpoint_of_a_crashed_one(stack: Stack) -> None:
    def report(run: ScriptRun) -> Any:
        if run.checkpoint is None:
            run.save_checkpoint({"page": 7})
            run.sleep(minutes=2)
            run.crash()
        return run.checkpoint

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    [run] = stack.runs("nightly", state="SUCCEEDED")
    assert stack.result(run) == {"page": 7}


def test_a_dead_worker_stores_nothing_more(stack: Stack) -> None:
    found = []

    def report(run: ScriptRun) -> None:
        found.append(run.checkpoint)
        try:
            if run.attempt == 1:
                run.crash()
        finally:
            run.save_checkpoint("cleaned up")

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    assert found == [None, None]


def test_an_outage_stops_a_watcher_that_has_a_backlog() -> None:
    stack = Stack(quotas={"runsPerMinute": 1})
    stack.script("report", lambda _: None)
    for number in range(3):
        stack.put(f"job{number}", ON_REQUEST)
        stack.run(f"job{number}")
    stack.advance(seconds=10)
    with stack.outage():
        stack.advance(minutes=5)
    assert len(stack.runs(state="SUCCEEDED")) == 1
    ended_at = stack.advance()
    stack.advance(minutes=5)
    [_, *later] = sorted(run.dispatched_at for run in stack.runs() if run.dispatched_at)
    assert len(later) == 2
    assert min(later) >= ended_at


def test_a_throttled_call_delays_and_loses_nothing(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY)
    stack.throttle("queue.send", times=2)
    stack.throttle("runs.claim")
    stack.advance(days=2)

    first, second = stack.runs("nightly", state="SUCCEEDED")
    assert first.started_at and first.started_at > first.scheduled_at  # noqa: PT018
    assert second.started_at == second.scheduled_at


def test_only_calls_of_stores_are_throttled(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"No call 'due\.pit': write due\.put"):
        stack.throttle("due.pit")


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


def test_callbacks_are_answered_by_functions(stack: Stack) -> None:
    calls: list[HttpRequest] = []

    def answer(call: HttpRequest) -> HttpAnswer:
        calls.append(call)
        return HttpAnswer(500) if len(calls) == 1 else HttpAnswer(200, {"id": 7})

    stack.http("https://api.example.com/", answer)
    stack.http("https://", lambda _: 400)
    http = {"url": "https://api.example.com/hooks", "body": {"run": "{{run.executionId}}"}}
    job = {"target": {"pool": "calls", "http": http}, "retryPolicy": {"maxAttempts": 2}}
    stack.put("hook", ON_REQUEST | job)
    run = stack.run("hook")
    stack.advance(hours=1)

    [ended] = stack.runs("hook", state="SUCCEEDED")
    assert outcomes(ended) == ["FAILED", "SUCCEEDED"]
    assert stack.result(ended)["body"] == {"id": 7}
    assert [call.json for call in calls] == [{"run": run.execution_id}] * 2


def test_callbacks_without_a_response_wait_and_one_without_a_function_fails(stack: Stack) -> None:
    def answer(_: HttpRequest) -> int:
        raise ConnectionError("refused")

    stack.http("https://down.example.com", answer)
    for name in ("down", "unknown"):
        http = {"url": f"https://{name}.example.com/x"}
        job = {"target": {"pool": "calls", "http": http}, "retryPolicy": {"maxAttempts": 1}}
        stack.put(name, ON_REQUEST | job)
        stack.run(name)
    stack.advance(hours=1)

    [unknown] = stack.runs("unknown", state="DEAD")
    assert 'stack.http("https://unknown.example.com/x"' in (unknown.reason or "")
    [down] = stack.runs("down", state="PENDING")
    assert {*outcomes(down)} == {"DEFERRED"}


def test_aws_calls_are_answered_by_functions(stack: Stack) -> None:
    def send(given: dict[str, Any]) -> dict[str, Any]:
        if given["MessageBody"] == "bad":
            raise AwsError("InvalidMessageContents", "no")
        return {"MessageId": "1"}

    stack.aws("sqs:SendMessage", send)
    for body in ("good", "bad"):
        given = {"QueueUrl": "https://sqs.example.com/1/q", "MessageBody": body}
        aws = {"service": "sqs", "action": "SendMessage", "input": given}
        job = {"target": {"pool": "calls", "aws": aws}, "retryPolicy": {"maxAttempts": 1}}
        stack.put(body, ON_REQUEST | job)
        stack.run(body)
    stack.advance(minutes=1)

    assert stack.result(stack.runs("good", state="SUCCEEDED")[0]) == {"MessageId": "1"}
    assert stack.runs("bad", state="DEAD")[0].reason == "InvalidMessageContents: no"


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


def test_a_defect_of_a_process_is_raised(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.put("nightly", NIGHTLY)
    monkeypatch.setattr("nextfire.usecases.execute_run.decode_message", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stack.advance(days=1)


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
