"""A client that is built on first use: importing boto3 takes a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class LazyClient:
    """A proxy for the object that *build* returns. The first attribute access calls *build*."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._built: Any = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._built is None:
                self._built = self._build()
        return getattr(self._built, name)
