"""The protocol between a running script and its executor: lines of JSON over a socket.

    request                                 response
    {"op": "checkpoint.load"}               {"ok": true, "value": …}; null if none was saved
    {"op": "checkpoint.save", "value": …}   {"ok": true} after it was stored; with "again": true in
                                            an error, the script may send it again
    {"op": "upstream"}                      {"ok": true, "value": {…}}
    {"op": "result", "value": …}            {"ok": true}; the last result counts
    anything else                           {"ok": false, "error": "…"}

A response has the `id` of its request, if that has one: several processes may use the socket.

`nextfire_job` is the client for scripts.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Never

from nextfire.adapters.scripts.script_streams import PAUSE, Pace
from nextfire.domain.attempt import MAX_NESTING, MAX_VALUE_BYTES, is_nested_too_deeply
from nextfire.domain.errors import UnavailableError
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Supervisor

_READ_BYTES = 64 * 1024
_MAX_REQUEST = 4 * MAX_VALUE_BYTES
"""Larger than a value: a request may hold blanks and escapes that the stored value does not."""
_SMALL = 64 * 1024
_large = threading.Lock()
"""Held while a request of more than `_SMALL` bytes is parsed: an empty object, three bytes with its
comma, takes 72 bytes of memory. Scripts that run at the same time could use up the executor's.
"""
_MAX_LOADED = 900
"""Levels of a checkpoint that Python 3.11 decodes; later releases decode more."""
_TOO_DEEP = f"the value is nested more than {MAX_NESTING} levels deep; flatten it"
_SAVE_BURST = 10
_SAVE_EVERY = 0.1  # seconds per save after a burst: each save costs a write to DynamoDB
_BURST = 0.25  # seconds of CPU time


class Channel:
    """The executor's end. Never blocks on the script; buffers at most one request and one reply.

    *upstream*: JSON about the runs of the parents; None: the job has no parents. `result`: the JSON
    of the last result, masked; or None.
    """

    def __init__(
        self,
        end: socket.socket,
        supervisor: Supervisor,
        masker: Masker,
        upstream: str | None = None,
    ) -> None:
        self._upstream = upstream
        end.setblocking(False)
        self._socket = end
        self._supervisor = supervisor
        self._masker = masker
        self._request = bytearray()
        self._searched = 0
        self._reply = b""
        self._closed = False
        self._ending = False
        self._saves = float(_SAVE_BURST)
        self._saved_at = time.monotonic()
        self._pace = Pace(_BURST)
        self._waits = False  # for its turn to parse a large request
        self.result: bytes | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def events(self) -> int:
        if self._closed:
            return 0
        # While a reply is pending, no request is read. While one `_waits`, the socket is writable.
        return selectors.EVENT_WRITE if self._reply or self._waits else selectors.EVENT_READ

    def ready(self, _events: int) -> None:
        """Read or write without blocking. Raises the supervisor's errors."""
        if self._pace.pauses():
            return
        try:
            if self._reply:
                self._reply = self._reply[self._socket.send(self._reply) :]
            elif self._waits:
                pass
            elif data := self._socket.recv(_READ_BYTES):
                self._request += data
            else:
                self._closed = True
        except BlockingIOError:
            return
        except OSError:
            self._closed = True
        if not self._reply and not self._closed:
            self._next()

    def _next(self) -> None:
        if self._ending:
            self._closed = True
            self._socket.shutdown(socket.SHUT_RDWR)
            return
        end = self._request.find(b"\n", self._searched)
        self._searched = len(self._request)
        if end < 0 and len(self._request) <= _MAX_REQUEST:
            return
        if end < 0 or end > _MAX_REQUEST:
            error = f"the request exceeds {_MAX_REQUEST} bytes"
            self._reply = _line({"ok": False, "error": error})
            self._request.clear()
            self._ending = True
        else:
            with self._pace.measured():
                self._handle(end)

    def _handle(self, end: int) -> None:
        """Answer the request until *end*, if its turn has come."""
        with _turn(end) as has_turn:
            self._waits = not has_turn
            if self._waits:
                self._searched = end
                return
            request = _parse(bytes(self._request[:end]), self._masker)
        del self._request[: end + 1]
        self._searched = 0
        self._reply = self._reply_to(request)

    def _reply_to(self, request: dict[str, Any]) -> bytes:
        """The reply to *request*, which `_parse` returned."""
        named = {"id": request["id"]} if "id" in request else {}
        try:
            return _line(self._answer(request) | named)
        except RecursionError:
            return _line({"ok": False, "error": _TOO_DEEP} | named)
        except ValueError as error:
            return _line({"ok": False, "error": str(error)} | named)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"error": error}:
                return {"ok": False, "error": error}
            case {"op": "checkpoint.load"}:
                return {"ok": True, "value": _kept(self._supervisor.checkpoint())}
            case {"op": "upstream"}:
                runs = self._upstream
                return {"ok": True, "value": {} if runs is None else json.loads(runs)}
            case {"op": "checkpoint.save", "value": value}:
                self._slow_down()
                return self._saved(value)
            case {"op": "result", "value": value}:
                self.result = value
                return {"ok": True}
        raise ValueError("unknown request")

    def _saved(self, checkpoint: bytes) -> dict[str, Any]:
        try:
            problem = self._supervisor.save(checkpoint)
        except UnavailableError as error:
            why = f"the checkpoint was not stored: {error}"
            return {"ok": False, "error": why, "again": True}
        return {"ok": True} if problem is None else {"ok": False, "error": problem}

    def _slow_down(self) -> None:
        now = time.monotonic()
        self._saves = min(self._saves + (now - self._saved_at) / _SAVE_EVERY, _SAVE_BURST)
        self._saved_at = now
        if self._saves < 1:
            time.sleep(_SAVE_EVERY)
        self._saves -= 1


@contextmanager
def _turn(size: int) -> Iterator[bool]:
    """Wait a moment for the turn to parse a request of *size* bytes. Yields whether it has come."""
    has_come = size <= _SMALL or _large.acquire(timeout=PAUSE)
    try:
        yield has_come
    finally:
        if has_come and size > _SMALL:
            _large.release()


def _parse(line: bytes, masker: Masker) -> dict[str, Any]:
    """The `op`, `value` and `id` in *line*, as far as it has them, with the value encoded, and
    masked if it is a result; if the line is invalid, its `id` and the `error`.
    """
    named = {}
    try:
        request = json.loads(line, parse_constant=_refuse)
        if not isinstance(request, dict):
            return {}
        op = request.get("op")
        if isinstance(request.get("id"), str):
            named = {"id": request["id"]}
        if "value" in request:
            value = _encode(request["value"])
            named["value"] = _bounded(masker.json(value) if op == "result" else value)
        return named | {"op": op}
    except RecursionError:
        return named | {"error": _TOO_DEEP}
    except ValueError as error:
        return named | {"error": str(error)}


def _kept(checkpoint: bytes | None) -> Any:
    """The value of *checkpoint*; rejects one of an older version that scripts cannot decode."""
    if checkpoint is None:
        return None
    if is_nested_too_deeply(checkpoint, _MAX_LOADED):
        raise ValueError(_TOO_DEEP)
    return json.loads(checkpoint)


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _encode(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if is_nested_too_deeply(text):
        raise ValueError(_TOO_DEEP)
    return text


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_VALUE_BYTES:
        raise ValueError(f"the value has {len(data)} bytes; the maximum is {MAX_VALUE_BYTES}")
    return data


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")
