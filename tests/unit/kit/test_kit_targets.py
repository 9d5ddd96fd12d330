"""What runs in the test kit: functions, files, callbacks and calls of AWS."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.testing import AwsError, HttpAnswer, HttpRequest, ScriptRun, Stack
from tests.unit.kit.conftest import NIGHTLY, ON_REQUEST, ROOT, outcomes, states

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


@pytest.mark.parametrize(
    "code",
    [None, True, -1, 256, 300, 10**30, "stopped", ["no", "rows"]],
    ids=lambda code: f"{code!r}",
)
def test_a_function_exits_as_a_process_does(stack: Stack, tmp_path: Path, code: object) -> None:
    (tmp_path / "exits.py").write_text(f"import sys\n\nsys.exit({code!r})\n")
    stack.script("file", path=tmp_path / "exits.py")
    stack.script("function", lambda _: sys.exit(code))  # type: ignore[arg-type]
    for name in ("file", "function"):
        once = {"target": {"handler": name}, "retryPolicy": {"maxAttempts": 1}}
        stack.put(name, ON_REQUEST | once)
        stack.run(name)
    stack.advance()

    file, function = (stack.runs(name)[0] for name in ("file", "function"))
    assert (function.state, function.exit_code, function.reason) == (
        file.state,
        file.exit_code,
        file.reason,
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


def test_the_reason_of_a_failed_run_has_the_beginning_of_a_long_message(
    stack: Stack, tmp_path: Path
) -> None:
    script = tmp_path / "long.py"
    script.write_text("raise ValueError('x' * 50_000)\n")
    stack.script("long", path=script)
    stack.put("h", ON_REQUEST | {"target": {"handler": "long"}})
    stack.run("h")

    stack.advance(hours=1)

    [run] = stack.runs("h", state="DEAD")
    assert re.fullmatch("exit code 1: ValueError: x+…", run.reason or "")


def test_much_output_is_cut_as_that_of_a_file(stack: Stack, tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(10_000))
    script = tmp_path / "file.py"
    script.write_text(f"import sys\n\nprint({lines!r})\nsys.exit({lines + 'stopped'!r})\n")

    def report(run: ScriptRun) -> None:
        run.log(lines)
        sys.exit(f"{lines}stopped")

    stack.script("file", path=script)
    stack.script("function", report)
    for name in ("file", "function"):
        stack.put(name, ON_REQUEST | {"target": {"handler": name}})
        stack.run(name)
    stack.advance()

    file, function = (stack.runs(name)[0] for name in ("file", "function"))
    assert function.reason == file.reason == "exit code 1: stopped"
    assert (function.stdout, function.stderr) == (file.stdout, file.stderr)
    assert (function.stdout or "").endswith("line 9999\n\n")


def test_a_file_must_have_the_digest_to_which_its_job_is_pinned(stack: Stack) -> None:
    stack.script("hello", path=ROOT / "examples" / "hello.py")
    stack.put("h", ON_REQUEST | {"target": {"handler": f"hello@sha256:{'0' * 64}"}})
    stack.run("h")

    stack.advance()

    [run] = stack.runs("h", state="DEAD")
    assert "no version has the digest sha256:000" in (run.reason or "")


@pytest.mark.parametrize(
    "given", [{}, {"function": print, "path": "x.py"}, {"function": "examples/hello.py"}]
)
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


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (TimeoutError(), "TIMED_OUT", "timed out"),
        (ConnectionResetError(), "FAILED", "the connection was closed"),
        (BrokenPipeError("gone"), "FAILED", "gone"),
        (ConnectionRefusedError(), "DEFERRED", "not connected"),
    ],
)
def test_a_call_without_a_response_ends_as_elsewhere(
    stack: Stack, error: Exception, outcome: str, reason: str
) -> None:
    def answer(_: HttpRequest) -> int:
        raise error

    stack.http("https://api.example.com/", answer)
    job = {"target": {"pool": "calls", "http": {"url": "https://api.example.com/hooks"}}}
    stack.put("hook", ON_REQUEST | job)
    stack.run("hook")
    stack.advance()

    [run] = stack.runs("hook")
    assert (outcomes(run), run.reason) == ([outcome], reason)


@pytest.mark.parametrize("given", [{"id": 7}, "OK", True, 99, HttpAnswer(1000)])
def test_what_is_not_an_answer_is_named(stack: Stack, given: Any) -> None:
    stack.http("https://api.example.com/", lambda _: given)
    http = {"url": "https://api.example.com/hooks"}
    job = {"target": {"pool": "calls", "http": http}, "retryPolicy": {"maxAttempts": 1}}
    stack.put("hook", ON_REQUEST | job)
    stack.run("hook")
    stack.advance()

    [run] = stack.runs("hook", state="DEAD")
    assert f"the function for {http['url']} returned {given!r}: return HttpAnswer(200, {{}})" in (
        run.reason or ""
    )


def test_what_is_not_the_output_of_an_action_is_named(stack: Stack) -> None:
    answers: Any = lambda _: "sent"  # noqa: E731
    stack.aws("sqs:SendMessage", answers)
    given = {"QueueUrl": "https://sqs.example.com/1/q", "MessageBody": "x"}
    aws = {"service": "sqs", "action": "SendMessage", "input": given}
    job = {"target": {"pool": "calls", "aws": aws}, "retryPolicy": {"maxAttempts": 1}}
    stack.put("send", ON_REQUEST | job)
    stack.run("send")
    stack.advance()

    [run] = stack.runs("send", state="DEAD")
    assert "the function for sqs:SendMessage returned 'sent': return the output" in (
        run.reason or ""
    )
