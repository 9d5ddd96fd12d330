"""Sends requests to the agent of ECS on this task's machine."""

from __future__ import annotations

from http.client import HTTPConnection
from urllib.parse import urlsplit

_TIMEOUT = 2.0  # seconds


def ask_agent(method: str, uri: str, path: str, document: str | None = None) -> str:
    """Send *document*, if any, to *path* below *uri*. Returns the response body.

    Raises:
        OSError, HTTPException: The agent did not respond.
        ValueError: It did not respond with 200.
    """
    agent = urlsplit(uri)
    headers = {} if document is None else {"Content-Type": "application/json"}
    # http.client ignores proxies in the environment: the agent is on this machine.
    connection = HTTPConnection(agent.hostname or "", agent.port, timeout=_TIMEOUT)
    try:
        connection.request(method, agent.path.rstrip("/") + path, document, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status != 200:  # noqa: PLR2004 — OK
        raise ValueError(f"{answer.status} {text[:500]}")
    return text
