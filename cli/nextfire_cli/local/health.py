"""Waits for a program of the local stack until it answers requests."""

from __future__ import annotations

import contextlib
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import httpx2

from nextfire_cli.local.state import LocalStackError, tail


def await_answer(
    process: subprocess.Popen[bytes], url: str, *, what: str, within: timedelta, log: Path
) -> None:
    """Request *url* until *process*, called *what* in the error, answers with success.

    Raises:
        LocalStackError: It has ended, or did not answer *within* this time.
    """
    deadline = time.monotonic() + within.total_seconds()
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(url).is_success:
                return
        time.sleep(0.05)
    raise LocalStackError(f"{what} did not start; see {log}:\n{tail(log)}")
