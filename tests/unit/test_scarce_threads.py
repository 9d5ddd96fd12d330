"""Parts of a script's surroundings when the machine has no thread left: an outage, which passes."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.script_server import ScriptHandler, ScriptServer
from nextfire.adapters.scripts.bounded_server import BoundedServer
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.scripts.script_network import network_for
from nextfire.domain.egress import Egress
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from tests.builders import NOON
from tests.fakes import Clock

REPORT = JobKey("acme", "report")
URI = "AWS_CONTAINER_CREDENTIALS_FULL_URI"


class Sts:
    def assume_role(self, **_: Any) -> dict[str, Any]:
        found = dict.fromkeys(("AccessKeyId", "SecretAccessKey", "SessionToken"), "secret")
        return {"Credentials": {**found, "Expiration": NOON + timedelta(hours=1)}}


@pytest.fixture
def no_threads() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:

        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", start)
        yield patch


def test_a_run_gets_the_job_role_once_there_are_threads_again(
    no_threads: pytest.MonkeyPatch,
) -> None:
    sts: Any = Sts()
    role = StsJobRole(sts, role_arn="arn", pool="batch", environment={}, clock=Clock(NOON))

    with (
        pytest.raises(UnavailableError, match="The job role cannot be lent"),
        role.lent(REPORT, Masker()),
    ):
        pass
    no_threads.undo()

    with role.lent(REPORT, Masker()) as environment:
        assert environment[URI].startswith("http://127.0.0.1:")
    role.close()


@pytest.mark.usefixtures("no_threads")
def test_a_server_that_gets_no_thread_closes_its_socket() -> None:
    server = ScriptServer(ScriptHandler, request_timeout=1, max_pending=1)

    with pytest.raises(OSError, match="cannot start a thread") as raised:
        server.start("test")

    assert raised.value.errno == errno.EAGAIN
    assert server.socket.fileno() == -1


@pytest.mark.usefixtures("no_threads")
def test_a_network_that_gets_no_thread_is_recognized_as_scarcity() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    async def handle(*_: object) -> None:
        """Never called."""

    server = BoundedServer(listener, handle)
    for scarce in (server.serving(), network_for(Egress.listed("api.example.com"), {})):
        with pytest.raises(OSError, match="cannot start a thread") as raised:
            scarce.__enter__()
        assert raised.value.errno == errno.EAGAIN
