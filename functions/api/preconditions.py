"""`If-Match` and `If-None-Match`: the version of a job that a request expects."""

from __future__ import annotations

import re
from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Header
from pydantic import WithJsonSchema

from functions.api.requests import MAX_PARAMETER_CHARS, too_long
from nextfire.domain.errors import InvalidInputError

_TAG = re.compile(r'(W/)?"[!#-~]*"')
_TAGS = re.compile(rf"[\s,]*+{_TAG.pattern}(\s*+,[\s,]*+{_TAG.pattern})*+[\s,]*+")
"""A list: it may have empty elements (RFC 9110, section 5.6.1)."""


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="Only if the job still has this `ETag`; `*`: only if the job exists.",
    ),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\*|{_TAG.pattern}(, ?{_TAG.pattern})*)$",
            "examples": ['"k3x9m2abk3x9m2ab-1"'],
        }
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only if the job does not exist."),
    WithJsonSchema({"type": "string", "pattern": r"^\*$"}),
]


def versions(if_match: str | None) -> frozenset[str] | None:
    """The versions in an If-Match header; None if it is `*` or absent.

    Raises:
        InvalidInputError: The header is invalid.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if len(if_match) > MAX_PARAMETER_CHARS:
        raise too_long("If-Match", if_match)
    if not _TAGS.fullmatch(if_match):
        raise InvalidInputError(
            "If-Match",
            if_match,
            "not an entity tag",
            "Send an ETag verbatim, including its quotes.",
        )
    tags = [match[0] for match in _TAG.finditer(if_match)]
    # A weak tag never matches (RFC 9110, section 13.1.1).
    return frozenset(tag.strip('"') for tag in tags if tag.startswith('"'))


def is_any(if_none_match: str | None) -> bool:
    """Whether the job must not exist (`If-None-Match: *`).

    Raises:
        InvalidInputError: The header is not `*`.
    """
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidInputError("If-None-Match", if_none_match, "not `*`", "Send `*`.")
    return if_none_match is not None


def must_exist(if_match: str | None) -> bool:
    """Whether the job must exist in any version (`If-Match: *`)."""
    return if_match is not None and if_match.strip() == "*"
