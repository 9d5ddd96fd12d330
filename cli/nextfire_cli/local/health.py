"""Waits for a program or the API of the local stack until it answers requests."""

from __future__ import annotations

import contextlib
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import httpx2

from nextfire_cli.local.state import LocalStackError, tail

_HEALTHY_WITHIN = 60


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
            if httpx2.get(url, trust_env=False).is_success:
                return
        time.sleep(0.05)
    raise LocalStackError(f"{what} did not start; see {log}:\n{tail(log)}")


def await_health(endpoint: str, *, log: Path) -> None:
    """Request the health of the API at *endpoint* until it is up.

    Raises:
        LocalStackError: It is not within a minute. *log*: where the error says to look.
    """
    deadline = time.monotonic() + _HEALTHY_WITHIN
    while True:
        try:
            response = httpx2.get(f"{endpoint}/v1/health", timeout=30, trust_env=False)
            if response.is_success:
                return
            answer = f"{response.status_code}: {response.text}"
        except httpx2.TransportError:  # such as a timeout: the function starts, on a busy machine
            answer = "nothing"
        if time.monotonic() > deadline:
            raise LocalStackError(f"The API answers a health check with {answer}\nSee {log}.")
        time.sleep(0.2)
