"""The loops of the embedded stack's parts."""

from __future__ import annotations

import resource
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pytest
import waitress  # type: ignore[import-untyped]

from functions.auditor import handler as auditor
from functions.auditor.handler import AuditOverdueError
from functions.embedded import parts
from functions.embedded.gateway import MAX_REQUEST_BYTES, Gateway
from functions.embedded.gateway_event import GatewayRequest
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.errors import UnavailableError
from nextfire.wiring import embedded


@dataclass
class Ports:
    """As much of the ports of a watcher as its part changes."""

    clock: object = None


class StoppedError(Exception):
    """The part is stopped here."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the server, which ends at once."""
    given: dict[str, Any] = {}

    def serve(gateway: object, **arguments: object) -> None:
        given.update(arguments, gateway=gateway)

    absent = SimpleNamespace(read=lambda: None)
    monkeypatch.setattr(parts, "ApiSettings", absent)
    monkeypatch.setattr(parts, "EmbeddedSettings", absent)
    monkeypatch.setattr(embedded, "script_shelf", lambda *_: SimpleNamespace(accept=None))
    monkeypatch.setattr(waitress, "serve", serve)
    return given


@pytest.mark.parametrize(
    ("files", "connections"), [(256, 128), (1024, 500), (resource.RLIM_INFINITY, 500)]
)
def test_the_api_holds_fewer_connections_than_it_may_open_files(
    served: dict[str, Any], monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    """If it could accept none, it would try again without a pause, and log each try."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    beats: Queue[None] = Queue()
    before = {*threading.enumerate()}
    parts._serve(cast("socket.socket", None), lambda: beats.put(None))  # noqa: SLF001

    beats.get(timeout=20)
    assert served["connection_limit"] == connections
    assert served["max_request_body_size"] == MAX_REQUEST_BYTES
    assert all(each.daemon for each in {*threading.enumerate()} - before), "it would not stop"
    assert signal.getsignal(signal.SIGTERM) is parts._stop  # noqa: SLF001


def test_the_api_beats_with_each_request(
    served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With eight clients on a slow disk, a thread waits for its turn during many requests."""
    monkeypatch.setattr(parts, "_beat_between_requests", lambda *_: None)
    monkeypatch.setattr("functions.api.handler.handler", lambda *_: {"statusCode": 200})
    beats: list[None] = []
    parts._serve(cast("socket.socket", None), lambda: beats.append(None))  # noqa: SLF001
    health = GatewayRequest("GET", "/v1/health", (), b"", "127.0.0.1")

    assert served["gateway"].answer(health).status == 200
    assert beats


def test_the_api_beats_without_requests_unless_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def sleep(_: object) -> None:
        done.append("sleep")
        if len(done) >= 6:
            raise StoppedError

    monkeypatch.setattr(parts, "SystemClock", lambda: SimpleNamespace(sleep=sleep))
    gateway = SimpleNamespace(await_turn=lambda: done.append("turn"))

    with pytest.raises(StoppedError):
        parts._beat_between_requests(  # noqa: SLF001
            cast("Gateway", gateway), lambda: done.append("beat")
        )
    assert done == ["turn", "beat", "sleep"] * 2


def test_a_watcher_beats_when_it_reads_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(ports: Ports, *_: object) -> SimpleNamespace:
        def live(_: object) -> None:
            assert not beats
            cast("SystemClock", ports.clock).now()
            raise StoppedError

        return SimpleNamespace(live=live)

    beats: list[None] = []
    settings = SimpleNamespace(life="PT125S")
    monkeypatch.setattr(parts, "WatcherSettings", SimpleNamespace(read=lambda: settings))
    monkeypatch.setattr(parts, "watcher_ports", lambda _: Ports())
    monkeypatch.setattr(parts, "config_of", lambda *_: None)
    monkeypatch.setattr(parts, "build_watcher", build)

    with pytest.raises(StoppedError):
        parts._watch(lambda: beats.append(None))  # noqa: SLF001
    assert len(beats) == 1


def test_a_watcher_lives_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AWS the next invocation continues; here no one starts it, unless it dies."""
    lives: list[object] = []

    def live(life: object) -> None:
        lives.append(life)
        if len(lives) == 3:
            raise StoppedError

    settings = SimpleNamespace(life="PT125S")
    monkeypatch.setattr(parts, "WatcherSettings", SimpleNamespace(read=lambda: settings))
    monkeypatch.setattr(parts, "watcher_ports", lambda _: Ports())
    monkeypatch.setattr(parts, "config_of", lambda *_: None)
    monkeypatch.setattr(parts, "build_watcher", lambda *_: SimpleNamespace(live=live))

    with pytest.raises(StoppedError):
        parts._watch()  # noqa: SLF001
    assert lives == ["PT125S"] * 3
    assert signal.getsignal(signal.SIGTERM) is parts._stop, "its lease would not be released"  # noqa: SLF001


@pytest.mark.parametrize("error", [UnavailableError("full"), AuditOverdueError("for a day")])
def test_a_step_of_the_auditor_that_fails_does_not_keep_it_from_the_others(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """On a full disk an audit fails, and only the removal of what has expired makes room. After a
    day the audit is overdue.
    """
    done: list[str] = []

    def step(name: str, *, fails: bool) -> None:
        done.append(name)
        if fails:
            raise error

    def sleep(_: object) -> None:
        done.append("sleep")
        if len(done) >= 8:
            raise StoppedError

    monkeypatch.setattr(auditor, "handler", lambda *_: step("audit", fails=True))
    monkeypatch.setattr(parts, "SystemClock", lambda: SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(parts, "EmbeddedSettings", SimpleNamespace(read=lambda: None))
    monkeypatch.setattr(embedded, "forget_files", lambda _: step("files", fails=True))
    monkeypatch.setattr(embedded, "forget_records", lambda _: step("records", fails=False))

    with pytest.raises(StoppedError):
        parts._audit()  # noqa: SLF001
    assert done == ["audit", "files", "records", "sleep"] * 2
    assert signal.getsignal(signal.SIGTERM) is parts._stop  # noqa: SLF001
