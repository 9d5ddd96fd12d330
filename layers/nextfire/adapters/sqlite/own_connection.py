"""Connections that are closed by the process that opened them."""

from __future__ import annotations

import os
import sqlite3


class OwnConnection:
    """Owns *connection*: closes it after its last use. A forked process leaves it open:
    closing it there would damage the locks of its parent.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._process == os.getpid():
            self.connection.close()
