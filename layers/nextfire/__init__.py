"""The core of nextfire, shared by every function: domain, use cases, adapters. And, where httpx is
installed, the client of its API: ``from nextfire import Client``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextfire.client import (
        ApiError,
        Client,
        ClientError,
        Conflict,
        Forbidden,
        Invalid,
        JobRequest,
        NotFound,
        PreconditionFailed,
        PreviewRequest,
        RateLimited,
        Unauthorized,
        Unavailable,
        UnreachableError,
    )

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "JobRequest",
    "NotFound",
    "PreconditionFailed",
    "PreviewRequest",
    "RateLimited",
    "Unauthorized",
    "Unavailable",
    "UnreachableError",
]

if not TYPE_CHECKING:  # else every name would be one of this package's

    def __getattr__(name: str) -> Any:  # noqa: ANN401 — each has its own type
        # When it is asked for: the functions do without the client, and have no httpx.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nextfire import client  # noqa: PLC0415

        return getattr(client, name)
