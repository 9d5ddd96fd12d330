"""The port of endpoints."""

from __future__ import annotations

from typing import Protocol

from nextfire.domain.call_flow import CallFlow
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.ports.pages import Page


class EndpointStore(Protocol):
    """Stores endpoints. Those that are neither PAUSED nor limited are removed some time after their
    last change.
    """

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        """Return the endpoint; None if it is not stored. *consistent*: by a consistent read, which
        costs twice as much as an eventually consistent one.

        Raises:
            UndecodableError: The stored item is not a valid endpoint.
            UnavailableError: The store did not answer.
        """

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        """Store *to* if the stored endpoint has the version of *was* (0: is not stored). Of several
        concurrent callers with the same version at most one succeeds.

        Returns:
            Whether this call stored *to*. After False it may be stored all the same: a request that
            the adapter repeated finds its own write, which could be that of another caller.

        Raises:
            UnavailableError: The store did not answer. *to* may be stored.
        """

    def flow(self, key: EndpointKey) -> CallFlow | None:
        """Return the flow of the endpoint's calls, by a consistent read; None if it is not stored.

        Raises:
            UndecodableError: The stored item is not a valid flow.
            UnavailableError: The store did not answer.
        """

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        """As `replace`: store *to* if the stored flow has the version of *was*."""

    def list(self, tenant: str, pool: str, *, cursor: str | None, limit: int) -> Page[Endpoint]:
        """Return *tenant*'s endpoints in *pool* by destination, by consistent reads. *limit*: page
        size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """
