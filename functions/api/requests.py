"""Request models: bodies, and parameters of paths, queries and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar
from unicodedata import category

from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, WrapValidator

from functions.api.bounds import check_bounds
from nextfire.domain.document import Document, document_error
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JOB_ID
from nextfire.domain.instants import isoformat
from nextfire.domain.schedule_text import read_instant
from nextfire.domain.when import InstantText

MAX_REASON = 256
_DEFAULT_SPAN = timedelta(days=1)
_MAX_PAGE_ITEMS = 100
TEXT_SCHEMA = WithJsonSchema({"type": "string"})
INSTANT_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})
UTC_NOTE = "ISO 8601. UTC if it has no offset."
_NUMBER = re.compile(r"[0-9]{1,9}")  # int() refuses thousands of digits


MAX_PARAMETER_CHARS = 4096
"""Characters of a parameter of the query, and of a header."""


def too_long(field: str, text: str) -> InvalidInputError:
    return InvalidInputError(
        field,
        f"{len(text)} characters",
        f"longer than {MAX_PARAMETER_CHARS} characters",
        f"Shorten it to {MAX_PARAMETER_CHARS} characters.",
    )


Model = TypeVar("Model", bound=Document)


def reading(model: type[Document]) -> WrapValidator:
    """A validator that reads a JSON body into *model* by camelCase names only: a snake_case name
    next to the real field would be dropped silently.
    """
    return WrapValidator(lambda body, _: read_as(model, body))


def read_as(model: type[Model], body: object) -> Model:
    """Parse *body* as *model*.

    Raises:
        ValidationError: The body is invalid.
        InvalidInputError: The body has too many entries.
    """
    check_bounds(model, body)
    return model.model_validate_json(json.dumps(body), by_alias=True, by_name=False)


def body_example(value: dict[str, Any]) -> Any:  # noqa: ANN401 — the library's own type is a model
    return {"example": {"value": value}}


def check_line(text: str | None) -> str | None:
    if text is None:
        return None
    if len(text) > MAX_REASON:
        problem = f"longer than {MAX_REASON} characters"
        remedy = f"Shorten it to {MAX_REASON} characters."
    elif any(category(character) == "Cc" for character in text):
        problem = "holds control characters"
        remedy = "Write it on one line, without tabs and line breaks."
    elif not text.strip():
        problem, remedy = "blank", "Say why, or leave it out."
    else:
        return text
    raise document_error("reason", problem, f"{remedy} For example `the ledger is closed`.")


Reason = Annotated[
    str | None,
    AfterValidator(check_line),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_REASON}, {"type": "null"}]}
    ),
]
"""Reason of a request: one line of text."""
REASON_EXAMPLE = body_example({"reason": "the ledger is closed"})


def check_job_id(value: object) -> object:
    if isinstance(value, str) and JOB_ID.fullmatch(value):
        return value
    remedy = "Use 1 to 64 letters, digits, hyphens and underscores."
    raise document_error("job_id", "not a job id", remedy)


JOB_ID_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": f"^{JOB_ID.pattern}$", "examples": ["daily-invoices"]}
)
JobId = Annotated[str, BeforeValidator(check_job_id), JOB_ID_SCHEMA]
"""Job id: chosen by the caller, or `job_` and 16 hexadecimal digits."""


ExecutionId = Annotated[
    str,
    WithJsonSchema({"type": "string", "examples": ["daily-invoices.20260524T100000000Z-k3x9m2ab"]}),
]


def read_utc(text: str, field: str) -> datetime:
    """Parse *text* as an instant, in UTC if it has no offset.

    Raises:
        InvalidInputError: *text* is not an instant.
    """
    return read_instant(text, "UTC", field, whose="UTC; in a URL a `+` is written `%2B`")


def one_of_states(states: list[str], whose: str) -> Callable[[str | None], str | None]:
    def known(text: str | None) -> str | None:
        if text is None or text in states:
            return text
        raise document_error("state", f"not a state of {whose}", f"Available: {', '.join(states)}.")

    return known


def optional_job_id(value: str | None) -> str | None:
    return None if value is None else str(check_job_id(value))


def number_parameter(most: int, example: int) -> tuple[BeforeValidator, WithJsonSchema]:
    def read(text: object) -> int:
        if isinstance(text, int):
            return text
        if isinstance(text, str) and _NUMBER.fullmatch(text) and 1 <= int(text) <= most:
            return int(text)
        raise document_error(
            "number", f"not a number from 1 to {most}", f"For example `{example}`."
        )

    return BeforeValidator(read), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": most})


Limit = Annotated[
    int,
    Query(description="Maximum number of items on a page."),
    *number_parameter(_MAX_PAGE_ITEMS, 50),
]
Cursor = Annotated[
    str | None,
    Query(description="`cursor` of the previous page.", max_length=MAX_PARAMETER_CHARS),
]


PoolName = Annotated[str, WithJsonSchema({"type": "string", "examples": ["default"]})]
PoolFilter = Annotated[str | None, Query(description="Only this pool."), TEXT_SCHEMA]
From = Annotated[
    str | None,
    Query(alias="from", description=f"Start. Default: 24 h before `to`. {UTC_NOTE}"),
    INSTANT_SCHEMA,
]
To = Annotated[str | None, Query(description=f"End. Default: now. {UTC_NOTE}"), INSTANT_SCHEMA]


def span(first: str | None, last: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Parse *first* and *last*. Defaults: 24 h before the end, and *now*.

    Raises:
        InvalidInputError: One is not an instant, or *first* is later than *last*.
    """
    to = now if last is None else read_utc(last, "to")
    since = to - _DEFAULT_SPAN if first is None else read_utc(first, "from")
    if since > to:
        raise InvalidInputError(
            "from",
            isoformat(since),
            f"later than `to`, which is {isoformat(to)}",
            "Exchange them, or leave one out: `to` is now by default, `from` 24 h before `to`.",
        )
    return since, to


class PauseRequest(Document):
    """Pause a job until `until`, or until it is resumed if `until` is absent."""

    reason: Reason = None
    until: InstantText | None = Field(default=None, description=UTC_NOTE)

    @property
    def ends_at(self) -> datetime | None:
        """Raises:
        InvalidInputError: `until` is not an instant.
        """
        return None if self.until is None else read_utc(self.until, "until")
