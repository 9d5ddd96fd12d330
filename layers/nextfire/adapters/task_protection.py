"""Keeps ECS from ending this task, to scale in or to deploy, while it works."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

_PATH = "/task-protection/v1/state"
_TIMEOUT = timedelta(seconds=2)
_EXPIRES_IN = timedelta(minutes=15)
"""How long the protection of a worker that hangs outlives it."""
_RENEW_AFTER = _EXPIRES_IN / 3
_TRY_AGAIN_AFTER = timedelta(seconds=30)


class EcsTaskProtection:
    """Tells the agent at *agent_uri* whether this task works; None: there is no agent to tell.

    For one thread. *monotonic* counts seconds. *warn* is told what went wrong: that costs the
    protection, and never the work.
    """

    def __init__(
        self, agent_uri: str | None, *, monotonic: Callable[[], float], warn: Callable[[str], None]
    ) -> None:
        self._uri = agent_uri
        self._monotonic = monotonic
        self._warn = warn
        self._protected = False
        self._renew_at = self._try_again_at = float("-inf")

    def keep(self, *, working: bool) -> None:
        """Have the task protected while it is *working*, and only then.

        To be called often: the agent is asked at a change and when protection is to be renewed,
        and where it refused, again after a while.
        """
        if self._uri is None:
            return
        now = self._monotonic()
        to_renew = working and now >= self._renew_at
        if (working is self._protected and not to_renew) or now < self._try_again_at:
            return
        try:
            _put(self._uri, working)
        except (OSError, HTTPException, ValueError) as error:
            self._try_again_at = now + _TRY_AGAIN_AFTER.total_seconds()
            self._warn(f"the task's protection could not be set to {working}: {error}")
        else:
            self._protected = working
            self._renew_at = now + _RENEW_AFTER.total_seconds()


def _put(agent_uri: str, protected: bool) -> None:  # noqa: FBT001 — it is what is put
    """Raises OSError, HTTPException or ValueError where the agent did not do it."""
    state: dict[str, object] = {"ProtectionEnabled": protected}
    if protected:
        state["ExpiresInMinutes"] = _EXPIRES_IN // timedelta(minutes=1)
    agent = urlsplit(agent_uri)
    # By itself, past any proxy that the environment may name: the agent is on this machine.
    connection = HTTPConnection(agent.hostname or "", agent.port, timeout=_TIMEOUT.total_seconds())
    try:
        connection.request(
            "PUT",
            agent.path.rstrip("/") + _PATH,
            body=json.dumps(state),
            headers={"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    document = json.loads(text) if answer.status == 200 else None  # noqa: PLR2004 — OK
    if not isinstance(document, dict) or "protection" not in document:
        raise ValueError(f"{answer.status} {text[:500]}")
