"""What a script of nextfire's may use: where it is, what was saved, what it leaves.

    import nextfire_job

    here = nextfire_job.context()
    state = nextfire_job.checkpoint() or {"done": 0}
    for n in range(state["done"], 100):
        import_page(n, idempotency_key=f"{here.execution_id}/{n}")
        nextfire_job.save_checkpoint({"done": n + 1})
    nextfire_job.result({"pages": 100})

Outside nextfire it works too, so that a script can be tried by hand: `context` then has stand-ins,
the payload comes from standard input unless that is a terminal, the checkpoint is kept in
``.nextfire-checkpoint.json`` in the present folder, and the result is printed to standard error.

Standard library only; Python 3.11 or later. Threads may use it; of several processes one at a time.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
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
]

LOCAL_CHECKPOINT = ".nextfire-checkpoint.json"
"""Where a script that is tried by hand keeps its checkpoint."""

_MOST = 1024 * 1024
_lock = threading.RLock()
_channel: socket.socket | None = None
_unread = b""
_payload: list[Any] = []


class NotKeptError(Exception):
    """A checkpoint or a result was not kept; the message says why."""


@dataclass(frozen=True, slots=True)
class Context:
    """Which attempt of which run this is.

    `execution_id`: the run's, the same on every attempt: use it as an idempotency key.
    `scheduled_at`: the instant for which the run was scheduled, whenever it started. `attempt`:
    from 1. `deadline`: when this attempt is ended. All instants are aware, in UTC.
    """

    execution_id: str
    scheduled_at: datetime
    attempt: int
    deadline: datetime | None
    job_id: str
    tenant: str


def context() -> Context:
    """Where this script is.

    Outside nextfire: execution id ``local``, attempt 1, scheduled now, without a deadline. The
    environment variables ``NEXTFIRE_EXECUTION_ID``, ``NEXTFIRE_SCHEDULED_AT``, … change that.

    Raises:
        ValueError: One of those variables is malformed.
    """
    said = os.environ.get
    scheduled, deadline = said("NEXTFIRE_SCHEDULED_AT"), said("NEXTFIRE_DEADLINE")
    return Context(
        execution_id=said("NEXTFIRE_EXECUTION_ID", "local"),
        scheduled_at=_instant(scheduled) if scheduled else datetime.now(UTC),
        attempt=int(said("NEXTFIRE_ATTEMPT", "1")),
        deadline=_instant(deadline) if deadline else None,
        job_id=said("NEXTFIRE_JOB_ID", "local"),
        tenant=said("NEXTFIRE_TENANT", "local"),
    )


def payload() -> Any:  # noqa: ANN401 - whatever JSON the job holds
    """The job's payload: the JSON on standard input, which is read once; ``{}`` if there is none.

    Raises:
        ValueError: It is no JSON.
    """
    with _lock:
        if not _payload:
            text = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
            _payload.append(json.loads(text) if text.strip() else {})
        return _payload[0]


def checkpoint() -> Any:  # noqa: ANN401 - whatever was saved
    """What was saved last, by this attempt or an earlier one of the same run; None: nothing was.

    Raises:
        NotKeptError: It cannot be read.
    """
    if _is_local():
        try:
            return json.loads(Path(LOCAL_CHECKPOINT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
    return _ask({"op": "checkpoint.load"})


def save_checkpoint(value: object) -> None:
    """Keep *value*, JSON of up to 1 MiB, in place of what was saved before.

    When this returns it is kept: the next attempt finds it, whatever becomes of this one. Up to 10
    a second; more have to wait.

    Raises:
        NotKeptError: It was not kept: it is too large, or this attempt has lost its run.
        TypeError, ValueError: It is no JSON.
    """
    text = _json(value)
    if _is_local():
        _check_size(value)
        beside = Path(f"{LOCAL_CHECKPOINT}.new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(LOCAL_CHECKPOINT)
    else:
        _ask({"op": "checkpoint.save", "value": value})


def result(value: object) -> None:
    """Leave *value*, JSON of up to 1 MiB, as the run's result. The last one counts.

    Raises:
        NotKeptError: It is too large.
        TypeError, ValueError: It is no JSON.
    """
    text = _json(value)
    if _is_local():
        _check_size(value)
        print(f"result: {text}", file=sys.stderr)
    else:
        _ask({"op": "result", "value": value})


def _is_local() -> bool:
    return "NEXTFIRE_CHANNEL" not in os.environ


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _check_size(value: object) -> None:
    """As nextfire would."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > _MOST:
        raise NotKeptError(f"the value has {size} bytes; at most {_MOST} are kept")


def _ask(request: dict[str, object]) -> Any:  # noqa: ANN401
    """Send *request* and await the answer's value."""
    global _channel, _unread  # noqa: PLW0603
    with _lock:
        try:
            if _channel is None:
                _channel = socket.socket(fileno=int(os.environ["NEXTFIRE_CHANNEL"]))
            _channel.sendall(json.dumps(request, allow_nan=False).encode() + b"\n")
            while b"\n" not in _unread:
                data = _channel.recv(65536)
                if not data:
                    raise NotKeptError("nextfire does not listen any more.")
                _unread += data
        except (OSError, ValueError) as error:
            raise NotKeptError(
                f"nextfire cannot be reached: {error}. Call from the script's first process, "
                "or one that it forked."
            ) from error
        line, _, _unread = _unread.partition(b"\n")
    answer = json.loads(line)
    if not answer.get("ok"):
        raise NotKeptError(str(answer.get("error")))
    return answer.get("value")
