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
from nextfire.client.pipelines.apply import ApplyError
from nextfire.client.pipelines.builder import pipeline
from nextfire.client.pipelines.document import PipelineError
from nextfire.client.requests import JobRequest, PreviewRequest

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
