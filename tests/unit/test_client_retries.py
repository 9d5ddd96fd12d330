"""Which requests the client repeats, when, and with which key."""

from collections.abc import Callable

import httpx2
import pytest

from nextfire import ApiError, Client, ClientError, RateLimited, Unavailable, UnreachableError
from tests.unit.client_calls import Api, Clock, client

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
    assert lost.value.remedy == "Try again in a moment."  # a GET changes nothing
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


@pytest.mark.parametrize(("asked", "pause"), [(None, 5), ("60", 60)])
def test_a_read_is_repeated_through_an_outage_if_the_caller_asks_for_it(
    asked: str | None, pause: float
) -> None:
    headers = {"Retry-After": asked} if asked else {}
    refused = httpx2.Response(429, headers=headers, json={"message": "no"})
    answers = iter([{"jobId": "a"}, refused, refused, {"jobId": "b"}])
    clock = Clock()
    errors: list[ClientError] = []

    def answer(_: httpx2.Request) -> httpx2.Response:
        found = next(answers)
        return found if isinstance(found, httpx2.Response) else httpx2.Response(200, json=found)

    caller = client(answer, clock=clock, retries=0)
    caller.outlast_outages(errors.append)

    assert [caller.get_job("j").job_id for _ in range(2)] == ["a", "b"]
    assert [type(each) for each in errors] == [RateLimited] * 2
    assert clock.slept == [pause] * 2


def test_only_reads_are_repeated_through_an_outage_and_not_before_the_first_answer() -> None:
    errors: list[ClientError] = []
    caller = client(Api(503, {"jobId": "a"}, 503), retries=0)
    caller.outlast_outages(errors.append)

    with pytest.raises(Unavailable):
        caller.get_job("j")
    caller.get_job("j")
    with pytest.raises(Unavailable):
        caller.pause_job("j")
    assert not errors
