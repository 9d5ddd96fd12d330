"""Tokens of OAuth: fetched once, kept while they are valid, and without effect on other calls."""

from __future__ import annotations

import base64
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.errors import UnavailableError
from nextfire.domain.masking import Masker
from nextfire.targets.http import authentication as module
from nextfire.targets.http.authentication import Authentication, Send
from nextfire.targets.http.messages import CallFailedError, Failure, Request, Response
from tests.builders import job_key
from tests.callbacks import a_callback, response
from tests.unit.http_runner.conftest import GRANTED, REFERENCE, TOKEN, Callbacks

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
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert token.headers["Authorization"] == f"Basic {basic}"
    assert call.url == "https://api.example.com/hooks"
    callbacks.headers(auth=OAUTH)
    assert len(callbacks.transport.sent) == 3
    callbacks.seconds = 61  # a minute before the token expires
    callbacks.transport.answers = [response(), response(), response(), GRANTED, response()]
    callbacks.headers(auth=OAUTH)
    assert [each.url for each in callbacks.transport.sent[3:]] == [token.url, call.url]


def test_the_id_and_the_secret_of_a_client_are_encoded(callbacks: Callbacks) -> None:
    """RFC 6749, section 2.3.1: a token server decodes both."""
    callbacks.transport.answers = [GRANTED, response()]
    callbacks.secrets.values["acme/token"] = "a+b/c=%2B:d"

    callbacks.headers(auth={**OAUTH, "clientId": "me:too"})

    sent = callbacks.transport.sent[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"me%3Atoo:a%2Bb%2Fc%3D%252B%3Ad"


def test_a_line_break_after_the_secret_of_a_client_is_not_a_part_of_it(
    callbacks: Callbacks,
) -> None:
    callbacks.transport.answers = [GRANTED, response()]
    callbacks.secrets.values["acme/token"] = f"{TOKEN}\r\n"

    callbacks.headers(auth=OAUTH)

    sent = callbacks.transport.sent[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == f"me:{TOKEN}".encode()


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


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "token": REFERENCE},
        {"type": "basic", "username": "me", "password": REFERENCE},
        {"type": "apiKey", "header": "X-Api-Key", "value": REFERENCE},
    ],
)
def test_a_secret_that_is_rejected_is_read_again_but_not_for_each_call(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch, auth: dict[str, Any], status: int
) -> None:
    reads = watched(callbacks, monkeypatch)
    callbacks.transport.answers = [response(status)]

    for callbacks.seconds in (0, 1, 4, 7, 8):
        callbacks.attempt(a_callback(auth=auth))

    assert reads == [False, True, False, False, True]


def test_the_secret_of_a_client_that_is_rejected_is_read_again(
    callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = watched(callbacks, monkeypatch)
    callbacks.transport.answers = [response(401), GRANTED, response(403), response()]

    callbacks.attempt(a_callback(auth=OAUTH))
    callbacks.attempt(a_callback(auth=OAUTH))
    callbacks.headers(auth=OAUTH)

    assert reads == [False, True, False]
    assert len(callbacks.transport.sent) == 4, "403 is not about the token"


def watched(callbacks: Callbacks, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each read of a secret asks for the present value."""
    reads: list[bool] = []
    resolve = callbacks.secrets.resolve

    def watch(tenant: str, reference: Any, *, again: bool = False) -> str:
        reads.append(again)
        return resolve(tenant, reference)

    monkeypatch.setattr(callbacks.secrets, "resolve", watch)
    return reads


@pytest.mark.parametrize("problem", [Failure.TIMEOUT, Failure.CLOSED, Failure.CONNECT])
def test_a_token_server_that_does_not_answer_defers_the_call(
    callbacks: Callbacks, problem: Failure
) -> None:
    """The callback was not sent, although the request for the token may have been."""
    callbacks.transport.answers = [CallFailedError(problem, "no response", sent=True)]

    result = callbacks.attempt(a_callback(auth=OAUTH)).result

    assert (result.unavailable, result.reason) == (True, "no token: no response")


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


@pytest.mark.parametrize("then", [GRANTED, response(400), response(503)])
def test_one_call_at_a_time_waits_for_a_token_server_that_is_down(
    callbacks: Callbacks, then: Response
) -> None:
    auth = a_callback(auth=OAUTH).definition.target.http
    assert auth is not None
    released, begun = threading.Event(), threading.Event()
    sent: list[str] = []

    def headers(send: Send) -> dict[str, str]:
        assert auth is not None
        return authentication.headers(auth.auth, job_key(), Masker(), send)

    def hang(_: Request) -> Response:
        sent.append("first")
        begun.set()
        released.wait(20)
        return then

    def send(_: Request) -> Response:
        sent.append("other")
        raise CallFailedError(Failure.TIMEOUT, "no response in time")

    authentication = Authentication(callbacks.secrets, None, None)
    with pytest.raises(UnavailableError):
        headers(send)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(headers, hang)
        assert begun.wait(10)
        with pytest.raises(UnavailableError, match="does not answer other calls"):
            headers(send)
        released.set()
        ended = first.exception()

    assert sent == ["other", "first"]
    assert (ended is None) is (then is GRANTED)
    if then is GRANTED:
        assert headers(send) == {"Authorization": "Bearer granted-9c2e"}
    assert len(sent) == 2


@pytest.mark.parametrize(
    ("answer", "permanent"),
    [
        (response(400, b'{"error": "invalid_client"}'), False),
        (response(401), False),
        (response(200, b"[]"), False),
        (response(200, b'{"access_token": "a\\nb"}'), True),
        (response(503), False),
        (response(429), False),
        (CallFailedError(Failure.CONNECT, "cannot connect"), False),
        (CallFailedError(Failure.FORBIDDEN, "the destination is not allowed"), True),
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


def test_the_token_server_gets_none_of_the_tls_settings_of_the_receiver(
    callbacks: Callbacks,
) -> None:
    callbacks.transport.answers = [GRANTED, response()]

    callbacks.headers(auth=OAUTH, tls={"ca": REFERENCE})

    of_token_server, of_receiver = callbacks.transport.tls
    assert of_token_server is None
    assert of_receiver is not None
