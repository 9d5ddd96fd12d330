"""Credentials that expire, and a clock that is wrong: a refresh, AWS's time, or an error."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.errors import EXPIRED_CREDENTIALS, RefusedError
from nextfire.adapters.aws.lean.json_client import ClientTimeouts, JsonClient
from nextfire.adapters.aws.lean.signing import Credentials
from nextfire.domain.errors import UnavailableError
from tests.integration.faulty_server import Answer, FaultyServer, Request, answer, refusal
from tests.integration.one_read import FOUND, ITEM, get

HOUR = 3600.0


@pytest.mark.parametrize("code", sorted(EXPIRED_CREDENTIALS))
def test_credentials_that_have_expired_are_unavailable(
    server: FaultyServer,
    client: str,  # noqa: ARG001
    code: str,
) -> None:
    server.script = [refusal(code)]

    with pytest.raises(UnavailableError, match=code):
        get(clients.dynamodb())

    assert len(server.requests) == 1


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize(
    "code",
    [
        "InvalidSignatureException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    ],
)
def test_the_time_of_aws_is_taken_if_the_clock_is_wrong(server: FaultyServer, code: str) -> None:
    ahead = formatdate(time.time() + HOUR, usegmt=True)
    server.script = [refusal(code, Date=ahead), FOUND]
    database = clients.dynamodb_fail_fast()

    assert get(database) == ITEM
    assert get(database) == ITEM

    stamps = [request.headers["x-amz-date"] for request in server.requests]
    assert len(stamps) == 3, "the difference is remembered"
    assert stamps[0] < stamps[1] <= stamps[2]


@pytest.mark.usefixtures("lean")
def test_the_time_of_aws_is_taken_for_all_requests_that_the_wrong_clock_signed(
    server: FaultyServer,
) -> None:
    """Two threads send the first requests: the answer to one of them sets the time for both."""
    both = threading.Barrier(2, timeout=10)
    ahead = formatdate(time.time() + HOUR, usegmt=True)

    def refuse(_: Request) -> Answer:
        both.wait()
        return refusal("InvalidSignatureException", Date=ahead)

    server.script = [refuse, refuse, FOUND]
    database = clients.dynamodb_fail_fast()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(get, [database] * 2)) == [ITEM] * 2


@pytest.mark.usefixtures("lean")
def test_a_wrong_signature_at_the_right_time_is_refused(server: FaultyServer) -> None:
    server.script = [refusal("InvalidSignatureException")]

    with pytest.raises(RefusedError):
        get(clients.dynamodb())

    assert len(server.requests) == 1


class Rotating:
    """Credentials with a successor."""

    def __init__(self) -> None:
        self.keys = ["old", "new"]

    def get(self) -> Credentials:
        return Credentials(self.keys[0], "secret", None)

    def refresh(self, expired: Credentials) -> bool:
        assert expired.access_key == self.keys[0]
        if len(self.keys) == 1:
            return False
        del self.keys[0]
        return True


def test_credentials_that_can_be_refreshed_are(server: FaultyServer) -> None:
    server.script = [refusal("ExpiredTokenException"), answer({"Item": ITEM})]
    client = JsonClient("dynamodb", "X", ClientTimeouts(attempts=1), credentials=Rotating())

    assert client.call("GetItem", {})["Item"] == ITEM

    used = [request.headers["authorization"].split("/")[0] for request in server.requests]
    assert [each.removeprefix("AWS4-HMAC-SHA256 Credential=") for each in used] == ["old", "new"]
