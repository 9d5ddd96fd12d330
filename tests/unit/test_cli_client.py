"""Requests as they leave this machine, and what becomes of answers."""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from botocore.credentials import Credentials  # noqa: TID251 - the caller's, made up

from nextfire_cli.aws import Signature
from nextfire_cli.client import Bearer, Client
from nextfire_cli.errors import ApiError, CliError

REMOTE = "https://abc123.execute-api.eu-west-1.amazonaws.com"
LOCAL = "http://127.0.0.1:4566/_aws/execute-api/abc123/$default"


def client(answer: Callable[[httpx.Request], httpx.Response], endpoint: str = REMOTE) -> Client:
    signature = Signature(Credentials("AKIDEXAMPLE", "secret", "token"), "eu-west-1")
    return Client(endpoint, signature, httpx.MockTransport(answer))


def expected_signature(request: httpx.Request) -> str:
    """AWS Signature Version 4 as the service computes it, from the request as it arrived."""
    path, _, query = request.url.raw_path.decode().partition("?")
    fields = dict(
        part.split("=", 1)
        for part in request.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", ")
    )
    canonical = "\n".join(
        [
            request.method,
            quote(path, safe="/-_.~"),
            "&".join(sorted(query.split("&"))),
            *(f"{name}:{request.headers[name]}" for name in fields["SignedHeaders"].split(";")),
            "",
            fields["SignedHeaders"],
            hashlib.sha256(request.content).hexdigest(),
        ]
    )
    _, day, region, service, _ = fields["Credential"].split("/")
    assert (region, service) == ("eu-west-1", "execute-api")
    key = b"AWS4secret"
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            request.headers["X-Amz-Date"],
            f"{day}/{region}/{service}/aws4_request",
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize("endpoint", [REMOTE, LOCAL])
def test_the_signature_covers_what_is_sent(endpoint: str) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        first = len(seen) == 1
        return httpx.Response(
            200, json={"items": [{}] * 60, **({"cursor": "a+b/c= &d~ü"} if first else {})}
        )

    client(answer, endpoint).jobs(limit=100)
    client(answer, endpoint).create_job({"name": "ü", "payload": {"a": [1, 2]}})

    assert len(seen) == 3
    assert "cursor=a%2Bb%2Fc%3D%20%26d~%C3%BC" in str(seen[1].url)
    for request in seen:
        assert request.headers["Authorization"].endswith(expected_signature(request))
        assert request.headers["X-Amz-Security-Token"] == "token"
        assert str(request.url).startswith(f"{endpoint}/v1/jobs")


def test_a_list_is_read_page_by_page_up_to_its_limit() -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        limit, cursor = request.url.params["limit"], request.url.params.get("cursor")
        asked.append((limit, cursor))
        return httpx.Response(
            200, json={"items": [{"jobId": "j"}] * int(limit), "cursor": f"c{len(asked)}"}
        )

    items, more = client(answer).jobs(limit=230)

    assert (len(items), more) == (230, True)
    assert asked == [("100", None), ("100", "c1"), ("30", "c2")]


def test_an_empty_page_in_the_middle_ends_nothing() -> None:
    pages: list[dict[str, Any]] = [
        {"items": [], "cursor": "c"},
        {"items": [{"executionId": "e"}]},
    ]

    items, more = client(lambda _: httpx.Response(200, json=pages.pop(0))).executions("j", limit=5)

    assert (items, more) == ([{"executionId": "e"}], False)


def test_a_problem_document_is_told_with_its_fields() -> None:
    problem = {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "all of it again",
        "errors": [
            {
                "field": "schedule",
                "value": "'* * *'",
                "problem": "has 3 fields",
                "remedy": "Give five.",
            }
        ],
    }
    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx.Response(422, json=problem)).create_job({})

    assert refused.value.problem == "Unprocessable Content (422)."
    assert refused.value.remedy == "schedule: has 3 fields (got '* * *'). Give five."
    assert refused.value.document() == problem


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, {"message": "Unauthorized"}, "--auth"),
        (403, {"message": "Forbidden"}, "execute-api:Invoke"),
        (404, {"message": "Not Found"}, "--endpoint"),
        (413, {"message": "Request Entity Too Large"}, "64 KiB"),
        (429, {"message": "Too Many Requests"}, "Wait"),
        (500, {"message": "Internal Server Error"}, "log"),
        (503, {"message": "Service Unavailable"}, "Try again"),
        (504, {"message": "Endpoint request timed out"}, "look before you repeat"),
    ],
)
def test_the_gateways_own_answers_say_what_to_do(
    status: int, body: dict[str, str], expected: str
) -> None:
    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx.Response(status, json=body)).job("j")

    assert refused.value.status == status
    assert body["message"] in refused.value.remedy
    assert expected in str(refused.value)


def test_an_error_page_that_is_no_json_is_an_error_of_its_status() -> None:
    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx.Response(502, text="<html>")).job("j")
    assert refused.value.status == 502


@pytest.mark.parametrize("text", ["<html>", json.dumps(["no", "object"])])
def test_an_answer_that_is_no_document_is_an_error(text: str) -> None:
    with pytest.raises(CliError, match="nextfire API"):
        client(lambda _: httpx.Response(200, text=text)).job("j")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [(LOCAL, "not up: start it with `nextfire up`"), (REMOTE, "NEXTFIRE_ENDPOINT")],
)
def test_an_endpoint_that_is_not_there_says_what_to_do(endpoint: str, expected: str) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(CliError, match=expected):
        client(refuse, endpoint).health()


def test_pydantics_own_words_are_left_out() -> None:
    fault = {"field": "target", "problem": "Value error, give either handler or script"}
    problem = {"title": "Unprocessable Content", "status": 422, "errors": [fault]}

    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx.Response(422, json=problem)).create_job({})

    assert refused.value.remedy == "target: give either handler or script."


def test_after_a_timeout_nobody_is_told_that_nothing_happened() -> None:
    def hang(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow", request=request)

    with pytest.raises(CliError, match="may have been carried out"):
        client(hang).create_job({})


@pytest.mark.parametrize(
    ("kind", "expected"), [("key", "wrong, expired or revoked"), ("token", "issuer")]
)
def test_a_key_or_token_goes_with_each_request_and_its_refusal_is_told(
    kind: str, expected: str
) -> None:
    sent: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["Authorization"])
        return httpx.Response(403, json={"message": "Forbidden"})

    caller = Client(REMOTE, Bearer("nf.acme.x.y", kind), httpx.MockTransport(refuse))
    with pytest.raises(ApiError) as refused:
        caller.job("j")

    assert sent == ["Bearer nf.acme.x.y"]
    assert expected in refused.value.remedy
    assert "nf.acme.x.y" not in str(refused.value)


def test_a_scope_that_lacks_is_told_as_the_api_tells_it() -> None:
    problem = {"title": "Forbidden", "status": 403, "detail": "This needs the scope `write`."}

    with pytest.raises(ApiError, match="`write`"):
        client(lambda _: httpx.Response(403, json=problem)).job("j")
