"""How the client reports problems of the API, of the gateway and of the network."""

import json
from typing import Any

import httpx2
import pytest

from nextfire import (
    ApiError,
    ClientError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from tests.unit.client_calls import LOCAL, REMOTE, client


def test_a_problem_document_is_reported_with_its_fields() -> None:
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
        client(lambda _: httpx2.Response(422, json=problem)).create_job({})

    assert refused.value.problem == "Unprocessable Content (422)."
    assert refused.value.remedy == "schedule: has 3 fields (got '* * *'). Give five."
    assert refused.value.document() == problem


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        (302, {"message": "Found"}, Invalid, "Redirects are not followed"),
        (400, {"message": "Bad Request"}, Invalid, "headers"),
        (401, {"message": "Unauthorized"}, Unauthorized, 'auth="iam"'),
        (403, {"message": "Forbidden"}, Forbidden, "execute-api:Invoke"),
        (404, {"message": "Not Found"}, NotFound, "endpoint=URL"),
        (413, {"message": "Request Entity Too Large"}, Invalid, "64 KiB"),
        (429, {"message": "Too Many Requests"}, RateLimited, "Wait"),
        (500, {"message": "Internal Server Error"}, Unavailable, "log"),
        (503, {"message": "Service Unavailable"}, Unavailable, "Try again"),
        (504, {"message": "Endpoint request timed out"}, Unavailable, "look before you repeat"),
    ],
)
def test_the_gateways_own_answers_say_what_to_do(
    status: int, body: dict[str, str], kind: type[ApiError], expected: str
) -> None:
    headers = {"apigw-requestid": "r-1"}
    with pytest.raises(kind) as refused:
        client(lambda _: httpx2.Response(status, json=body, headers=headers)).get_job("j")

    assert (refused.value.status, refused.value.request_id) == (status, "r-1")
    assert refused.value.by_gateway
    assert body["message"] in refused.value.remedy
    assert expected in str(refused.value)


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_what_would_name_another_path_is_not_sent(text: str) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"items": []})

    caller = client(answer)
    for ask in (caller.get_job, caller.stop_backfill, caller.get_execution, caller.revoke_key):
        with pytest.raises(ClientError, match="is not an id or a name"):
            ask(text)


def test_an_error_page_that_is_not_json_is_an_error_of_its_status() -> None:
    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx2.Response(502, text="<html>")).get_job("j")
    assert refused.value.status == 502


@pytest.mark.parametrize(
    "errors", [{"name": ["is required"]}, ["name is required"], "name is required", 1]
)
def test_a_problem_document_of_a_proxy_is_an_error_of_its_status(errors: object) -> None:
    """RFC 9457 leaves the other members to the server."""
    problem = {"title": "Bad Gateway", "detail": "No server is up.", "errors": errors}

    with pytest.raises(ApiError, match="No server is up") as refused:
        client(lambda _: httpx2.Response(502, json=problem)).get_job("j")

    assert (refused.value.status, refused.value.errors) == (502, [])


@pytest.mark.parametrize("text", ["<html>", json.dumps(["no", "object"]), "[" * 100_000])
def test_an_answer_that_is_not_a_document_is_an_error(text: str) -> None:
    with pytest.raises(ClientError, match="nextfire API"):
        client(lambda _: httpx2.Response(200, text=text)).get_job("j")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [(LOCAL, "not up: start it with `nextfire up`"), (REMOTE, "NEXTFIRE_ENDPOINT")],
)
def test_an_endpoint_that_is_not_there_says_what_to_do(endpoint: str, expected: str) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(ClientError, match=expected):
        client(refuse, endpoint).get_health()


def test_after_a_timeout_no_caller_learns_that_nothing_happened() -> None:
    def hang(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("slow", request=request)

    with pytest.raises(ClientError, match="may have been carried out"):
        client(hang).create_job({})


def test_a_missing_scope_is_reported_in_the_words_of_the_api() -> None:
    problem = {
        "title": "Forbidden",
        "status": 403,
        "detail": "This request needs the scope `write`.",
    }

    with pytest.raises(ApiError, match="`write`"):
        client(lambda _: httpx2.Response(403, json=problem)).get_job("j")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (403, Forbidden),
        (404, NotFound),
        (405, Invalid),
        (409, Conflict),
        (412, PreconditionFailed),
        (422, Invalid),
        (429, RateLimited),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[ApiError]) -> None:
    problem = {"title": "No", "status": status, "detail": "Why.", "quota": "jobs"}

    with pytest.raises(kind) as refused:
        client(lambda _: httpx2.Response(status, json=problem)).get_job("j")

    assert type(refused.value) is kind
    assert (refused.value.title, refused.value.detail) == ("No", "Why.")
    assert refused.value.quota == "jobs"
    assert not refused.value.by_gateway


def test_a_script_that_is_text_is_a_type_error_that_names_the_argument() -> None:
    source: Any = "print('hello')"

    with pytest.raises(TypeError, match="source is a str: give bytes"):
        client(lambda _: httpx2.Response(500)).push_script("hello", source)
