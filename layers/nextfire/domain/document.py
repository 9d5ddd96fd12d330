"""The base of the documents that users write, and how stored documents are read.

A document of a user is read strictly: an unknown field is an error. A stored or sent document may
come from a newer version, which runs at the same time during a deployment and before a rollback:
its unknown fields are ignored for decisions, and written back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

MAX_PAYLOAD_BYTES = 64 * 1024
"""Maximum size of a payload, and of the body of a callback and the input of an AWS call, as JSON.
Stored jobs of earlier versions can have a larger body or input.
"""


class StrictModel(BaseModel):
    """A JSON document: camelCase outside, strict about unknown fields, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        # Most are nested in another document, whose validator covers them.
        defer_build=True,
    )


class Document(StrictModel):
    """A document of the API. Errors do not show its values, which may be secrets."""

    model_config = ConfigDict(hide_input_in_errors=True)

    @classmethod
    def stored(cls, text: str | bytes) -> Self:
        """Read the stored JSON *text*. Unknown fields are kept, see `with_unknown`.

        Raises:
            ValidationError: A known field is invalid, or a required field is missing.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            if not _unknown_only(error):
                raise
        return cls.model_validate_json(text, extra="allow")

    @classmethod
    def stored_values(cls, values: Mapping[str, Any]) -> Self:
        """As `stored`, for parsed JSON."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            if not _unknown_only(error):
                raise
        return cls.model_validate(values, extra="allow")


def _unknown_only(error: ValidationError) -> bool:
    """Whether unknown fields are part of the problem: the others are found without them."""
    return any(each["type"] == "extra_forbidden" for each in error.errors(include_input=False))


def with_unknown(document: Any, source: object) -> Any:  # noqa: ANN401 - JSON
    """Return *document*, the JSON document of *source*, with the unknown fields of *source* at all
    levels. A part of *document* that has another form than *source* gets none.
    """
    match source:
        case Document() if isinstance(document, dict):
            for name, field in type(source).model_fields.items():
                alias = field.alias or name
                if alias in document:
                    document[alias] = with_unknown(document[alias], getattr(source, name))
            return document | (source.model_extra or {})
        case Mapping() if isinstance(document, dict) and _has_documents(source.values()):
            return {name: with_unknown(value, source.get(name)) for name, value in document.items()}
        case tuple() if isinstance(document, list) and _has_documents(source):
            pairs = zip_longest(document, source[: len(document)])
            return [with_unknown(*pair) for pair in pairs]
    return document


def document_error(
    kind: str, problem: str, remedy: str, *, field: str | None = None
) -> PydanticCustomError:
    """The error that a validator of a document raises. *field*: the field of the document that it
    is about, if the validator is of several.
    """
    named = {} if field is None else {"field": field}
    return PydanticCustomError(kind, "{problem}", {**named, "problem": problem, "remedy": remedy})


def is_same_json(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether two JSON values are the same. In Python, `1` equals `true` and `1.0`."""
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _has_documents(values: Iterable[object]) -> bool:
    return any(isinstance(each, Document) for each in values)
