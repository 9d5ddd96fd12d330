"""Where tests put what scripts of real workers are to see."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def folder_of_the_host(prefix: str) -> Path:
    """A new folder that is neither a temporary one nor in a home: scripts do not see those."""
    for place in (Path("/srv"), Path(f"/run/user/{os.getuid()}"), Path("/var/tmp")):  # noqa: S108
        if os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    raise AssertionError("no folder here that a user may write to")
