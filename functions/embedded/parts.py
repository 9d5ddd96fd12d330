"""The parts of the embedded stack: the API, the watcher, and the workers of each pool."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import waitress  # type: ignore[import-untyped]

from functions.api import handler as api
from functions.auditor import handler as auditor
from functions.authorizer import handler as authorizer
from functions.embedded.gateway import MAX_REQUEST_BYTES, Gateway, Handler
from functions.embedded.pulse import Pulse
from functions.embedded.supervisor import Part, PartsSupervisor
from functions.watcher.handler import config_of, telemetry
from functions.worker import return_held as _return_held  # noqa: F401 — imported once, for all
from functions.worker import supervisor as workers
from functions.worker import worker as _worker  # noqa: F401 — the same
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.scripts.confinement import PR_SET_PDEATHSIG, prctl
from nextfire.domain.errors import UnavailableError
from nextfire.settings import (
    ApiSettings,
    EmbeddedSettings,
    ServerSettings,
    WatcherSettings,
    set_worker_environment,
)
from nextfire.wiring import embedded
from nextfire.wiring.watcher import build_watcher
from nextfire.wiring.watcher_ports import watcher_ports

_BACKLOG = 256
_THREADS = 8
"""Threads that read requests and send responses; the API's handler runs in one at a time."""
_CONNECTIONS = 500
"""Maximum number of open connections; further ones wait until others have been idle for two
minutes. About half the usual limit of open files, 1,024.
"""


_AUDIT_EVERY = timedelta(minutes=15)
_BEAT_EVERY = timedelta(seconds=2)
Beat = Callable[[], None]
"""Shows the supervisor that the loop of a part continues."""


def main() -> int:
    """Run the embedded stack that the environment variables describe. Returns the exit status."""
    server = ServerSettings.read()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if server.server_parent != os.getppid():
        return 1  # the process that started this stack has ended
    logging.basicConfig(level=logging.WARNING)
    for part in ("api", "watcher", "auditor"):  # made before, so Powertools did not see the handler
        logging.getLogger(part).propagate = False
    # The supervisor keeps the socket: while the API restarts, requests wait in its backlog.
    with socket.create_server(("127.0.0.1", server.server_port), backlog=_BACKLOG) as listening:
        parts = [
            _part("api", partial(_serve, listening)),
            _part("watcher", partial(_without, listening, _watch)),
            Part("auditor", partial(_without, listening, _audit)),
            *(
                _part(
                    f"worker-{pool}-{number}",
                    partial(_without, listening, partial(_work, pool)),
                    signal.SIGTERM,
                )
                for pool in server.server_pools
                for number in range(server.server_workers)
            ),
        ]
        folder = EmbeddedSettings.read().embedded_folder
        report = partial(_report, folder / "parts.json")
        return PartsSupervisor(parts, logs=server.server_logs, report=report).run()


def _part(name: str, run: Callable[[Beat], int], dies_by: signal.Signals = signal.SIGKILL) -> Part:
    """A part that beats."""
    pulse = Pulse()
    return Part(name, partial(run, pulse.beat), dies_by, pulse)


def _report(file: Path, parts: Mapping[str, object]) -> None:
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(json.dumps(parts))
    fresh.replace(file)


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _without(listening: socket.socket, run: Callable[..., int], *given: object) -> int:
    """Run a part that does not answer requests. If the supervisor was killed, a worker still stops
    its scripts: with the socket it would keep the port from the next start.
    """
    listening.close()
    return run(*given)


def _serve(listening: socket.socket, beat: Beat = lambda: None) -> int:
    """The API."""
    signal.signal(signal.SIGTERM, _stop)
    shelf = embedded.script_shelf(ApiSettings.read(), EmbeddedSettings.read())
    gateway = Gateway(
        api=_beating(api.handler, beat),
        authorizer=authorizer.handler,
        accept=shelf.accept,
        now=SystemClock().now,
    )
    Thread(target=_beat_between_requests, args=(gateway, beat), daemon=True).start()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    waitress.serve(
        gateway,
        sockets=[listening],
        threads=_THREADS,
        connection_limit=_CONNECTIONS if files < 0 else min(_CONNECTIONS, files // 2),
        asyncore_use_poll=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        ident=None,
        _quiet=True,
    )
    return 0


def _beating(handler: Handler, beat: Beat) -> Handler:
    """*handler*, of which each call beats: under load `_beat_between_requests` waits for long."""

    def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
        beat()
        return handler(event, context)

    return handle


def _beat_between_requests(gateway: Gateway, beat: Beat) -> None:
    clock = SystemClock()
    while True:
        gateway.await_turn()
        beat()
        clock.sleep(_BEAT_EVERY)


def _watch(beat: Beat = lambda: None) -> int:
    """The watcher."""
    signal.signal(signal.SIGTERM, _stop)
    settings = WatcherSettings.read()
    ports = replace(watcher_ports(settings), clock=_BeatingClock(beat))
    watcher = build_watcher(ports, config_of(settings, 0), telemetry)
    try:
        while True:
            watcher.live(settings.life)
    except SystemExit:
        watcher.end()
        raise


def _audit() -> int:
    """The auditor, every 15 minutes, and the removal of what has expired."""
    signal.signal(signal.SIGTERM, _stop)
    clock, local = SystemClock(), EmbeddedSettings.read()
    invocation: Any = _Invocation()
    # Each for itself: on a full disk an audit fails, and only a removal makes room.
    steps: list[tuple[str, Callable[[], object]]] = [
        ("the audit", lambda: auditor.handler({}, invocation)),
        ("the removal of old files", lambda: embedded.forget_files(local)),
        ("the removal of old records", lambda: embedded.forget_records(local)),
    ]
    while True:
        for what, step in steps:
            try:
                step()
            except (UnavailableError, auditor.AuditOverdueError) as error:
                auditor.telemetry.warn(f"{what} was interrupted", error)
        clock.sleep(_AUDIT_EVERY)


class _BeatingClock(SystemClock):
    """The clock of a loop that reads it in each step."""

    def __init__(self, beat: Beat) -> None:
        self._beat = beat

    def now(self) -> datetime:
        self._beat()
        return super().now()


class _Invocation:
    """As much of the context of an invocation as the auditor uses."""

    def get_remaining_time_in_millis(self) -> int:
        return _AUDIT_EVERY // timedelta(milliseconds=1)


def _work(pool: str, beat: Beat = lambda: None) -> int:
    """A worker of *pool*, below its own supervisor, which returns what a dead worker held."""
    set_worker_environment(pool)
    return workers.main(restarts=False, beat=beat)
