"""A request that a client would send long after its call began: it fails instead.

The bucket of a due entry is part of the request. Watchers close a bucket 30 s after its minute, and
ten minutes later they read it no longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.lean.json_client import ClientTimeouts, JsonClient
from nextfire.adapters.aws.lean.signing import Credentials
from nextfire.domain.errors import UnavailableError
from tests.integration.faulty_server import LOST, Answer, FaultyServer, Request, refusal
from tests.integration.one_read import FOUND, ITEM, get

MINUTE = 60.0


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the wall clock, as if the machine had slept for a number of seconds."""
    slept = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + sum(slept))
    return slept.append


@pytest.mark.parametrize(
    "fault", [LOST, refusal("InternalServerError", 500)], ids=["lost response", "error"]
)
def test_a_request_is_not_repeated_after_the_machine_slept(
    server: FaultyServer,
    client: str,  # noqa: ARG001
    sleep: Callable[[float], None],
    fault: Answer | None,
) -> None:
    def reply(_: Request) -> Answer | None:
        sleep(MINUTE)
        return fault

    server.script = [reply, FOUND]
    database = clients.dynamodb()

    with pytest.raises(UnavailableError, match="TooLateError"):
        get(database)
    assert len(server.requests) == 1

    assert get(database) == ITEM, "each call has its own time"


@pytest.mark.usefixtures("lean")
def test_a_request_is_not_sent_again_on_a_new_connection_after_the_machine_slept(
    server: FaultyServer, sleep: Callable[[float], None]
) -> None:
    def lose(_: Request) -> None:
        sleep(MINUTE)

    server.script = [FOUND, lose, FOUND]
    database = clients.dynamodb_fail_fast()
    get(database)

    with pytest.raises(UnavailableError, match="TooLateError"):
        get(database)
    assert len(server.requests) == 2


@pytest.mark.usefixtures("lean")
def test_a_request_that_waited_long_for_credentials_is_not_sent(
    server: FaultyServer, sleep: Callable[[float], None]
) -> None:
    class Slow:
        def get(self) -> Credentials:
            sleep(MINUTE)
            return Credentials("a", "s", None)

        def refresh(self, expired: Credentials) -> bool:
            raise AssertionError(expired)

    server.script = [FOUND]
    database = JsonClient("dynamodb", "X", ClientTimeouts(), credentials=Slow())

    with pytest.raises(Exception, match="not sent"):
        database.call("GetItem", {})
    assert server.requests == []
