"""Private parts of Powertools' resolver that the API uses, in one place. `pyproject.toml` allows no
later major version than the tested one: `tests/unit/test_resolver_parts.py`.
"""

from __future__ import annotations

import re
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.middlewares.openapi_validation import (
    OpenAPIRequestValidationMiddleware,
)


class Resolver(APIGatewayHttpResolver):
    """Matches whole paths. Powertools' rules end with ``$``, which also matches before a line feed
    at the end: `/v1/jobs/a%0A` was the job `a`.
    """

    @staticmethod
    def _compile_regex(rule: str, base_regex: str = r"^{}\Z") -> re.Pattern[str]:
        compiled: re.Pattern[str] = APIGatewayHttpResolver._compile_regex(  # noqa: SLF001
            rule, base_regex
        )
        return compiled


def routes_of(app: APIGatewayHttpResolver) -> list[Any]:
    """The routes included so far: those without parameters in their path first, as they match."""
    return [*app._static_routes, *app._dynamic_routes]  # noqa: SLF001


def path_of(app: APIGatewayHttpResolver, raw: str) -> str:
    """The path *raw* of an event, without the prefixes that the resolver strips."""
    return app._remove_prefix(raw)  # noqa: SLF001


def check_requests_with(
    app: APIGatewayHttpResolver, checks: OpenAPIRequestValidationMiddleware
) -> None:
    """Validate requests with *checks* instead of the resolver's own middleware."""
    app._request_validation_middleware = checks  # noqa: SLF001
