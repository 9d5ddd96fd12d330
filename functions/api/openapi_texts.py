"""The texts and examples of the OpenAPI document: about the API, its security and its errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.openapi.models import APIKey, APIKeyIn, HTTPBearer

from functions.api.idempotency import KEY_PATTERN
from nextfire.usecases.idempotent_requests import KEY

ABOUT = """\
Create jobs, schedule them, and read their executions.

- Every path is also available under `/api`.
- Fields are camelCase; unset fields are omitted from responses. Unknown fields and query parameters
  are rejected; the error suggests the closest known name.
- Errors are problem documents (RFC 9457): `detail` states the problem and the remedy, `errors`
  lists each invalid field. Errors of the gateway in front of the API have only a `message`.
- To get the next page of a listing, pass its `cursor`. A page may hold fewer items than `limit`,
  or none.
- The identity of the caller determines the tenant. No other part of a request does.
"""
SECURITY = {
    "apiKey": HTTPBearer(bearerFormat="nfk_TENANT.KEY.SECRET", description="An API key."),
    "jwt": HTTPBearer(
        bearerFormat="JWT", description="A token, if the stack is configured for JWT."
    ),
    "sigV4": APIKey(
        in_=APIKeyIn.header,
        name="Authorization",
        description="AWS Signature Version 4 (service `execute-api`), if the stack uses IAM.",
    ),
}
BY_THE_GATEWAY = {
    HTTPStatus.BAD_REQUEST: "The gateway cannot read the request.",
    HTTPStatus.UNAUTHORIZED: "Credentials are missing, or the token is invalid.",
    HTTPStatus.FORBIDDEN: (
        "The key is invalid, expired or revoked; the signature is invalid or expired; or the "
        "principal may not call this route."
    ),
    HTTPStatus.NOT_FOUND: "The API or the stage does not exist.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The request is larger than 10 MB.",
    HTTPStatus.TOO_MANY_REQUESTS: "The rate limit of the deployment is exceeded.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The authorizer failed.",
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The API is unavailable or did not respond within 30 s. The request may have taken effect."
    ),
    HTTPStatus.GATEWAY_TIMEOUT: "No response in time. The request may have taken effect.",
}
"""Responses of API Gateway itself, with its own body."""
BY_THE_API = {
    HTTPStatus.BAD_REQUEST: "The body is not a JSON object.",
    HTTPStatus.FORBIDDEN: (
        "The identity lacks the scope, or the request is outside the network or label "
        "restriction of the key."
    ),
    HTTPStatus.NOT_FOUND: "The resource does not exist, or it belongs to another tenant.",
    HTTPStatus.METHOD_NOT_ALLOWED: "The path does not support this method: see `Allow`.",
    HTTPStatus.CONFLICT: "The state of the resource does not allow this.",
    HTTPStatus.PRECONDITION_FAILED: "The condition of `If-Match` or `If-None-Match` is not met.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request is invalid: see `errors`.",
    HTTPStatus.TOO_MANY_REQUESTS: (
        "A quota of the tenant is exceeded, or the request rate of the tenant or the key."
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: "An internal error, or a stored item that cannot be decoded.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A store does not respond. The request may have taken effect.",
}
ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
WAIT = {
    "Retry-After": {
        "description": "Seconds to wait before a retry.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
EXAMPLES: dict[str, Any] = {
    "ExecutionResponse": {
        "executionId": "daily-invoices.20260524T100000000Z-k3x9m2ab",
        "jobId": "daily-invoices",
        "state": "SUCCEEDED",
        "scheduledAt": "2026-05-24T10:00:00Z",
        "dispatchedAt": "2026-05-24T10:00:00.012Z",
        "startedAt": "2026-05-24T10:00:00.301Z",
        "finishedAt": "2026-05-24T10:00:02.944Z",
        "pool": "default",
        "dispatch": 1,
        "attempt": 1,
        "worker": "lambda/1f3a",
        "jobRevision": 1,
        "exitCode": 0,
        "stdout": "12 invoices\n",
        "stderr": "",
        "attempts": [
            {
                "number": 1,
                "worker": "lambda/1f3a",
                "startedAt": "2026-05-24T10:00:00.301Z",
                "finishedAt": "2026-05-24T10:00:02.944Z",
                "outcome": "SUCCEEDED",
                "exitCode": 0,
            }
        ],
    },
    "QuotasResponse": {
        "quotas": {"jobs": 1000, "runsPerMinute": 600, "shortestIntervalSec": 60},
        "used": {"jobs": 12, "runsPerMinute": 17},
        "minuteEndsAt": "2026-05-24T10:01:00Z",
        "weight": 1,
        "tenant": "acme",
        "ownEntry": True,
    },
    "Problem": {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": ("timeout_sec: unknown field (got 60). Did you mean `timeoutSec`?"),
        "errors": [
            {
                "field": "timeout_sec",
                "value": "60",
                "problem": "unknown field",
                "remedy": "Did you mean `timeoutSec`?",
            }
        ],
    },
}
IDEMPOTENCY_KEY = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": (
        "A request that is repeated with the same key within 24 h takes effect once. The key is "
        "rejected if the body differs."
    ),
    "schema": {"type": "string", "pattern": f"^{KEY_PATTERN}$"},
    "example": "6f1c0a52-8d1b-4c7e-9a43-0f5f4b1f2f10",
}
