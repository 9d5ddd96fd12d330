"""The library for scripts that nextfire runs: run context, payload, checkpoints and result.

    import nextfire_job

    here = nextfire_job.context()
    state = nextfire_job.checkpoint() or {"done": 0}
    for n in range(state["done"], 100):
        import_page(n, idempotency_key=f"{here.execution_id}/{n}")
        nextfire_job.save_checkpoint({"done": n + 1})
    nextfire_job.result({"pages": 100})

It also works outside nextfire, so you can try a script by hand. `context` then returns stand-in
values, the payload is read from standard input unless that is a terminal, the checkpoint is stored
in ``.nextfire-checkpoint.json`` in the current directory, and the result is printed to standard
error.

Uses the standard library only; requires Python 3.11 or later. Threads, signal handlers and forked
processes may use it.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "Context",
    "NotKeptError",
    "checkpoint",
    "context",
    "payload",
    "result",
    "save_checkpoint",
    "upstream",
]

LOCAL_CHECKPOINT = ".nextfire-checkpoint.json"
"""File that holds the checkpoint of a script that runs outside nextfire."""

_MAX_BYTES = 1024 * 1024
_MAX_NESTING = 200
_SAVE_AGAIN_AFTER, _SAVE_AGAIN_FOR = 1.0, 60.0
"""Seconds after and for which a checkpoint is sent again while the database does not answer."""
_TOO_DEEP = f"the value is nested more than {_MAX_NESTING} levels deep; flatten it"
_lock = threading.RLock()
_channel: socket.socket | None = None
_unread = b""
_answers: dict[str, dict[str, Any]] = {}
"""Answers that a signal handler read for the call that it interrupted, by `id`."""
_calls = 0
_process = os.urandom(8).hex()
_numbers = itertools.count(1)
_LOOK_EVERY = 0.1  # seconds
_payload: list[Any] = []


class NotKeptError(Exception):
    """A checkpoint or a result was not stored, or not read. The message contains the reason."""


class _NotKeptYetError(NotKeptError):
    """The database did not answer; the request may be sent again."""


@dataclass(frozen=True, slots=True)
class Context:
    """The run and the attempt that this script executes.

    `execution_id`: the id of the run. All attempts share it, so use it as an idempotency key.
    `scheduled_at`: the instant for which the run was scheduled, regardless of when it started.
    `attempt`: number of the attempt, from 1. `deadline`: when nextfire ends this attempt. All
    instants are timezone-aware and in UTC.
    """

    execution_id: str
    scheduled_at: datetime
    attempt: int
    deadline: datetime | None
    job_id: str
    tenant: str


def context() -> Context:
    """Return the context of this attempt.

    Defaults outside nextfire: execution id ``local``, attempt 1, scheduled now, no deadline. The
    environment variables ``NEXTFIRE_EXECUTION_ID``, ``NEXTFIRE_SCHEDULED_AT``, … override them.

    Raises:
        ValueError: One of these variables is malformed.
    """
    get = os.environ.get
    scheduled, deadline = get("NEXTFIRE_SCHEDULED_AT"), get("NEXTFIRE_DEADLINE")
    return Context(
        execution_id=get("NEXTFIRE_EXECUTION_ID", "local"),
        scheduled_at=_instant(scheduled) if scheduled else datetime.now(UTC),
        attempt=int(get("NEXTFIRE_ATTEMPT", "1")),
        deadline=_instant(deadline) if deadline else None,
        job_id=get("NEXTFIRE_JOB_ID", "local"),
        tenant=get("NEXTFIRE_TENANT", "local"),
    )


def payload() -> Any:  # noqa: ANN401 - any JSON value
    """Return the payload of the job: the JSON on standard input, or ``{}`` if the input is empty.

    The first call reads standard input; later calls return the same value.

    Raises:
        ValueError: Standard input is not valid JSON.
    """
    with _lock:
        if not _payload:
            text = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
            _payload.append(json.loads(text) if text.strip() else {})
        return _payload[0]


def checkpoint() -> Any:  # noqa: ANN401 - any JSON value
    """Return the latest checkpoint of the run, saved by this or an earlier attempt.

    Returns None if no attempt has saved a checkpoint.

    Raises:
        NotKeptError: The checkpoint cannot be read.
    """
    if _is_local():
        try:
            return json.loads(Path(LOCAL_CHECKPOINT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
    return _ask({"op": "checkpoint.load"})


def upstream() -> Any:  # noqa: ANN401 - any JSON value
    """Return the runs of the job's parents, by job id: for each an object with ``state``,
    ``executionId`` and ``result``, the JSON value that it set. For a parent of which `all` runs are
    needed, ``runs`` is the list of these objects.

    Returns ``{}`` for jobs without parents, and outside nextfire.

    Raises:
        NotKeptError: The runs cannot be read.
    """
    return {} if _is_local() else _ask({"op": "upstream"})


def save_checkpoint(value: object) -> None:
    """Store *value* as the checkpoint of the run: JSON of up to 1 MiB and 200 levels of lists and
    dicts. Replaces the previous one.

    The checkpoint is durable when this function returns: the next attempt reads it, even if this
    attempt crashes. More than 10 calls per second are throttled. While the database does not
    answer, it tries again for a minute.

    Raises:
        NotKeptError: The checkpoint was not stored: it is too large or nested too deeply, this
            attempt lost its run, or the database did not answer for a minute.
        TypeError, ValueError: *value* cannot be encoded as JSON.
    """
    text = _json(value)
    if _is_local():
        _check_limits(value)
        new_file = Path(f"{LOCAL_CHECKPOINT}.new")
        new_file.write_text(text, encoding="utf-8")
        new_file.replace(LOCAL_CHECKPOINT)
        return
    until = time.monotonic() + _SAVE_AGAIN_FOR
    while True:
        try:
            _ask({"op": "checkpoint.save", "value": value})
        except _NotKeptYetError as error:
            if time.monotonic() >= until:
                raise NotKeptError(str(error)) from None
            time.sleep(_SAVE_AGAIN_AFTER)
        else:
            return


def result(value: object) -> None:
    """Set the result of the run to *value*: JSON of up to 1 MiB and 200 levels of lists and dicts.
    A later call replaces it.

    Raises:
        NotKeptError: *value* is too large or nested too deeply, or nextfire cannot be reached.
        TypeError, ValueError: *value* cannot be encoded as JSON.
    """
    text = _json(value)
    if _is_local():
        _check_limits(value)
        print(f"result: {text}", file=sys.stderr)
    else:
        _ask({"op": "result", "value": value})


def _is_local() -> bool:
    return "NEXTFIRE_CHANNEL" not in os.environ


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise NotKeptError(_TOO_DEEP) from None


def _check_limits(value: object) -> None:
    """Apply the limits that nextfire enforces."""
    nested: list[Any] = [[value]]
    for _ in range(_MAX_NESTING + 1):
        inner = [v for each in nested for v in (each.values() if isinstance(each, dict) else each)]
        nested = [each for each in inner if isinstance(each, dict | list | tuple)]
    if nested:
        raise NotKeptError(_TOO_DEEP)
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > _MAX_BYTES:
        raise NotKeptError(f"the value has {size} bytes; the maximum is {_MAX_BYTES}")


def _ask(request: dict[str, object]) -> Any:  # noqa: ANN401
    """Send *request* and return the value of the response."""
    global _channel  # noqa: PLW0603
    with _lock:
        try:
            if _channel is None:
                _channel = socket.socket(fileno=int(os.environ["NEXTFIRE_CHANNEL"]))
            with _turn(_channel):
                answer = _exchange(_channel, request)
        except (OSError, ValueError) as error:
            raise NotKeptError(
                f"nextfire cannot be reached: {error}. Call this from the script's main process "
                "or from a process that it forked."
            ) from error
    if not answer.get("ok"):
        kind = _NotKeptYetError if answer.get("again") else NotKeptError
        raise kind(str(answer.get("error")))
    return answer.get("value")


@contextmanager
def _turn(channel: socket.socket) -> Iterator[None]:
    """Keep other processes from the channel. A signal handler may call within a call."""
    import fcntl  # noqa: PLC0415 - other systems, on which scripts are tried by hand, lack it

    global _calls  # noqa: PLW0603
    _calls += 1
    try:
        fcntl.lockf(channel, fcntl.LOCK_EX)  # the kernel unlocks it if this process dies
        yield
    finally:
        _calls -= 1
        if not _calls:
            fcntl.lockf(channel, fcntl.LOCK_UN)


def _exchange(channel: socket.socket, request: dict[str, object]) -> dict[str, Any]:
    """Send *request* and return its answer. Others may come first: to a process that was killed
    while it waited, or to the call that a signal handler interrupted.
    """
    global _unread
    number = f"{_process}-{next(_numbers)}"
    line = json.dumps({**request, "id": number}, allow_nan=False).encode() + b"\n"
    # A signal handler that interrupts a long request would send its own in the middle of it.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        channel.sendall(line)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    while number not in _answers:
        # Not for long: a signal handler may read the answer meanwhile.
        if not select.select([channel], [], [], _LOOK_EVERY)[0]:
            continue
        try:
            data = channel.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not data:
            raise NotKeptError("nextfire closed the connection.")
        *lines, _unread = (_unread + data).split(b"\n")
        for each in lines:
            try:
                answer = json.loads(each)
            except ValueError:
                continue  # the rest of an answer that a killed process had begun to read
            to = answer.get("id", number)
            if to.startswith(_process):
                _answers[to] = answer
    return _answers.pop(number)


def _forget() -> None:
    """Forget the calls of the process of which this one is a fork."""
    global _lock, _unread, _calls, _process
    _lock, _unread, _calls, _process = threading.RLock(), b"", 0, os.urandom(8).hex()
    _answers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
