"""The client in several processes: after a fork, and its errors on the way between processes."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from nextfire import Client, ClientError, UnreachableError
from nextfire.client.errors import ApiError, MissingError, NotEndedError, error_of
from nextfire.client.pipelines.document import PipelineError, read

BODY = json.dumps({"jobId": "job_1", "state": "ACTIVE"}).encode()


class Server(ThreadingHTTPServer):
    """Keeps connections open. `ports`: the caller's port of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        self.ports: list[int] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.ports.append(self.client_address[1])
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()


def test_a_forked_process_has_connections_of_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared connection, a response reaches the process that happens to read it."""
    monkeypatch.setenv("NEXTFIRE_TOKEN", "x")
    with Client(f"http://127.0.0.1:{server.server_port}", auth="jwt") as client:
        for _ in range(2):
            client.get_job("job_1")
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            for _ in range(2):
                client.get_job("job_1")
            client.close()
        client.get_job("job_1")

    before, again, forked, later, after = server.ports
    assert (before, before, forked) == (again, after, later)
    assert before != forked


def errors() -> list[ClientError]:
    with pytest.raises(PipelineError) as pipeline:
        read({"jobs": [{"jobId": "x"}]})
    return [
        ClientError("a problem", "a remedy"),
        MissingError("not found"),
        NotEndedError("job_1.x", "RUNNING", 3),
        UnreachableError("no answer", "look", maybe_done=True),
        error_of(429, {"title": "Slow", "quota": "jobs"}, carried="key", retry_after=2),
        error_of(404, None, carried="key", request_id="r"),
        pipeline.value,
    ]


@pytest.mark.parametrize("error", errors(), ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_to_another_process(error: ClientError) -> None:
    """Process pools pickle what their tasks raise."""
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 — its own

    assert (type(found), str(found)) == (type(error), str(error))
    assert vars(found) == vars(error)
    assert not isinstance(error, ApiError) or found.document() == error.document()
