"""The version of this package."""

from __future__ import annotations

from functools import cache
from importlib import metadata

_UNKNOWN = "0+unknown"


@cache
def version() -> str:
    """The version of the installed package, such as ``0.1.0``; ``0+unknown`` if the code runs from
    a folder without being installed.
    """
    try:
        return metadata.version("nextfire")
    except metadata.PackageNotFoundError:
        return _UNKNOWN
