"""Bounds the log files of the embedded stack."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 10_000_000
"""Size from which a log is moved to the first older file."""
OLDER_FILES = 2
"""Number of older files per log: ``NAME.log.1`` is the newest."""


def rotate_logs(folder: Path) -> None:
    """Bound each ``NAME.log`` in *folder*.

    The log itself is copied and emptied, because its writers keep it open, in append mode. Lines
    that they write between the two are lost. If the disk is full, the log stays as it is.
    """
    for log in folder.glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size > MAX_BYTES:
                _rotate(log)


def _rotate(log: Path) -> None:
    copy = _named(log, "new")
    try:
        copy.touch(0o600)
        shutil.copy(log, copy)
        for number in range(OLDER_FILES, 1, -1):
            with suppress(FileNotFoundError):
                _named(log, number - 1).replace(_named(log, number))
        copy.replace(_named(log, 1))
        os.truncate(log, 0)
    finally:
        copy.unlink(missing_ok=True)


def _named(log: Path, suffix: object) -> Path:
    return log.with_name(f"{log.name}.{suffix}")
