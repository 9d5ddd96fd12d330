"""The sign of life of a part: shows the supervisor a process that hangs instead of dying."""

from __future__ import annotations

import mmap
import os
import struct

LOOK_EVERY = 10.0
"""Seconds between two looks that count."""
LOOKS = 6
"""Looks without a beat after which a process hangs. Looks are counted rather than seconds: while
the machine or the whole stack is suspended, the supervisor does not look either.
"""
FIRST_LOOKS = 5 * LOOKS
"""The same before its first beat: a start on a busy machine may take long."""
_SLOT = struct.Struct("=QQ")


class Pulse:
    """A count of beats and the process that beats, in memory that forked processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOT.size)
        self.forget()

    def forget(self) -> None:
        """Begin again, for another process."""
        _SLOT.pack_into(self._memory, 0, 0, 0)
        self._seen, self._looks, self._looked_at = (0, 0), 0, 0.0

    def beat(self) -> None:
        """Show that the loop of this process continues. Cheap: called several times a second."""
        count, _ = _SLOT.unpack_from(self._memory)
        _SLOT.pack_into(self._memory, 0, count + 1, os.getpid())

    def look(self, now: float) -> int | None:
        """The process that hangs: it has not beaten for `LOOKS` looks; 0 if none has beaten for
        `FIRST_LOOKS`; else None. It is found again after as many further looks.
        """
        found = _SLOT.unpack_from(self._memory)
        if found != self._seen or not self._looked_at:
            self._seen, self._looks, self._looked_at = found, 0, now
        elif now - self._looked_at >= LOOK_EVERY:
            self._looks, self._looked_at = self._looks + 1, now
        if self._looks < (LOOKS if found[1] else FIRST_LOOKS):
            return None
        self._looks = 0
        process: int = found[1]
        return process
