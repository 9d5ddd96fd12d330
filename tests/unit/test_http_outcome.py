"""What a response, or its absence, means for the run."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.attempt import MAX_CALL_BYTES, AttemptOutcome
from nextfire.domain.masking import Masker
from nextfire.domain.ports.targets import AttemptResult
from nextfire.targets.http.document import HttpCall
from nextfire.targets.http.messages import CallFailedError, Failure, Request
from nextfire.targets.http.outcome import destination_of, result_of, result_without_response
from nextfire.targets.http.retry_after import retry_at
from tests.builders import NOON
from tests.callbacks import response

URL = "https://api.example.com/hooks?key=hidden"
REQUEST = Request("POST", URL, {}, b"{}")
TOKEN = "planted-token-8d1f"


def judged(
    status: int, body: bytes = b"", *, success: Any = ("2xx",), **headers: Any
) -> AttemptResult:
    call = HttpCall(url=URL, success=success)
    masker = Masker([TOKEN])
    return result_of(call, REQUEST, response(status, body, **headers), masker, NOON)


def judged_with(masker: Masker, body: bytes) -> AttemptResult:
    return result_of(HttpCall(url=URL), REQUEST, response(500, body), masker, NOON)


@pytest.mark.parametrize("body", [b'{"a": 1e999}', b'{"a": -1e999}', b'{"a": NaN}'])
def test_numbers_that_json_does_not_have_are_null(body: bytes) -> None:
    found = judged(200, body)

    assert json.loads(found.given or b"", parse_constant=pytest.fail)["body"] == {"a": None}


def test_a_success_has_the_response_as_its_result() -> None:
    body = b'{"id": 3}'
    found = judged(201, body, Content_Type="application/json", Set_Cookie="a=b", X_Request_Id="r1")

    assert (found.result.outcome, found.result.reason) == (AttemptOutcome.SUCCEEDED, "201 Created")
    assert json.loads(found.given or b"") == {
        "status": 201,
        "headers": {"content-type": "application/json", "x-request-id": "r1"},
        "body": {"id": 3},
    }
    record = json.loads(found.result.call or "")
    assert record["url"] == "https://api.example.com/hooks?…"
    assert record["timingsMs"] == {
        "dns": 100.0, "connect": 200.0, "tls": 300.0, "firstByte": 400.0, "total": 1000,
    }  # fmt: skip
    assert (record["status"], record["address"]) == (201, "93.184.216.34:443")


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 304, 400, 401, 404, 409, 418, 500, 599]
)
def test_other_responses_are_failures_that_count(status: int) -> None:
    result = judged(status).result

    assert result.outcome is AttemptOutcome.FAILED
    assert (result.unavailable, result.permanent, result.pause) == (False, False, None)
    assert str(status) in result.reason


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_throttles_do_not_count(status: int) -> None:
    result = judged(status, Retry_After="30").result

    assert result.unavailable
    assert result.retry_at == NOON + timedelta(seconds=30)


def test_gone_ends_the_run_and_asks_for_a_pause_unless_it_is_a_success() -> None:
    assert judged(410).result.permanent
    assert "410 Gone" in (judged(410).result.pause or "")
    assert judged(410, success=("410",)).result.pause is None
    assert judged(410, success=("410",)).result.outcome is AttemptOutcome.SUCCEEDED


def test_a_redirect_says_that_it_is_not_followed() -> None:
    result = judged(302, Location="https://elsewhere.example").result

    assert "not followed" in result.reason
    assert json.loads(result.call or "")["headers"]["location"] == "https://elsewhere.example"


@pytest.mark.parametrize(
    ("problem", "outcome", "unavailable", "permanent"),
    [
        (Failure.FORBIDDEN, AttemptOutcome.FAILED, False, True),
        (Failure.NAME, AttemptOutcome.FAILED, True, False),
        (Failure.CONNECT, AttemptOutcome.FAILED, True, False),
        (Failure.BUSY, AttemptOutcome.FAILED, True, False),
        (Failure.TLS, AttemptOutcome.FAILED, False, False),
        (Failure.TIMEOUT, AttemptOutcome.TIMED_OUT, False, False),
        (Failure.PROTOCOL, AttemptOutcome.FAILED, False, False),
    ],
)
def test_a_call_without_a_response(
    problem: Failure, outcome: AttemptOutcome, *, unavailable: bool, permanent: bool
) -> None:
    error = CallFailedError(problem, "why", sent=problem is Failure.TIMEOUT)

    result = result_without_response(HttpCall(url=URL), REQUEST, error, Masker()).result

    assert (result.outcome, result.unavailable, result.permanent, result.reason) == (
        outcome,
        unavailable,
        permanent,
        "why",
    )
    assert json.loads(result.call or "")["sent"] is error.sent


def test_secrets_in_a_response_are_masked() -> None:
    echo = f'{{"echo": "Bearer {TOKEN}"}}'.encode()
    for status in (200, 500):
        found = judged(status, echo, Content_Type="application/json", Location=f"/?{TOKEN}")

        assert TOKEN not in repr(found)


@pytest.mark.parametrize("status", [200, 500])
def test_the_start_of_a_secret_at_the_end_of_a_cut_body_is_not_recorded(status: int) -> None:
    cut = response(status, b"echo: " + TOKEN[:-1].encode(), truncated=True)

    found = result_of(HttpCall(url=URL), REQUEST, cut, Masker([TOKEN]), NOON)

    assert "planted" not in repr(found)
    assert "echo: " in repr(found)


@given(st.integers(100, 599), st.binary(max_size=3000), st.text(max_size=300))
def test_any_response_makes_a_record_within_its_limit(
    status: int, body: bytes, header: str
) -> None:
    found = judged(status, body, Content_Type=header, Location=header * 10, Retry_After=header)

    assert len((found.result.call or "").encode()) <= MAX_CALL_BYTES
    json.loads(found.result.call or "")
    if found.given is not None:
        json.loads(found.given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1", 1), ("120", 120), (" 5 ", 5), ("86400", 86_400), ("999999999999", 86_400)),
        *(("0", None), ("-5", None), ("1.5", None), ("", None), ("soon", None), ("1e3", None)),
        *(("٣", None), ("9" * 40, None), ("5, 6", None), ("Infinity", None), ("0x10", None)),
        ("Sun, 24 May 2026 12:00:30 GMT", 30),
        ("Sunday, 24-May-26 12:00:30 GMT", 30),
        ("Sun May 24 12:00:30 2026", 30),
        ("Sun, 24 May 2026 11:00:00 GMT", None),
        ("Sun, 24 May 9999 12:00:30 GMT", 86_400),
        ("Sun, 24 May 2026 25:61:61 GMT", None),
        ("Mon, 99 Foo 2026 12:00:30 GMT" * 9, None),
    ],
)
def test_retry_after_is_bounded_or_ignored(text: str, seconds: int | None) -> None:
    found = retry_at([("retry-after", text)], NOON)

    assert found == (None if seconds is None else NOON + timedelta(seconds=seconds))


def test_contradicting_retry_afters_are_ignored() -> None:
    assert retry_at([("Retry-After", "1"), ("retry-after", "2")], NOON) is None
    assert retry_at([("Retry-After", "2"), ("retry-after", "2")], NOON) is not None
    assert retry_at([], NOON) is None


@given(st.text(max_size=100))
def test_no_retry_after_is_an_exception(text: str) -> None:
    found = retry_at([("Retry-After", text)], NOON)

    assert found is None or NOON < found <= NOON + timedelta(days=1)


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        ("https://API.example.com/a?b", "api.example.com:443"),
        ("http://example.com", "example.com:80"),
        ("https://example.com:8443/x", "example.com:8443"),
        ("https://[2606:4700::1]/", "[2606:4700::1]:443"),
    ],
)
def test_the_destination_of_a_url(url: str, destination: str) -> None:
    assert destination_of(url) == destination


def test_a_recorded_request_has_no_credentials() -> None:
    auth = {"type": "apiKey", "header": "X-Api-Key", "value": {"secret": "short"}}
    call = HttpCall.model_validate({"url": URL, "auth": auth, "recordRequest": True})
    headers = {
        "User-Agent": "nextfire/1",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=abc",
        "X-Amz-Security-Token": "session",
        "webhook-signature": "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= v1a,hnO3f9T8Ytu9Hw",
        "x-api-key": "short and secret",
        "X-Other": f"a {TOKEN}",
    }
    request = Request("POST", URL, headers, b"x" * 500 + TOKEN.encode() * 3)

    found = result_of(call, request, response(200), Masker([TOKEN]), NOON)

    record = json.loads(found.result.call or "")
    assert record["request"]["headers"] == {
        "User-Agent": "nextfire/1",
        "Authorization": "AWS4-HMAC-SHA256 ***",
        "X-Amz-Security-Token": "***",
        "webhook-signature": "v1,*** v1a,***",
        "x-api-key": "***",
        "X-Other": "a ***",
    }
    assert record["request"]["body"] == "x" * 500 + "***", "adjacent secrets are one"


def test_a_request_is_recorded_only_if_the_job_asks_for_it() -> None:
    assert "request" not in json.loads(judged(200).result.call or "")


def test_a_record_that_is_too_long_keeps_the_request_longest() -> None:
    call = HttpCall(url=URL, record_request=True)
    headers = {f"X-Header-{n}": "v" * 100 for n in range(10)}
    shown: Any = {"x-request-id": "r" * 128, "content-type": "text/plain", "location": "l" * 128}
    answer = response(200, b"b" * 512, **shown)

    found = result_of(call, Request("POST", URL, headers, b"{}"), answer, Masker(), NOON)

    record = json.loads(found.result.call or "")
    assert len(found.result.call or "") <= MAX_CALL_BYTES
    assert {*record["request"]["headers"].values()} == {"v" * 100}
    assert record["body"] == "b" * 128
    assert record["cut"] is True


def test_a_request_that_is_too_long_is_cut_before_the_response() -> None:
    call = HttpCall(url=URL, record_request=True)
    headers = {f"X-Header-{n}": "v" * 60 for n in range(25)}
    sent = Request("POST", URL, headers, ("語" * 512).encode())

    found = result_of(call, sent, response(200, b"thanks"), Masker(), NOON)

    record = json.loads(found.result.call or "")
    assert len((found.result.call or "").encode()) <= MAX_CALL_BYTES
    assert (record["body"], record["cut"]) == ("thanks", True)
    assert {*record["request"]["headers"].values()} == {"v" * 32}


def test_whatever_is_too_long_the_rest_is_recorded() -> None:
    call = HttpCall(url=URL, record_request=True)
    headers = {f"X-Header-Of-A-Long-Name-{n}": "v" * 60 for n in range(50)}

    found = result_of(call, Request("POST", URL, headers, b""), response(200), Masker(), NOON)

    record = json.loads(found.result.call or "")
    assert len((found.result.call or "").encode()) <= MAX_CALL_BYTES
    assert (record["status"], "request" in record) == (200, False)


def test_a_part_of_a_secret_is_not_recorded() -> None:
    """Masked values are shorter: the text that is kept may come from far behind."""
    secret = "s" * 30 + "e" * 470

    found = judged_with(Masker([secret]), secret.encode() * 6)

    assert "eeee" not in (found.result.call or "")


def test_a_connection_that_timed_out_uses_up_no_attempt() -> None:
    error = CallFailedError(Failure.TIMEOUT, "no connection in time", sent=False)

    result = result_without_response(HttpCall(url=URL), REQUEST, error, Masker()).result

    assert (result.outcome, result.unavailable) == (AttemptOutcome.TIMED_OUT, True)
