"""The client of the API. The functions do not contain it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextfire.client.api import Client
    from nextfire.client.auth import Auth
    from nextfire.client.bearer import Bearer
    from nextfire.client.errors import (
        ApiError,
        ClientError,
        Conflict,
        Fault,
        Forbidden,
        Invalid,
        NotEndedError,
        NotFound,
        PreconditionFailed,
        RateLimited,
        Unauthorized,
        Unavailable,
        UnreachableError,
    )
    from nextfire.client.pipelines.apply import ApplyError
    from nextfire.client.pipelines.builder import pipeline
    from nextfire.client.pipelines.document import PipelineError
    from nextfire.client.requests import JobRequest, PreviewRequest

_MODULES = {
    "bearer": ("Bearer",),
    "api": ("Client",),
    "auth": ("Auth",),
    "errors": (
        "ApiError",
        "ClientError",
        "Conflict",
        "Fault",
        "Forbidden",
        "Invalid",
        "NotEndedError",
        "NotFound",
        "PreconditionFailed",
        "RateLimited",
        "Unauthorized",
        "Unavailable",
        "UnreachableError",
    ),
    "pipelines.apply": ("ApplyError",),
    "pipelines.builder": ("pipeline",),
    "pipelines.document": ("PipelineError",),
    "requests": (
        "JobRequest",
        "PreviewRequest",
    ),
}
"""The modules of this package that define its names. Imported on first use: the command must start
quickly, and needs few of them."""
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ApiError",
    "ApplyError",
    "Auth",
    "Bearer",
    "Client",
    "ClientError",
    "Conflict",
    "Fault",
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
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
