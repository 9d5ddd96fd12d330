"""The client of the API. The functions do not contain it."""

from nextfire.client.access import Auth, Bearer
from nextfire.client.api import Client
from nextfire.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    PreconditionFailed,
    RateLimited,
    Unauthorized,
    Unavailable,
    UnreachableError,
)
from nextfire.client.requests import JobRequest, PreviewRequest

__all__ = [
    "ApiError",
    "Auth",
    "Bearer",
    "Client",
    "ClientError",
    "Conflict",
    "Fault",
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
