"""An attempt of a callback: replays, reports to the gate, stops, and what is not sent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import RunKey
from nextfire.domain.message import MAX_RECORDED_REASON
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import Hold
from nextfire.domain.replay import Replay
from nextfire.targets.http.messages import CallFailedError, Failure
from tests.builders import NOON, a_job, run_key
from tests.callbacks import LONGEST, Control, a_callback, a_running_run, response
from tests.unit.http_runner.conftest import REFERENCE, TOKEN, Callbacks


def test_an_unexpected_error_is_recorded_without_secrets(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [RuntimeError(f"a defect with {TOKEN}")]

    found = callbacks.attempt(a_callback(auth={"type": "bearer", "token": REFERENCE}))

    assert found.result.outcome is AttemptOutcome.FAILED
    assert found.result.reason == "could not be made: RuntimeError: a defect with ***"


def test_a_long_reason_is_cut(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [RuntimeError("long " * MAX_RECORDED_REASON)]

    reason = callbacks.attempt().result.reason

    assert reason.startswith("could not be made: RuntimeError: long long ")
    assert (len(reason), reason[-1]) == (MAX_RECORDED_REASON, "…")


@pytest.mark.parametrize(
    "http",
    [
        {"auth": {"type": "bearer", "token": {"secret": "absent"}}},
        {"sign": [{"secret": "absent"}]},
        {"sign": [REFERENCE]},
        {"body": "{{payload.absent}}"},
    ],
)
def test_what_cannot_be_sent_is_a_permanent_failure(
    callbacks: Callbacks, http: dict[str, Any]
) -> None:
    found = callbacks.attempt(a_callback(**http))

    assert callbacks.transport.sent == []
    assert (found.result.outcome, found.result.permanent) == (AttemptOutcome.FAILED, True)
    assert TOKEN not in repr(found)


def test_a_replay_sends_the_same_request_again(callbacks: Callbacks) -> None:
    job = a_callback(headers={"X-Own": "1"}, sign=[{"secret": "signing"}])
    callbacks.attempt(job)
    [first] = callbacks.transport.sent
    assert first.digest is not None
    of = Replay(a_running_run().key.run_id, 1, first.digest)
    later = RunKey(job.key, a_running_run().key.run_id.replace("T12", "T13"))
    run = replace(a_running_run(), key=later, attempt=2, replay_of=of)

    found = callbacks.target.attempt(job, run, Control(), LONGEST)

    assert found.result.outcome is AttemptOutcome.SUCCEEDED
    again = callbacks.transport.sent[-1]
    changing = {"traceparent", "webhook-timestamp", "webhook-signature"}
    assert (again.url, again.method, again.body) == (first.url, first.method, first.body)
    assert {name: value for name, value in again.headers.items() if name not in changing} == {
        name: value for name, value in first.headers.items() if name not in changing
    }
    assert again.headers["webhook-id"] == first.headers["webhook-id"]
    assert json.loads(found.result.call or "")["digest"] == first.digest
    traces = [each.headers["traceparent"].split("-")[1] for each in (first, again)]
    assert traces[0] != traces[1]


@pytest.mark.parametrize(
    "change", [{"headers": {"X-Own": "1"}}, {"body": {"other": 1}}, {"method": "PUT"}]
)
def test_a_replay_of_a_job_that_changed_sends_nothing(
    callbacks: Callbacks, change: dict[str, Any]
) -> None:
    callbacks.attempt(a_callback())
    [first] = callbacks.transport.sent
    of = Replay(a_running_run().key.run_id, 1, first.digest or "")

    found = callbacks.target.attempt(
        a_callback(**change), replace(a_running_run(), replay_of=of), Control(), LONGEST
    )

    assert callbacks.transport.sent == [first]
    assert (found.result.outcome, found.result.permanent) == (AttemptOutcome.FAILED, True)
    assert "the job has changed" in found.result.reason


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (response(200), "ok"),
        (response(500), "ok"),
        (response(410), "ok"),
        (response(429), "throttled"),
        (response(502), "down"),
        (response(503), "down"),
        (response(504), "down"),
        (CallFailedError(Failure.CONNECT, ""), "down"),
        (CallFailedError(Failure.NAME, ""), "down"),
        (CallFailedError(Failure.TIMEOUT, ""), "down"),
        (CallFailedError(Failure.CLOSED, "", sent=True), "down"),
    ],
)
def test_the_gate_learns_how_each_call_ended(
    callbacks: Callbacks, answer: Any, outcome: str
) -> None:
    callbacks.transport.answers = [answer]

    callbacks.attempt()

    assert callbacks.gate.reports == [("acme", "api.example.com:443", outcome, None)]


@pytest.mark.parametrize(
    "problem",
    [
        Failure.FORBIDDEN,
        Failure.TLS,
        Failure.PROTOCOL,
        Failure.STOPPED,
        Failure.BUSY,
    ],
)
def test_other_problems_say_nothing_about_the_destination(
    callbacks: Callbacks, problem: Failure
) -> None:
    callbacks.transport.answers = [CallFailedError(problem, "")]

    callbacks.attempt()

    assert callbacks.gate.reports == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_response_that_the_job_accepts_is_not_an_outage(
    callbacks: Callbacks, status: int
) -> None:
    callbacks.transport.answers = [response(status)]

    found = callbacks.attempt(a_callback(success=["2xx", "4xx", "5xx"]))

    assert found.result.outcome is AttemptOutcome.SUCCEEDED
    assert callbacks.gate.reports == [("acme", "api.example.com:443", "ok", None)]


@pytest.mark.parametrize(("took", "reports"), [(31, []), (16, []), (14, ["down"])])
def test_a_receiver_is_not_down_if_its_token_took_the_time(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch, took: float, reports: list[str]
) -> None:
    resolve = callbacks.secrets.resolve

    def resolve_slowly(*reference: Any, again: bool) -> str:
        callbacks.seconds += took
        return resolve(*reference, again=again)

    monkeypatch.setattr(callbacks.secrets, "resolve", resolve_slowly)
    callbacks.transport.answers = [CallFailedError(Failure.TIMEOUT, "no response in time")]
    http = {"url": "https://api.example.com/", "auth": {"type": "bearer", "token": REFERENCE}}

    result = callbacks.attempt(a_job(target={"pool": "calls", "http": http}, timeoutSec=30)).result

    assert [each[2] for each in callbacks.gate.reports] == reports
    assert result.unavailable
    assert ("tokens and secrets took all of timeoutSec" in result.reason) is (took > 30)


def test_the_gate_decides_whether_a_run_starts(callbacks: Callbacks) -> None:
    hold = callbacks.gate.hold = Hold(NOON + timedelta(minutes=1), "it is down")

    assert callbacks.target.admit(a_callback(), run_key(), NOON, first=True) == hold
    callbacks.target.release(a_callback(), run_key())

    execution = run_key().execution_id
    assert callbacks.gate.asked == [("acme", "api.example.com:443", execution, NOON)]
    assert callbacks.gate.left == [("acme", "api.example.com:443", execution, True)]
    callbacks.attempt(a_callback())
    callbacks.target.release(a_callback(), run_key())
    assert callbacks.gate.left[1:] == [("acme", "api.example.com:443", execution, False)]


@pytest.mark.parametrize(
    ("directive", "outcome", "reason"),
    [
        (Directive.CANCEL, AttemptOutcome.CANCELLED, "cancelled on request"),
        (Directive.HAND_BACK, AttemptOutcome.HANDED_BACK, "its worker shut down"),
    ],
)
def test_a_call_can_be_stopped(
    callbacks: Callbacks, directive: Directive, outcome: AttemptOutcome, reason: str
) -> None:
    class Stopped(Control):
        asked = 0

        def ask(self) -> Directive:
            self.asked += 1
            return directive if self.asked > 1 else Directive.CONTINUE

    callbacks.transport.answers = [CallFailedError(Failure.STOPPED, "stopped", sent=True)]

    found = callbacks.attempt(control=Stopped())

    assert (found.verdict, found.result.outcome, found.result.reason) == (
        directive,
        outcome,
        reason,
    )
    assert json.loads(found.result.call or "")["sent"] is True


@pytest.mark.parametrize(
    "directive", [each for each in Directive if each is not Directive.CONTINUE]
)
def test_nothing_is_sent_if_the_lease_ended_before_the_call(
    callbacks: Callbacks, directive: Directive
) -> None:
    found = callbacks.attempt(control=Control(directive))

    assert found.verdict is directive
    assert callbacks.transport.sent == []


def test_an_exception_of_the_supervisor_is_recorded(callbacks: Callbacks) -> None:
    class Broken(Control):
        def ask(self) -> Directive:
            raise OSError("a defect")

    found = callbacks.attempt(control=Broken())

    assert found.result.reason == "could not be made: OSError: a defect"
