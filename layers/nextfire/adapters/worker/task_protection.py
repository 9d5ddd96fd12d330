"""Protects this ECS task from scale-in and deployments while it runs jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPException

from nextfire.adapters.worker.ecs_agent import ask_agent

_PATH = "/task-protection/v1/state"
_RENEW_AFTER = timedelta(minutes=5)
_EXPIRES_IN = timedelta(hours=12) + _RENEW_AFTER
"""As long as any run may take, counted from a renewal. In a deployment ECS refuses renewals
(DEPLOYMENT_BLOCKED) while more tasks are protected than the service is to have: the old ones and
the new ones."""
_TRY_AGAIN_AFTER = timedelta(seconds=30)


class EcsTaskProtection:
    """Sets task protection at the ECS agent at *agent_uri*; does nothing if that is None.

    For use by one thread. *monotonic* returns seconds. *warn* receives errors: they cost the
    protection, but never affect a run.
    """

    def __init__(
        self, agent_uri: str | None, *, monotonic: Callable[[], float], warn: Callable[[str], None]
    ) -> None:
        self._uri = agent_uri
        self._monotonic = monotonic
        self._warn = warn
        self._protected = False
        # A worker that died in this task, or a request whose response was lost, may have left one.
        self._is_certain = False
        self._renew_at = monotonic() + _RENEW_AFTER.total_seconds()
        self._try_again_at = float("-inf")

    def keep(self, *, working: bool) -> None:
        """Protect the task if it is *working*; otherwise remove the protection.

        Call it often: it sends a request only if *working* changes, if the protection must be
        renewed, some time after a failure, or once if an idle task may be protected nevertheless.
        """
        if self._uri is None:
            return
        now = self._monotonic()
        to_renew = now >= self._renew_at and (working or not self._is_certain)
        if (working is self._protected and not to_renew) or now < self._try_again_at:
            return
        try:
            _put(self._uri, working)
        except (OSError, HTTPException, ValueError) as error:
            self._is_certain = False
            self._try_again_at = now + _TRY_AGAIN_AFTER.total_seconds()
            if not working:
                self._renew_at = now + _RENEW_AFTER.total_seconds()
            self._warn(f"cannot set the task's protection to {working}: {error}")
        else:
            self._protected, self._is_certain = working, True
            self._renew_at = now + _RENEW_AFTER.total_seconds()


def _put(agent_uri: str, protected: bool) -> None:  # noqa: FBT001 — the value to set
    """Raises OSError, HTTPException or ValueError if the agent did not set the protection."""
    state: dict[str, object] = {"ProtectionEnabled": protected}
    if protected:
        state["ExpiresInMinutes"] = _EXPIRES_IN // timedelta(minutes=1)
    text = ask_agent("PUT", agent_uri, _PATH, json.dumps(state))
    document = json.loads(text)
    if not isinstance(document, dict) or "protection" not in document:
        raise ValueError(f"200 {text[:500]}")
