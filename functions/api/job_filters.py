"""Query parameters of lists of jobs."""

from __future__ import annotations

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import AfterValidator, WithJsonSchema

from functions.api.requests import TEXT_SCHEMA, number_parameter, one_of_states
from nextfire.domain.definition import MAX_LABELS
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.occurrences import JobState
from nextfire.responses.base import UNREADABLE

MAX_UPCOMING = 100


_JOB_STATES = [*JobState, UNREADABLE]
Count = Annotated[
    int, Query(description="Maximum number of occurrences."), *number_parameter(MAX_UPCOMING, 10)
]
JobStateFilter = Annotated[
    str | None,
    Query(description="Only this state. UNREADABLE: stored items that cannot be decoded."),
    AfterValidator(one_of_states(_JOB_STATES, "a job")),
    WithJsonSchema({"enum": _JOB_STATES}),
]
Labels = Annotated[
    list[str] | None,
    Query(
        alias="label",
        description="`key:value`: only jobs with this label. Repeat the parameter or separate"
        " labels by commas to require all of them. Keys with a colon and labels with a comma"
        " cannot be queried.",
    ),
]
NamePrefix = Annotated[
    str | None, Query(description="Only jobs whose name starts with this prefix."), TEXT_SCHEMA
]


def labels(texts: list[str] | None) -> dict[str, str]:
    """Parse the labels of the query.

    Raises:
        InvalidInputError: A label is invalid, there are too many, or a key has two values.
    """
    found: dict[str, str] = {}
    if len(texts or []) > MAX_LABELS:
        raise InvalidInputError(
            "label",
            f"{len(texts or [])} labels",
            f"more than {MAX_LABELS}, which no job has",
            f"Name at most {MAX_LABELS}. For example `team:billing`.",
        )
    for text in texts or []:
        key, colon, value = text.partition(":")
        if not key or not colon:
            raise InvalidInputError("label", text, "not `key:value`", "For example `team:billing`.")
        if found.setdefault(key, value) != value:
            raise InvalidInputError(
                "label", text, f"another value of {key!r} than before", "A label has one value."
            )
    return found
