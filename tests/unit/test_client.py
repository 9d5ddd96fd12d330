"""Requests that the client sends, and how it reads responses."""

import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from botocore.credentials import Credentials  # noqa: TID251 - the caller's, made up

import nextfire
from nextfire import (
    ApiError,
    Client,
    ClientError,
    Conflict,
    Forbidden,
    Invalid,
    JobRequest,
    NotFound,
    PreconditionFailed,
    RateLimited,
    Unauthorized,
    Unavailable,
    UnreachableError,
)
from nextfire.client import Bearer
from nextfire.client.folder import write_private
from nextfire.client.operations import up_to
from nextfire.client.signing import Signature
from nextfire.domain.occurrences import JobState
from nextfire.responses.jobs import JobResponse
from nextfire.responses.keys import NewKeyResponse
from nextfire.responses.scripts import UploadResponse

REMOTE = "https://abc123.execute-api.eu-west-1.amazonaws.com"
LOCAL = "http://127.0.0.1:4566/_aws/execute-api/abc123/$default"


Handler = Callable[[httpx2.Request], httpx2.Response]


class Clock:
    """A clock that moves only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


def client(
    answer: Handler,
    endpoint: str = REMOTE,
    auth: httpx2.Auth | None = None,
    clock: Clock | None = None,
    retries: int = 3,
) -> Client:
    clock = clock or Clock()
    return Client(
        endpoint,
        auth=auth or Signature(Credentials("AKIDEXAMPLE", "secret", "token"), "eu-west-1"),
        transport=httpx2.MockTransport(answer),
        sleep=clock.sleep,
        monotonic=clock.monotonic,
        retries=retries,
    )


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
        client(lambda _: httpx2.Response(422, json=problem)).create_job({})

    assert refused.value.problem == "Unprocessable Content (422)."
    assert refused.value.remedy == "schedule: has 3 fields (got '* * *'). Give five."
    assert refused.value.document() == problem


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        (400, {"message": "Bad Request"}, Invalid, "headers"),
        (401, {"message": "Unauthorized"}, Unauthorized, "--auth"),
        (403, {"message": "Forbidden"}, Forbidden, "execute-api:Invoke"),
        (404, {"message": "Not Found"}, NotFound, "--endpoint"),
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


def test_an_error_page_that_is_no_json_is_an_error_of_its_status() -> None:
    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx2.Response(502, text="<html>")).get_job("j")
    assert refused.value.status == 502


@pytest.mark.parametrize("text", ["<html>", json.dumps(["no", "object"])])
def test_an_answer_that_is_no_document_is_an_error(text: str) -> None:
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


def test_pydantics_own_words_are_left_out() -> None:
    fault = {"field": "target", "problem": "Value error, give either handler or script"}
    problem = {"title": "Unprocessable Content", "status": 422, "errors": [fault]}

    with pytest.raises(ApiError) as refused:
        client(lambda _: httpx2.Response(422, json=problem)).create_job({})

    assert refused.value.remedy == "target: give either handler or script."


def test_after_a_timeout_nobody_is_told_that_nothing_happened() -> None:
    def hang(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("slow", request=request)

    with pytest.raises(ClientError, match="may have been carried out"):
        client(hang).create_job({})


@pytest.mark.parametrize(
    ("kind", "expected"), [("key", "wrong, expired or revoked"), ("token", "issuer")]
)
def test_a_key_or_token_goes_with_each_request_and_its_refusal_is_told(
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


# Retries


class Api:
    """Answers with *answers* in order; records the requests."""

    def __init__(self, *answers: int | Exception | dict[str, Any]) -> None:
        self.answers = [*answers]
        self.came: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.came.append(request)
        match self.answers.pop(0):
            case Exception() as error:
                raise error
            case int(status):
                return httpx2.Response(status, json={"message": "no"})
            case found:
                return httpx2.Response(200, json=found)


LOST = httpx2.ReadError("gone")
REFUSED = httpx2.ConnectError("refused")


@pytest.mark.parametrize("failure", [429, 500, 502, 503, 504, LOST, REFUSED])
def test_transient_failures_are_retried_with_backoff(
    failure: int | Exception,
) -> None:
    api, clock = Api(failure, failure, failure, {"jobId": "j"}), Clock()

    assert client(api, clock=clock).get_job("j").job_id == "j"

    assert len(api.came) == 4
    first, second, third = clock.slept
    assert 0.1 <= first <= 0.3 < 2 * second <= 1.2
    assert 0.4 <= third <= 1.2


def test_the_last_error_is_raised_when_retries_are_used_up() -> None:
    api = Api(503, 503, 503)

    with pytest.raises(Unavailable):
        client(api, retries=2).get_job("j")

    assert len(api.came) == 3


def test_no_retry_begins_after_the_timeout() -> None:
    clock = Clock()

    def slow(_: httpx2.Request) -> httpx2.Response:
        clock.now += 30
        raise httpx2.ReadTimeout("slow")

    with pytest.raises(UnreachableError, match="did not answer within 30 s") as lost:
        client(slow, clock=clock).get_job("j")

    assert lost.value.maybe_done
    assert clock.slept == []


@pytest.mark.parametrize(("asked", "tries"), [(7, 2), (21, 1)])
def test_retry_after_is_honored_up_to_a_limit(asked: int, tries: int) -> None:
    clock, came = Clock(), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        came.append(request)
        if len(came) > 1:
            return httpx2.Response(200, json={"jobId": "j"})
        problem = {"title": "Too Many Requests", "quota": "runsPerMinute"}
        return httpx2.Response(429, json=problem, headers={"Retry-After": str(asked)})

    if tries == 1:
        with pytest.raises(RateLimited) as refused:
            client(answer, clock=clock).create_job({})
        assert (refused.value.retry_after, refused.value.quota) == (21, "runsPerMinute")
    else:
        client(answer, clock=clock).create_job({})
        assert clock.slept == [asked]
    assert len(came) == tries


@pytest.mark.parametrize("answer", [400, 401, 403, 404, 409, 412, 422])
def test_a_refusal_is_not_tried_again(answer: int) -> None:
    api = Api(answer)

    with pytest.raises(ApiError):
        client(api).create_job({})


def test_a_fault_of_the_api_itself_is_not_tried_again() -> None:
    came = []

    def fault(request: httpx2.Request) -> httpx2.Response:
        came.append(request)
        return httpx2.Response(500, json={"title": "Internal Server Error", "status": 500})

    with pytest.raises(Unavailable):
        client(fault).get_job("j")
    assert len(came) == 1


def test_every_try_of_a_post_bears_one_key_and_every_post_another() -> None:
    api = Api(LOST, {"jobId": "j"}, {"jobId": "k"}, {"jobId": "l"})
    caller = client(api)

    caller.create_job({})
    caller.create_job({})
    caller.pause_job("l", idempotency_key="mine")

    first, again, second, mine = (request.headers["Idempotency-Key"] for request in api.came)
    assert first == again != second
    assert mine == "mine"


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.delete_job("j"),
        lambda c: c.undo_skip_next("j"),
        lambda c: c.revoke_key("k"),
        lambda c: c.change_job("j", {}, if_match='"1"'),
        lambda c: c.put_job("j", {}, if_none_match="*"),
    ],
)
@pytest.mark.parametrize("failure", [LOST, 503, 504])
def test_requests_that_are_not_idempotent_are_sent_once(
    ask: Callable[[Client], object], failure: int | Exception
) -> None:
    api = Api(failure)

    with pytest.raises((UnreachableError, Unavailable)):
        ask(client(api))


@pytest.mark.parametrize("failure", [REFUSED, 429])
def test_requests_that_took_no_effect_are_always_retried(failure: int | Exception) -> None:
    api = Api(failure, {"jobId": "j"})

    client(api).delete_job("j", if_match='"1"')

    assert [request.headers["If-Match"] for request in api.came] == ['"1"', '"1"']


@pytest.mark.parametrize(
    "ask", [lambda c: c.put_job("j", {}), lambda c: c.change_job("j", {"name": "n"})]
)
def test_a_change_without_a_condition_is_sent_again(ask: Callable[[Client], object]) -> None:
    api = Api(LOST, {"jobId": "j"})

    ask(client(api))

    assert len(api.came) == 2


@pytest.mark.parametrize("failure", [LOST, REFUSED, 503])
def test_an_upload_is_sent_again_and_without_what_says_who_calls(
    failure: int | Exception,
) -> None:
    upload = {"uploadUrl": "https://bucket.example.com/x?signed", "headers": {"x-a": "b"}}
    api = Api(upload, failure, {})

    client(api).push_script("hello", b"print()")

    assert [request.method for request in api.came] == ["POST", "PUT", "PUT"]
    for request in api.came[1:]:
        assert (request.content, request.headers["x-a"]) == (b"print()", "b")
        assert "Authorization" not in request.headers


def test_a_rejected_upload_shows_no_url() -> None:
    upload = {"uploadUrl": "https://bucket.example.com/x?signed", "headers": {}}

    with pytest.raises(ClientError, match=r"bucket\.example\.com refused the upload") as refused:
        client(Api(upload, 403)).push_script("hello", b"")
    with pytest.raises(UnreachableError) as lost:
        client(Api(upload, LOST), retries=0).push_script("hello", b"")

    for error in (refused.value, lost.value):
        assert "signed" not in f"{error} {error.__cause__} {error.__context__}"


def test_a_preview_needs_no_key() -> None:
    api = Api(LOST, {"items": []})

    client(api).preview_schedule({"type": "MANUAL"})

    assert not [request for request in api.came if "Idempotency-Key" in request.headers]


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


# The endpoint and the credentials


KEY = f"nf.acme.3f9c0a77d1e2b456.{'A' * 43}"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a local stack, for a user without NEXTFIRE variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ENDPOINT", "API_KEY", "TOKEN", "AUTH"):
        monkeypatch.delenv(f"NEXTFIRE_{name}", raising=False)
    return tmp_path


def url_and_authorization(**given: Any) -> tuple[str, str]:
    """The URL of a request and its Authorization header."""
    api = Api({"status": "ok"})
    with Client(**given, transport=httpx2.MockTransport(api)) as caller:
        caller.get_health()
    return str(api.came[0].url), api.came[0].headers["Authorization"]


def up(folder: Path) -> None:
    """Write to *folder* the parts of what `nextfire up` writes that the client reads."""
    state = folder / ".nextfire"
    state.mkdir(mode=0o755)
    described = {
        "endpoint": LOCAL,
        "aws_endpoint": "http://127.0.0.1:4566",
        "key_file": str(state / "api-key"),
        "region": "us-east-1",
        "access_key": "test",
        "secret_key": "test",
    }
    write_private(state / "api-key", f"{KEY}\n")
    write_private(state / "stack.json", json.dumps(described))


def test_the_environment_says_where_and_who(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", f"{REMOTE}/")
    monkeypatch.setenv("NEXTFIRE_API_KEY", KEY)

    assert bare.is_dir()
    assert url_and_authorization() == (f"{REMOTE}/v1/health", f"Bearer {KEY}")


def test_the_local_stack_of_the_folder_is_found(bare: Path) -> None:
    up(bare)

    assert url_and_authorization() == (f"{LOCAL}/v1/health", f"Bearer {KEY}")


def test_another_endpoint_is_not_sent_the_key_of_the_local_stack(bare: Path) -> None:
    up(bare)

    with pytest.raises(ClientError, match="No API key"):
        Client(REMOTE, auth="keys")


def test_what_is_given_goes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bare.is_dir()
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", "https://elsewhere")
    monkeypatch.setenv("NEXTFIRE_AUTH", "iam")

    assert url_and_authorization(endpoint=REMOTE, key=KEY) == (
        f"{REMOTE}/v1/health",
        f"Bearer {KEY}",
    )


def test_iam_signs_in_the_region_that_the_endpoint_tells(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(bare / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_PROFILE", raising=False)

    _, authorization = url_and_authorization(endpoint=REMOTE, auth="iam")

    assert "Credential=AKIDEXAMPLE/" in authorization
    assert "/eu-west-1/execute-api/aws4_request" in authorization


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "No endpoint"),
        ({"endpoint": "api.example.com"}, "is not a URL"),
        ({"endpoint": REMOTE, "key": "nonsense"}, "not hold a valid API key"),
        ({"endpoint": REMOTE, "auth": "basic"}, "Available: keys, iam, jwt"),
        ({"endpoint": REMOTE, "auth": "jwt"}, "No token found"),
        ({"endpoint": "http://example.com", "key": KEY}, "not encrypted"),
    ],
)
def test_an_invalid_configuration_says_how_to_fix_it(
    bare: Path, given: dict[str, Any], expected: str
) -> None:
    assert bare.is_dir()
    with pytest.raises(ClientError, match=expected) as refused:
        Client(**given)
    assert "nonsense" not in str(refused.value)


def test_nextfire_itself_imports_no_httpx() -> None:
    code = "import nextfire, sys; sys.exit('httpx2' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert nextfire.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = nextfire.Clinet  # type: ignore[attr-defined]
