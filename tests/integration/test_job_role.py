"""The contract of `JobRole`, with moto's STS and an SDK as in scripts."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3  # noqa: TID251 — as a script does
import pytest
from botocore.credentials import ContainerProvider  # noqa: TID251 — what a script's SDK does
from botocore.exceptions import ClientError, EndpointConnectionError  # noqa: TID251

from nextfire.adapters.aws import clients
from nextfire.adapters.scripts import job_role as job_role_module
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from tests.fakes import Clock

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

ROLE = "arn:aws:iam::123456789012:role/scripts"
REPORT = JobKey("123456789012", "report")
OTHER = JobKey("123456789012", "other")
TOKEN = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
URI = "AWS_CONTAINER_CREDENTIALS_FULL_URI"


class Sts:
    """moto's STS, with a record of the requests. It raises `trouble` while that is set. A request
    for the job `slow_for` waits until `answers` is set.
    """

    def __init__(self, client: STSClient) -> None:
        self._client = client
        self.asked: list[dict[str, Any]] = []
        self.trouble: Exception | None = None
        self.slow_for: str | None = None
        self.answers = threading.Event()

    def assume_role(self, **request: Any) -> Any:
        if {"Key": "job", "Value": self.slow_for} in request["Tags"]:
            assert self.answers.wait(20)
        if self.trouble is not None:
            raise self.trouble
        self.asked.append(request)
        return self._client.assume_role(**request)


@pytest.fixture
def sts(aws: None) -> Sts:  # noqa: ARG001
    return Sts(clients.sts())


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime.now(UTC))  # noqa: TID251 — moto uses this clock too


@pytest.fixture
def role(sts: Any, clock: Clock) -> Iterator[StsJobRole]:
    role = StsJobRole(
        sts, role_arn=ROLE, pool="batch", environment={"AWS_REGION": "eu-central-1"}, clock=clock
    )
    yield role
    role.close()


def ask(environment: Mapping[str, str], **more: str) -> tuple[int, bytes]:
    """The answer of the server in *environment*, with *more* overriding its variables."""
    given = {**environment, **more}
    url = urlsplit(given[URI])
    assert url.hostname == "127.0.0.1"
    connection = HTTPConnection(url.hostname, url.port or 0, timeout=10)
    try:
        connection.request("GET", url.path, headers={"Authorization": given[TOKEN]})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_script_s_sdk_acts_in_the_role(role: StsJobRole) -> None:
    with role.lent(REPORT, Masker()) as environment:
        found = ContainerProvider(environ=environment).load()
        key = found.get_frozen_credentials()
        script = boto3.client(
            "sts",
            aws_access_key_id=key.access_key,
            aws_secret_access_key=key.secret_key,
            aws_session_token=key.token,
        )

        assert script.get_caller_identity()["Arn"] == (
            "arn:aws:sts::123456789012:assumed-role/scripts/report@123456789012"
        )
        assert environment["AWS_REGION"] == "eu-central-1"


def test_it_answers_as_ecs_does(role: StsJobRole, clock: Clock) -> None:
    with role.lent(REPORT, Masker()) as environment:
        status, body = ask(environment)

    assert status == 200
    document = json.loads(body)
    assert document.keys() == {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}
    expires_at = datetime.fromisoformat(document["Expiration"])
    assert abs(expires_at - clock.now() - timedelta(hours=1)) < timedelta(minutes=1)


def test_the_role_s_owner_sees_which_job_acts(role: StsJobRole, sts: Sts) -> None:
    with role.lent(REPORT, Masker()):
        pass

    [request] = sts.asked
    assert request["Tags"] == [
        {"Key": "pool", "Value": "batch"},
        {"Key": "tenant", "Value": "123456789012"},
        {"Key": "job", "Value": "report"},
    ]
    assert request["TransitiveTagKeys"] == ["pool", "tenant", "job"]
    assert request["DurationSeconds"] == 3600


@pytest.mark.parametrize(
    "job", [JobKey("t", "j"), JobKey("t" * 64, "j" * 64), JobKey("größe & co", "a-b_c")], ids=str
)
def test_the_session_has_a_name_that_sts_takes(role: StsJobRole, sts: Sts, job: JobKey) -> None:
    with role.lent(job, Masker()):
        pass

    [request] = sts.asked
    # moto checks only the length.
    assert set(request["RoleSessionName"]) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-"
    )
    assert 2 <= len(request["RoleSessionName"]) <= 64


def test_runs_of_one_job_share_a_session_and_those_of_others_do_not(
    role: StsJobRole, sts: Sts
) -> None:
    with role.lent(REPORT, Masker()) as first, role.lent(REPORT, Masker()) as second:
        assert first[TOKEN] != second[TOKEN]
        assert first[URI] != second[URI]
        assert ask(first) == ask(second)
        assert len(sts.asked) == 1

        with role.lent(OTHER, Masker()) as third:
            assert ask(third)[0] == 200
            assert ask(third) != ask(first)
    assert len(sts.asked) == 2


def test_each_has_its_own_token(role: StsJobRole) -> None:
    with role.lent(REPORT, Masker()) as mine, role.lent(OTHER, Masker()) as other:
        for token in (mine[TOKEN], "", mine[TOKEN] + "x", other[TOKEN][:-1], "\xff"):
            assert ask(other, **{TOKEN: token}) == (404, b"")
        assert ask(other)[0] == 200


def test_after_the_run_no_one_gets_any(role: StsJobRole) -> None:
    with role.lent(OTHER, Masker()) as other:
        with role.lent(REPORT, Masker()) as environment:
            assert ask(environment)[0] == 200

        assert ask(environment) == (404, b"")
        assert ask(environment, **{TOKEN: other[TOKEN]}) == (404, b"")
        assert ask(other)[0] == 200


def test_nor_after_one_that_failed(role: StsJobRole) -> None:
    lent: list[Mapping[str, str]] = []

    def run() -> None:
        with role.lent(REPORT, Masker()) as environment:
            lent.append(environment)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()

    assert ask(lent[0]) == (404, b"")


def test_credentials_are_renewed_before_they_end(role: StsJobRole, sts: Sts, clock: Clock) -> None:
    with role.lent(REPORT, Masker()) as environment:
        first = ask(environment)
        clock.advance(timedelta(minutes=44))
        assert ask(environment) == first
        clock.advance(timedelta(minutes=2))
        second = ask(environment)

    assert second[0] == 200
    assert second != first
    assert len(sts.asked) == 2


def test_old_credentials_serve_until_they_expire_while_sts_fails(
    role: StsJobRole, sts: Sts, clock: Clock
) -> None:
    with role.lent(REPORT, Masker()) as environment:
        first = ask(environment)
        sts.trouble = EndpointConnectionError(endpoint_url="https://sts")
        clock.advance(timedelta(minutes=59))
        assert ask(environment) == first

        clock.advance(timedelta(minutes=2))
        assert ask(environment) == (503, b"")

        sts.trouble = None
        assert ask(environment)[0] == 200


def test_a_role_that_does_not_trust_the_executor_is_reported_before_the_run(
    role: StsJobRole, sts: Sts
) -> None:
    sts.trouble = ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")

    with (
        pytest.raises(InvalidInputError, match="sts:TagSession") as raised,
        role.lent(REPORT, Masker()),
    ):
        pytest.fail("the script ran")

    assert ROLE in str(raised.value)


def test_trouble_of_sts_passes(role: StsJobRole, sts: Sts) -> None:
    sts.trouble = ClientError({"Error": {"Code": "Throttling"}}, "AssumeRole")
    with pytest.raises(UnavailableError), role.lent(REPORT, Masker()):
        pytest.fail("the script ran")
    sts.trouble = None

    with role.lent(REPORT, Masker()) as environment:
        assert ask(environment)[0] == 200


def test_no_credential_is_printed(
    role: StsJobRole, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with role.lent(REPORT, Masker()) as environment:
        ask(environment)
        ask(environment, **{TOKEN: "wrong"})
        hangs_up = HTTPConnection("127.0.0.1", urlsplit(environment[URI]).port or 0)
        hangs_up.request("POST", "/")
        hangs_up.close()

    assert "".join(capfd.readouterr()) == ""
    assert caplog.text == ""


def test_many_runs_at_once_are_served(role: StsJobRole, sts: Sts) -> None:
    def run(number: int) -> set[int]:
        with role.lent(REPORT if number % 2 else OTHER, Masker()) as environment:
            return {ask(environment)[0] for _ in range(5)}

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(run, range(32))) == [{200}] * 32
    assert len(sts.asked) == 2


def connected(environment: Mapping[str, str]) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(environment[URI]).port or 0), timeout=10)


def test_idle_connections_keep_no_one_away(
    role: StsJobRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_role_module, "_REQUEST_TIMEOUT", 60)
    monkeypatch.setattr("nextfire.adapters.scripts.job_role._Handler.timeout", 60)
    with role.lent(REPORT, Masker()) as environment, ExitStack() as held:
        for _ in range(100):
            held.enter_context(connected(environment)).send(b"GET /")

        assert ask(environment)[0] == 200


def test_who_asks_slowly_is_hung_up_on(role: StsJobRole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_role_module, "_REQUEST_TIMEOUT", 0.2)
    with role.lent(REPORT, Masker()) as environment, connected(environment) as slow:
        slow.settimeout(0.05)
        for _ in range(100):
            try:
                slow.send(b"G")
                assert slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                pass
            return
    pytest.fail("the connection is still open after five seconds")


def test_a_long_head_is_refused_before_it_ends(role: StsJobRole) -> None:
    """Otherwise a few connections would take all memory of the executor."""
    with role.lent(REPORT, Masker()) as environment:
        url = urlsplit(environment[URI])
        with socket.create_connection((str(url.hostname), url.port or 0), 10) as client:
            client.sendall(b"GET / HTTP/1.0\r\n" + b"X: a\r\n" * 10 + b"X: " + b"a" * 16_400)

            assert client.recv(100).startswith(b"HTTP/1.0 431 ")

        assert ask(environment)[0] == 200


def test_a_script_that_asks_often_while_sts_is_slow_takes_no_more_than_its_share(
    role: StsJobRole, sts: Sts, clock: Clock
) -> None:
    with (
        role.lent(REPORT, Masker()) as environment,
        role.lent(OTHER, Masker()) as other,
        ThreadPoolExecutor(12) as pool,
    ):
        clock.advance(timedelta(minutes=50))
        sts.slow_for = "report"
        answers: list[int] = []
        too_many = threading.Event()

        def go() -> None:
            answers.append(ask(environment)[0])
            if len(answers) == 4:
                too_many.set()

        asking = [pool.submit(go) for _ in range(12)]
        refused = too_many.wait(9)
        assert ask(other)[0] == 200
        sts.answers.set()
        for each in asking:
            each.result()

    assert refused
    assert answers == [503] * 4 + [200] * 8
