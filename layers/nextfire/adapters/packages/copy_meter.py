"""Limits of a copy of installed packages, and of the disk space that they take."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from nextfire.domain.ports.scripts import Directive

_MOST_BYTES = 4 * 1024**3
_MOST_FILES = 100_000


def lacks_room(folder: Path) -> bool:
    """Whether the file system of *folder* has no room for another copy: less than its maximum size,
    or than a quarter of a small file system. Unknown counts as no.
    """
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return False
    return found.free < min(_MOST_BYTES, found.total // 4)


class StoppedError(Exception):
    """The supervisor stopped the copy."""

    def __init__(self, verdict: Directive) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class CopyMeter:
    """Limits a copy, and polls at each file and chunk whether the run may continue."""

    def __init__(self, ask: Callable[[], Directive]) -> None:
        self._ask = ask
        self._files = self._bytes = 0

    def count(self, *, files: int = 0, size: int = 0) -> None:
        """Add *files* and *size* bytes to the copy.

        Raises:
            OSError: The copy is too large.
            StoppedError: The run may not continue.
        """
        self._files += files
        self._bytes += size
        if self._files > _MOST_FILES or self._bytes > _MOST_BYTES:
            raise OSError(f"the packages exceed {_MOST_FILES} files or {_MOST_BYTES} bytes")
        verdict = self._ask()
        if verdict is not Directive.CONTINUE:
            raise StoppedError(verdict)
