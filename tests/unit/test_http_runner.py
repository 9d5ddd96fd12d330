"""One attempt of an HTTP callback: authentication, request, response, report to the gate."""

from __future__ import annotations

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import AttemptResult, Hold
from nextfire.domain.replay import Replay
from nextfire.targets.http import authentication as module
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.messages import CallFailedError, Problem, Request, Response
from nextfire.targets.http.request import traceparent
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.role import Credentials
from tests.builders import NOON, job_key, run_key
from tests.callbacks import (
    LONGEST,
    Control,
    MemoryTransport,
    a_callback,
    a_running_run,
    response,
)
from tests.fakes import Clock, MemorySecrets

TOKEN = "planted-token-8d1f"
SIGNING = "whsec_" + base64.b64encode(b"s" * 24).decode()
REFERENCE = {"secret": "token"}
GRANTED = response(200, b'{"access_token": "granted-9c2e", "expires_in": 120}')


class Role:
    """`RoleCredentials`."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:  # noqa: ARG002
        found = Credentials("AKIDEXAMPLE", f"secret-{TOKEN}", f"session-{TOKEN}")
        masker.add(found.secret_key, found.token)
        return found


class Identity:
    """`WebIdentity`."""

    def token(self, job: JobKey, audience: str, masker: Masker) -> str:  # noqa: ARG002
        masker.add(f"jwt-{TOKEN}")
        return f"jwt-{TOKEN}"


@dataclass
class MemoryGate:
    """`Gate`."""

    hold: Hold | None = None
    reports: list[tuple[object, ...]] = field(default_factory=list)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    left: list[tuple[object, ...]] = field(default_factory=list)

    def admit(self, *asked: object, first: bool, timeout: timedelta) -> Hold | None:
        assert first
        assert timeout > timedelta()
        self.asked.append(asked)
        return self.hold

    def leave(self, *left: object) -> None:
        self.left.append(left)

    def report(self, *reported: object) -> None:
        self.reports.append(reported)


class Callbacks:
    """The runner, with what it uses."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.secrets = MemorySecrets()
        self.secrets.values |= {"acme/token": TOKEN, "acme/signing": SIGNING}
        self.gate = MemoryGate()
        self.seconds = 0.0
        self.target = HttpTarget(
            transport=self.transport,  # type: ignore[arg-type] # the part that is used
            secrets=self.secrets,
            authentication=Authentication(
                self.secrets, Role(), Identity(), monotonic=lambda: self.seconds
            ),
            clock=Clock(NOON),
            gate=self.gate,
            monotonic=lambda: self.seconds,
        )

    def attempt(self, job: Job | None = None, control: Control | None = None) -> AttemptResult:
        return self.target.attempt(
            job or a_callback(), a_running_run(), control or Control(), LONGEST
        )

    def headers(self, **http: Any) -> dict[str, str]:
        """The headers of a call that succeeds."""
        found = self.attempt(a_callback(**http))
        assert found.result.outcome is AttemptOutcome.SUCCEEDED, found
        assert TOKEN not in repr(found)
        return {name.lower(): value for name, value in self.transport.sent[-1].headers.items()}


@pytest.fixture
def callbacks() -> Callbacks:
    return Callbacks()


def test_a_request_says_what_it_is_for(callbacks: Callbacks) -> None:
    headers = callbacks.headers(headers={"X-Source": "tests", "content-type": "text/x"})

    [request] = callbacks.transport.sent
    execution_id = run_key().execution_id
    assert (request.method, request.url) == ("POST", "https://api.example.com/hooks")
    assert request.body == b'{"id":7}'
    assert headers.pop("user-agent").startswith("nextfire")
    assert headers == {
        "x-source": "tests",
        "content-type": "text/x",
        "idempotency-key": execution_id,
        "nextfire-execution-id": execution_id,
        "nextfire-attempt": "1",
        "nextfire-scheduled-at": "2026-05-24T12:00:00Z",
        "nextfire-job-id": "report",
        "traceparent": traceparent(a_running_run()),
    }


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_some_methods_have_no_body(callbacks: Callbacks, method: str) -> None:
    assert "content-type" not in callbacks.headers(method=method)
    assert callbacks.transport.sent[0].body == b""


def test_a_body_is_rendered(callbacks: Callbacks) -> None:
    callbacks.headers(body={"n": "{{payload.id}}", "run": "{{run.attempt}} of {{job.id}}"})

    assert json.loads(callbacks.transport.sent[0].body) == {"n": 7, "run": "1 of report"}


def test_a_traceparent_keeps_its_trace_over_attempts() -> None:
    first, second = traceparent(a_running_run()), traceparent(a_running_run(dispatch=2))
    _, trace, span, _ = first.split("-")

    assert (len(trace), len(span)) == (32, 16)
    assert second.split("-")[1] == trace


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"type": "bearer", "token": REFERENCE}, "authorization", f"Bearer {TOKEN}"),
        (
            {"type": "basic", "username": "me", "password": REFERENCE},
            "authorization",
            "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode(),
        ),
        ({"type": "apiKey", "header": "X-Key", "value": REFERENCE}, "x-key", TOKEN),
        ({"type": "oidc", "audience": "api"}, "authorization", f"Bearer jwt-{TOKEN}"),
    ],
)
def test_authentication(callbacks: Callbacks, auth: dict[str, Any], name: str, value: str) -> None:
    assert callbacks.headers(auth=auth)[name] == value


@pytest.mark.parametrize(
    ("actions", "signed"),
    [
        (("*",), True),
        (("sqs:*", "execute-api:*"), True),
        (("execute-api:Invoke*",), False),
        (("execute-ap*", "sqs:*"), False),
        ((), False),
    ],
)
def test_a_signature_is_made_if_all_actions_of_its_service_are_allowed(
    callbacks: Callbacks, actions: tuple[str, ...], *, signed: bool
) -> None:
    callbacks.target = HttpTarget(
        transport=callbacks.transport,  # type: ignore[arg-type] # the part that is used
        secrets=callbacks.secrets,
        authentication=Authentication(callbacks.secrets, Role(), None, aws_actions=actions),
        clock=Clock(NOON),
    )
    auth = {"type": "sigv4", "service": "execute-api", "region": "eu-central-1"}

    found = callbacks.attempt(a_callback(auth=auth)).result

    assert (found.outcome is AttemptOutcome.SUCCEEDED) is signed
    assert len(callbacks.transport.sent) == signed
    assert found.permanent is not signed
    assert signed or "Add execute-api:* to awsActions" in found.reason


def test_an_aws_signature_covers_the_request(callbacks: Callbacks) -> None:
    auth = {"type": "sigv4", "service": "execute-api", "region": "eu-central-1"}

    headers = callbacks.headers(auth=auth)

    assert "Credential=AKIDEXAMPLE/" in headers["authorization"]
    assert "/eu-central-1/execute-api/aws4_request" in headers["authorization"]
    assert "idempotency-key" in headers["authorization"]
    assert headers["x-amz-security-token"] == f"session-{TOKEN}"


OAUTH = {
    "type": "oauth2",
    "tokenUrl": "https://login.example.com/token",
    "clientId": "me",
    "clientSecret": REFERENCE,
    "scope": "hooks",
}


def test_a_token_is_fetched_once_and_again_before_it_expires(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [GRANTED, response()]

    assert callbacks.headers(auth=OAUTH)["authorization"] == "Bearer granted-9c2e"
    token, call = callbacks.transport.sent
    assert token.body == b"grant_type=client_credentials&scope=hooks"
    assert call.url == "https://api.example.com/hooks"
    callbacks.headers(auth=OAUTH)
    assert len(callbacks.transport.sent) == 3
    callbacks.seconds = 61  # a minute before the token expires
    callbacks.transport.answers = [response(), response(), response(), GRANTED, response()]
    callbacks.headers(auth=OAUTH)
    assert [each.url for each in callbacks.transport.sent[3:]] == [token.url, call.url]


def test_another_secret_gets_another_token(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [GRANTED, response(), GRANTED, response()]
    callbacks.headers(auth=OAUTH)

    callbacks.secrets.values["acme/token"] = "rotated-secret"
    callbacks.attempt(a_callback(auth=OAUTH))

    assert len(callbacks.transport.sent) == 4


def test_a_rejected_token_is_not_used_again(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [GRANTED, response(401), GRANTED, response()]

    assert callbacks.attempt(a_callback(auth=OAUTH)).result.reason == "401 Unauthorized"
    callbacks.headers(auth=OAUTH)

    assert len(callbacks.transport.sent) == 4


@pytest.mark.parametrize("life", [b"NaN", b"-1", b"0", b"-Infinity", b'"nan"'])
def test_a_token_without_a_sensible_life_is_used_once(callbacks: Callbacks, life: bytes) -> None:
    granted = response(200, b'{"access_token": "granted-9c2e", "expires_in": %s}' % life)
    callbacks.transport.answers = [granted, response(), granted, response()]

    for _ in range(2):
        assert callbacks.headers(auth=OAUTH)["authorization"] == "Bearer granted-9c2e"

    assert len(callbacks.transport.sent) == 4


@pytest.mark.parametrize("life", [b"null", b'""', b"9" * 400, b"[]"])
def test_a_token_whose_life_cannot_be_read_is_used_for_minutes(
    callbacks: Callbacks, life: bytes
) -> None:
    granted = response(200, b'{"access_token": "granted-9c2e", "expires_in": %s}' % life)
    callbacks.transport.answers = [granted, response()]

    for _ in range(2):
        assert callbacks.headers(auth=OAUTH)["authorization"] == "Bearer granted-9c2e"

    assert len(callbacks.transport.sent) == 3


@pytest.mark.parametrize("life", [120, 60, 1, 0])
def test_calls_at_the_same_time_fetch_one_token(callbacks: Callbacks, life: int) -> None:
    requests: list[Request] = []
    looked: set[int] = set()
    all_looked = threading.Event()

    def monotonic() -> float:
        looked.add(threading.get_ident())
        if len(looked) == 10:
            all_looked.set()
        return time.monotonic()

    def send(request: Request) -> Response:
        requests.append(request)
        assert all_looked.wait(60)  # a call that looks later than this one ends is not concurrent
        time.sleep(0.1)
        return response(200, b'{"access_token": "granted-9c2e", "expires_in": %d}' % life)

    def headers(_: int) -> dict[str, str]:
        auth = a_callback(auth=OAUTH).definition.target.http
        assert auth is not None
        return authentication.headers(auth.auth, job_key(), Masker(), send)

    authentication = Authentication(callbacks.secrets, None, None, monotonic=monotonic)
    with ThreadPoolExecutor(10) as threads:
        found = list(threads.map(headers, range(10)))

    assert found == [{"Authorization": "Bearer granted-9c2e"}] * 10
    assert len(requests) == 1


def test_a_token_server_that_hangs_delays_the_other_calls_only(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OTHER_FETCHES_WITHIN", 0.01)
    auth = a_callback(auth=OAUTH).definition.target.http
    assert auth is not None
    released, begun = threading.Event(), threading.Event()

    def hang(_: Request) -> Response:
        begun.set()
        released.wait(10)
        return GRANTED

    authentication = Authentication(callbacks.secrets, None, None)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(authentication.headers, auth.auth, job_key(), Masker(), hang)
        assert begun.wait(10)
        second = authentication.headers(auth.auth, job_key(), Masker(), lambda _: GRANTED)
        released.set()

    assert first.result() == second == {"Authorization": "Bearer granted-9c2e"}


def test_an_unexpected_error_is_recorded_without_secrets(callbacks: Callbacks) -> None:
    callbacks.transport.answers = [RuntimeError(f"a defect with {TOKEN}")]

    found = callbacks.attempt(a_callback(auth={"type": "bearer", "token": REFERENCE}))

    assert found.result.outcome is AttemptOutcome.FAILED
    assert found.result.reason == "could not be made: RuntimeError: a defect with ***"


@pytest.mark.parametrize(
    ("answer", "permanent"),
    [
        (response(400, b'{"error": "invalid_client"}'), False),
        (response(401), False),
        (response(200, b"[]"), False),
        (response(200, b'{"access_token": "a\\nb"}'), True),
        (response(503), False),
        (response(429), False),
        (CallFailedError(Problem.CONNECT, "cannot connect"), False),
        (CallFailedError(Problem.FORBIDDEN, "the destination is not allowed"), True),
    ],
)
def test_without_a_token_nothing_is_called(
    callbacks: Callbacks, answer: Any, *, permanent: bool
) -> None:
    callbacks.transport.answers = [answer]

    found = callbacks.attempt(a_callback(auth=OAUTH))

    assert len(callbacks.transport.sent) == 1
    assert (found.result.outcome, found.result.permanent) == (AttemptOutcome.FAILED, permanent)
    is_outage = "cannot connect" in repr(answer) or getattr(answer, "status", 0) in {429, 503}
    assert found.result.unavailable is is_outage, "an outage uses up no attempts"
    assert TOKEN not in repr(found)


def test_a_call_is_signed_by_each_secret(callbacks: Callbacks) -> None:
    headers = callbacks.headers(sign=[{"secret": "signing"}, {"secret": "signing"}])

    assert headers["webhook-id"] == run_key().execution_id
    assert [each.split(",")[0] for each in headers["webhook-signature"].split()] == ["v1", "v1"]


def test_the_token_server_gets_none_of_the_tls_settings_of_the_receiver(
    callbacks: Callbacks,
) -> None:
    callbacks.transport.answers = [GRANTED, response()]

    callbacks.headers(auth=OAUTH, tls={"ca": REFERENCE})

    of_token_server, of_receiver = callbacks.transport.tls
    assert of_token_server is None
    assert of_receiver is not None


def test_tls_settings_are_resolved(callbacks: Callbacks) -> None:
    callbacks.headers(tls={"ca": REFERENCE})

    [tls] = callbacks.transport.tls
    assert tls is not None
    assert (tls.ca, tls.certificate, tls.key) == (TOKEN, None, None)


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
    run = replace(a_running_run(), fence=7, key=later, attempt=2, replay_of=of)

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
        (CallFailedError(Problem.CONNECT, ""), "down"),
        (CallFailedError(Problem.NAME, ""), "down"),
        (CallFailedError(Problem.TIMEOUT, ""), "down"),
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
    [Problem.FORBIDDEN, Problem.TLS, Problem.PROTOCOL, Problem.STOPPED, Problem.BUSY],
)
def test_other_problems_say_nothing_about_the_destination(
    callbacks: Callbacks, problem: Problem
) -> None:
    callbacks.transport.answers = [CallFailedError(problem, "")]

    callbacks.attempt()

    assert callbacks.gate.reports == []


def test_the_gate_decides_whether_a_run_starts(callbacks: Callbacks) -> None:
    hold = callbacks.gate.hold = Hold(NOON + timedelta(minutes=1), "it is down")

    assert callbacks.target.admit(a_callback(), run_key(), NOON, first=True) == hold
    callbacks.target.release(a_callback(), run_key())

    execution = run_key().execution_id
    assert callbacks.gate.asked == [("acme", "api.example.com:443", execution, NOON)]
    assert callbacks.gate.left == [("acme", "api.example.com:443", execution)]


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

    callbacks.transport.answers = [CallFailedError(Problem.STOPPED, "stopped", sent=True)]

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
