"""Requests that the client sends, and how it reads responses."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from nextfire import ApiError, JobRequest
from nextfire.client import Bearer
from nextfire.client.operations import up_to
from nextfire.domain.occurrences import JobState
from nextfire.responses.jobs import JobResponse
from nextfire.responses.keys import NewKeyResponse
from nextfire.responses.scripts import UploadResponse
from tests.unit.client_calls import LOCAL, REMOTE, Api, Clock, client


def expected_signature(request: httpx2.Request) -> str:
    """AWS Signature Version 4 as the service computes it from the received request."""
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
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        first = len(seen) == 1
        return httpx2.Response(
            200, json={"items": [{}] * 60, **({"cursor": "a+b/c= &d~ü"} if first else {})}
        )

    up_to(100, client(answer, endpoint).list_jobs)
    client(answer, endpoint).create_job({"name": "ü", "payload": {"a": [1, 2]}})

    assert len(seen) == 3
    assert "cursor=a%2Bb%2Fc%3D%20%26d~%C3%BC" in str(seen[1].url)
    for request in seen:
        assert request.headers["Authorization"].endswith(expected_signature(request))
        assert request.headers["X-Amz-Security-Token"] == "token"
        assert str(request.url).startswith(f"{endpoint}/v1/jobs")


def test_a_list_is_read_page_by_page_up_to_its_limit() -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        limit, cursor = request.url.params["limit"], request.url.params.get("cursor")
        asked.append((limit, cursor))
        return httpx2.Response(
            200, json={"items": [{"jobId": "j"}] * int(limit), "cursor": f"c{len(asked)}"}
        )

    items, more = up_to(230, client(answer).list_jobs)

    assert (len(items), more) == (230, True)
    assert asked == [("100", None), ("100", "c1"), ("30", "c2")]


def test_a_list_that_is_shorter_than_its_limit_is_read_once() -> None:
    api = Api({"items": [{"jobId": "j"}]})

    items, more = up_to(230, client(api).list_jobs)

    assert (len(items), more, len(api.came)) == (1, False, 1)


def test_an_empty_page_in_the_middle_ends_nothing() -> None:
    pages: list[dict[str, Any]] = [
        {"items": [], "cursor": "c"},
        {"items": [{"executionId": "e"}]},
    ]

    found = client(lambda _: httpx2.Response(200, json=pages.pop(0))).executions("j")

    assert [each.execution_id for each in found] == ["e"]


@pytest.mark.parametrize(
    ("kind", "expected"), [("key", "wrong, expired or revoked"), ("token", "issuer")]
)
def test_a_key_or_token_goes_with_each_request_and_its_refusal_is_reported(
    kind: str, expected: str
) -> None:
    sent: list[str] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["Authorization"])
        return httpx2.Response(403, json={"message": "Forbidden"})

    caller = client(refuse, auth=Bearer("nf.acme.x.y", kind))
    with pytest.raises(ApiError) as refused:
        caller.get_job("j")

    assert sent == ["Bearer nf.acme.x.y"]
    assert expected in refused.value.remedy
    assert "nf.acme.x.y" not in str(refused.value)


# Requests and responses


def test_a_job_request_is_sent_as_it_was_set() -> None:
    api = Api({"jobId": "j"})
    job = JobRequest.model_validate(
        {
            "job_id": "j",
            "type": "CRON",
            "schedule": "0 3 * * *",
            "target": {"handler": "report"},
            "payload": None,
            "name": None,
        }
    )

    client(api).create_job(job)

    assert json.loads(api.came[0].content) == {
        "jobId": "j",
        "type": "CRON",
        "schedule": "0 3 * * *",
        "target": {"handler": "report"},
        "payload": None,
    }


def test_a_null_payload_is_sent() -> None:
    api = Api({"executionId": "e"}, {"executionId": "e"})

    client(api).run_job("j", payload=None)
    client(api).run_job("j")

    assert [json.loads(request.content) for request in api.came] == [{"payload": None}, {}]


def test_instants_are_sent_as_texts_and_naive_ones_not_at_all() -> None:
    api = Api({"jobId": "j"})
    until = datetime(2027, 1, 2, 6, tzinfo=UTC)

    client(api).pause_job("j", until=until)
    with pytest.raises(ValueError, match=r"until: .* has no time zone"):
        client(api).pause_job("j", until=until.replace(tzinfo=None))

    assert json.loads(api.came[0].content) == {"until": "2027-01-02T06:00:00+00:00"}


def test_an_answer_is_read_by_its_types() -> None:
    document = {
        "jobId": "j",
        "state": "PAUSED",
        "createdAt": "2026-05-23T17:12:08.120Z",
        "retryPolicy": {"retryOn": {"states": ["FAILED"]}},
    }
    headers = {"ETag": '"v1"'}
    job = client(lambda _: httpx2.Response(200, json=document, headers=headers)).get_job("j")

    assert (job.job_id, job.etag, job.document) == ("j", '"v1"', document)
    assert job.state is JobState.PAUSED
    assert job.created_at == datetime(2026, 5, 23, 17, 12, 8, 120_000, UTC)
    assert job.retry_policy.retry_on.states == ["FAILED"]
    assert job.last_run is None


def test_an_answer_of_a_newer_api_breaks_nothing() -> None:
    job = JobResponse({"jobId": "j", "state": "DRAINED", "colour": "red"})

    assert (job.state, job.document["colour"]) == ("DRAINED", "red")
    with pytest.raises(AttributeError, match="has no 'createdAt'"):
        _ = job.created_at
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = job.colour


def test_the_text_of_a_key_is_in_no_representation() -> None:
    made = NewKeyResponse({"keyId": "k", "key": "nf.acme.k.secret"})

    assert made.key == "nf.acme.k.secret"
    assert repr(made) == "NewKeyResponse({'keyId': 'k'})"


def test_the_url_of_an_upload_is_in_no_representation() -> None:
    upload = UploadResponse({"handler": "h", "uploadUrl": "https://secret"})

    assert upload.upload_url == "https://secret"
    assert repr(upload) == "UploadResponse({'handler': 'h'})"


def test_an_answer_is_shown_with_its_kind_and_its_document() -> None:
    assert repr(JobResponse({"jobId": "j"})) == "JobResponse({'jobId': 'j'})"


def test_a_log_is_followed_until_it_has_ended() -> None:
    line = {"attempt": 1, "stream": "stdout", "text": "a"}
    api = Api(
        {"items": [line], "cursor": "1", "ended": False},
        {"items": [], "cursor": "1", "ended": False},
        {"items": [line], "ended": True},
    )
    clock = Clock()

    lines = [*client(api, clock=clock).log("e", follow=True)]

    assert [each.text for each in lines] == ["a", "a"]
    assert clock.slept == [1.0]


def test_an_empty_page_of_a_log_that_has_ended_is_not_its_last() -> None:
    line = {"attempt": 2, "stream": "stdout", "text": "a"}
    api = Api({"items": [], "cursor": "1", "ended": True}, {"items": [line], "ended": True})

    assert [each.text for each in client(api).log("e")] == ["a"]
