"""A client that is built when it is first used: boto3 takes a second to import."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Lazily:
    """Stands for what *build* returns, which is called once, by the first use of an attribute."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._built: Any = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._built is None:
                self._built = self._build()
        return getattr(self._built, name)
