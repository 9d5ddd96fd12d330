"""The invalid fields of a document, in the words of the API: what is wrong and how to fix it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from nextfire.dataclass import dataclass
from nextfire.domain.errors import shorten
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire.domain.remedies import ENV, problem_text, remedy_for

_ABSENT = "absent"
"""The value of a field that is required and missing."""
_NAME = "[key]"
"""The end of pydantic's place of a name in an object: its value is the name."""
_MAX_ERRORS = 20
_MAX_VALUE_CHARS = 120
_MAY_BE_SECRET = frozenset({"auth", "headers", "sign", "tls"})
"""Members of `target.http` in which a secret may have been written instead of a reference."""
_HTTP = ("target", "http")
_REFERENCES = frozenset({"secret", "parameter"})


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """An invalid field: its value, the problem, and how to fix it."""

    field: str
    value: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        got = "" if self.value == _ABSENT else f" (got {self.value})"
        return f"{self.field}: {self.problem}{got}. {self.remedy}"


def invalid_fields(
    errors: Sequence[ErrorDetails], model: type[BaseModel] | None, place: str = ""
) -> list[InvalidValue]:
    """Describe validation *errors*, at most 20, without duplicates. *model*: the model of the
    document, or of its part at *place*; provides the names of known fields.
    """
    found: dict[str, InvalidValue] = {}  # by its text
    for fault in map(_of_member, map(_without_tags, _relevant(errors))):
        loc = fault["loc"][:-2] if fault["loc"][-1:] == (_NAME,) else fault["loc"]
        field = ".".join(filter(None, [place, *map(str, loc)])) or "body"
        value = _ABSENT if _absent(fault) else _shown(fault["input"])
        if _is_secret(fault["loc"]) and value != _ABSENT:
            value = "hidden"
        # The remedy of our own validators is more specific.
        remedy = fault.get("ctx", {}).get("remedy") or remedy_for(fault, model)
        invalid = InvalidValue(field, value, problem_text(fault), remedy)
        found.setdefault(str(invalid), invalid)
        if len(found) == _MAX_ERRORS:
            break  # a body can have 30,000 errors, and each costs CPU
    return [*found.values()]


def _relevant(faults: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """*faults* without misleading ones. The value of a variable has three possible forms: only
    errors of the intended form are kept. "Too short" is dropped for a list whose items are invalid.
    """
    within = {fault["loc"][:-1] for fault in faults}
    text, secret, parameter = (
        "constrained-str", SecretReference.__name__, ParameterReference.__name__,
    )  # fmt: skip
    given: dict[str, object] = {}
    for fault in faults:
        if fault["loc"][:2] == ENV and len(fault["loc"]) == 4 and fault["loc"][3] == text:  # noqa: PLR2004
            given[str(fault["loc"][2])] = fault["input"]
    for fault in faults:
        loc = fault["loc"]
        if fault["type"] == "too_short" and loc in within:
            continue
        if loc[:2] != ENV or len(loc) < 4 or loc[3] == _NAME:  # noqa: PLR2004
            yield fault
            continue
        value = given.get(str(loc[2]))
        form = text
        if isinstance(value, dict) and value.keys() & {"secret", "parameter"}:
            form = secret if "secret" in value else parameter
        if loc[3] == form:
            yield {**fault, "loc": (*loc[:3], *loc[4:])}


def _without_tags(fault: ErrorDetails) -> ErrorDetails:
    """*fault*; in `target.http`, without the names of the forms of `auth` and of references, which
    pydantic adds to its place.
    """
    loc = fault["loc"]
    if loc[:2] != _HTTP:
        return fault
    around = zip(("", *loc), loc, (*loc[1:], ""), strict=False)
    kept = (
        part
        for before, part, after in around
        if before != "auth" and not (part in _REFERENCES and after)
    )
    return {**fault, "loc": tuple(kept)}


def _of_member(fault: ErrorDetails) -> ErrorDetails:
    """*fault*; as one of the member that its context names, if it concerns several members."""
    member = fault.get("ctx", {}).get("field")
    if member is None:
        return fault
    document = fault["input"]
    value = document.get(member) if isinstance(document, dict) else None
    return {**fault, "loc": (*fault["loc"], member), "input": value}


def _is_secret(loc: tuple[int | str, ...]) -> bool:
    """Whether the value at *loc* may be a secret that a reference should replace."""
    return any(name in _MAY_BE_SECRET for name in loc) and "http" in loc


def _shown(value: object) -> str:
    """*value*, shortened: a string as our own errors show it, anything else as JSON."""
    if isinstance(value, str):
        return shorten(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _absent(fault: ErrorDetails) -> bool:
    return fault["type"] == "missing" or (
        fault["type"] in {"schedule_form", "after", "edge"} and fault["input"] is None
    )
