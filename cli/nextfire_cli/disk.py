"""Measures the disk of a stack's data."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

_WRITES = 3
_PAGE = bytes(4096)


def write_time(folder: Path) -> timedelta:
    """How long the disk of *folder* takes to store a page durably, as each commit does. Zero if
    nothing can be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.monotonic()
            for _ in range(_WRITES):
                file.write(_PAGE)
                file.flush()
                os.fsync(file.fileno())
            return timedelta(seconds=time.monotonic() - began) / _WRITES
    except OSError:
        return timedelta()
