"""Decides whether a run may call its destination now: the breaker first, then the limit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from nextfire.domain.endpoints import EndpointKey, EndpointState, Outcome
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import Hold
from nextfire.usecases.breaker import Breaker
from nextfire.usecases.call_flows import CallFlows

_TO_END = timedelta(seconds=15)
"""From the deadline of a call to the end of its place: time to claim and to record the run."""


class EndpointGate:
    """The gate of the endpoints of one pool in one process; thread-safe. *random*: as of
    `CallFlows`.
    """

    def __init__(
        self,
        store: EndpointStore,
        pool: str,
        clock: Clock,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
        random: Random | None = None,
    ) -> None:
        self._pool = pool
        self._breaker = Breaker(store, pool, clock, on_error=on_error)
        self._flows = CallFlows(store, clock, on_error=on_error, random=random)

    def admit(
        self,
        tenant: str,
        destination: str,
        run: str,
        now: datetime,
        *,
        first: bool,
        timeout: timedelta,
    ) -> Hold | None:
        """Return why and until when *run* must not call *destination*; None if it may: then call
        `leave` after the call.

        Args:
            tenant: The tenant of the job.
            destination: ``host:port``.
            run: Identifies the run.
            now: The instant of the decision.
            first: It is the first dispatch of the run.
            timeout: Maximum duration of the call.
        """
        hold = self._breaker.admit(tenant, destination, run, now)
        endpoint = self._breaker.known(tenant, destination)
        # A probe has no limit: it is the only call in its interval.
        if hold or endpoint is None or endpoint.state is EndpointState.OPEN or not endpoint.limit:
            return hold
        return self._flows.enter(
            endpoint.key, endpoint.limit, run, until=now + timeout + _TO_END, first=first
        )

    def leave(self, tenant: str, destination: str, run: str, *, unused: bool = False) -> None:
        """Give back what *run* took when it was admitted. *unused*: no attempt was made. Never
        raises.
        """
        if unused:
            self._breaker.unused(tenant, destination, run)
        self._flows.leave(EndpointKey(self._pool, tenant, destination), run)

    def report(
        self,
        tenant: str,
        destination: str,
        outcome: Outcome,
        retry_at: datetime | None = None,
    ) -> None:
        """Record the result of a call of *destination*; *retry_at*: the end of its Retry-After."""
        self._breaker.report(tenant, destination, outcome, retry_at)
