"""Invokes the watcher's function once for group 0, in a separate process."""

from __future__ import annotations

from typing import Any, cast

from functions.watcher.handler import handler

if __name__ == "__main__":
    handler({"group": 0}, cast("Any", None))
