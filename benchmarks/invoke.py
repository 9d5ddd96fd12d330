"""One invocation of the watcher's function in a process of its own, for group 0."""

from __future__ import annotations

from typing import Any, cast

from functions.watcher.handler import handler

if __name__ == "__main__":
    handler({"group": 0}, cast("Any", None))
