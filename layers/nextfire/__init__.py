"""The core of nextfire, shared by all functions: domain, use cases and adapters. The installed
package also contains the API client: ``from nextfire import Client``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextfire.client import (
        ApiError,
        ApplyError,
        Client,
        ClientError,
        Conflict,
        Forbidden,
        Invalid,
        JobRequest,
        NotEndedError,
        NotFound,
        PipelineError,
        PreconditionFailed,
        PreviewRequest,
        RateLimited,
        Unauthorized,
        Unavailable,
        UnreachableError,
        pipeline,
    )

__all__ = [
    "ApiError",
    "ApplyError",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "JobRequest",
    "NotEndedError",
    "NotFound",
    "PipelineError",
    "PreconditionFailed",
    "PreviewRequest",
    "RateLimited",
    "Unauthorized",
    "Unavailable",
    "UnreachableError",
    "pipeline",
]

if not TYPE_CHECKING:  # a type checker would accept every attribute of this package

    def __getattr__(name: str) -> Any:  # noqa: ANN401 — the type depends on the name
        # Imported on first use: the functions do not need the client and do not install httpx2.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from nextfire import client  # noqa: PLC0415

        return getattr(client, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
