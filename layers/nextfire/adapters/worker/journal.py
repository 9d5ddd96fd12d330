"""The journal of the messages that a worker holds, in memory shared with its supervisor.

The kernel keeps the memory while one of the two lives, so the journal survives the worker's death.
In normal operation it costs a copy of a few hundred bytes per message. The supervisor imports this
module, so it uses only the standard library.
"""

from __future__ import annotations

import heapq
import json
import mmap
import struct
import threading
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nextfire.adapters.sqs.run_queue import SqsDelivery

_ENTRIES = 1024
"""More than a worker can hold: 64 slots, each with up to 10 messages of one group, and messages
that are being deleted."""
_ROOM = 8 * 1024
"""Maximum bytes of an entry: more than any valid message with its receipt handle."""
_HEADER = struct.Struct("=QII")  # sequence number from 1, size in bytes, checksum
_FREE = bytes(_HEADER.size)
_TABLE = _ENTRIES * _HEADER.size


class HeldMessage(NamedTuple):
    """A message that a worker held. `body`: empty if it is too long for a valid message."""

    receipt_handle: str
    message_id: str
    group: str
    token: str
    body: str


class WorkerJournal:
    """`Journal` of one worker process: created by the supervisor, inherited by the worker's fork.

    An entry is valid if its checksum is: a worker that dies during a write leaves no valid entry.
    """

    def __init__(self) -> None:
        # First all headers, then all bodies: reading the journal touches few pages.
        self._memory = mmap.mmap(-1, _TABLE + _ENTRIES * _ROOM)
        self._free = list(range(_ENTRIES))  # a heap: few pages are ever used
        self._indexes: dict[str, int] = {}
        self._received = 0
        self._lock = threading.Lock()

    def hold(self, deliveries: Sequence[SqsDelivery]) -> None:
        for each in deliveries:
            held = HeldMessage(
                each.receipt_handle, each.message_id, each.group, each.token, each.body
            )
            data = _encode(held)
            with self._lock:
                if self._free and len(data) <= _ROOM and each.receipt_handle not in self._indexes:
                    index = heapq.heappop(self._free)
                    self._indexes[each.receipt_handle] = index
                    self._received += 1
                    self._write(index, self._received, data)

    def release(self, deliveries: Sequence[SqsDelivery]) -> None:
        with self._lock:
            for each in deliveries:
                index = self._indexes.pop(each.receipt_handle, None)
                if index is not None:
                    self._write_header(index, _FREE)
                    heapq.heappush(self._free, index)

    def held(self) -> list[HeldMessage]:
        """The messages in the journal, in the order of receipt. For the supervisor, after the
        worker's end.
        """
        found = []
        for index in range(_ENTRIES):
            number, size, checksum = _HEADER.unpack_from(self._memory, index * _HEADER.size)
            if not number or size > _ROOM:
                continue
            data = self._memory[_body(index) : _body(index) + size]
            if checksum == _checksum(number, data):
                found.append((number, HeldMessage(*json.loads(data))))
        return [held for _, held in sorted(found)]

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()

    def _write(self, index: int, number: int, data: bytes) -> None:
        self._store(_body(index), data)
        # Written last: it makes the entry valid.
        self._write_header(index, _HEADER.pack(number, len(data), _checksum(number, data)))

    def _write_header(self, index: int, header: bytes) -> None:
        self._store(index * _HEADER.size, header)

    def _store(self, first: int, data: bytes) -> None:
        self._memory[first : first + len(data)] = data


def _encode(held: HeldMessage) -> bytes:
    data = json.dumps(held).encode()
    return data if len(data) <= _ROOM else json.dumps(held._replace(body="")).encode()


def _body(index: int) -> int:
    return _TABLE + index * _ROOM


def _checksum(number: int, data: bytes) -> int:
    return zlib.crc32(data, number & 0xFFFFFFFF)
