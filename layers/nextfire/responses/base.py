"""The base class of API responses.

A response class lists its fields. The server builds the JSON document with `of`, the client reads
the document through attributes, and the OpenAPI document shows the annotations.

    class BackfillResponse(ApiResponse):
        job_id: str = field(lambda backfill, job: job.key.job_id)
        first: datetime
        reason: str | None = field(description="Why it was requested.")

    BackfillResponse.of(backfill, job).document  # {"jobId": "report", "first": "2026-05-24T…"}
    BackfillResponse({"first": "2026-05-24T10:00:00Z"}).first  # datetime(2026, 5, 24, …)

- JSON names are camelCase: `jobId`.
- `field(function)` computes a value from the arguments of `of`. Without a function it is the
  attribute of the same name of the first argument: `backfill.first`.
- A field whose annotation includes None is omitted if its value is None.

Importing a response class builds no pydantic model: the functions start without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pydantic.alias_generators import to_camel

from nextfire.domain.document import Document
from nextfire.domain.instants import isoformat

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

UNREADABLE = "UNREADABLE"
"""State of a stored item that cannot be decoded. Its real state is unknown."""
_MAX_PROBLEM_CHARS = 300
_PLAIN = {str, int, bool, dict}
"""Types that are JSON already; most values have one of them."""
Sources = tuple[Any, ...]
"""Arguments of `ApiResponse.of`."""


class ResponseField:
    """A field of a response. `name`: in Python; `alias`: in JSON; for the others see `field`."""

    __slots__ = ("alias", "description", "name", "schema", "secret", "value")

    def __init__(
        self,
        value: Callable[..., object] | None = None,
        description: str | None = None,
        schema: Any = None,  # noqa: ANN401 — any type
        *,
        secret: bool = False,
    ) -> None:
        self.value = value
        self.description = description
        self.schema = schema
        self.secret = secret

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.alias = to_camel(name.removesuffix("_"))

    def __get__(self, response: ApiResponse | None, owner: type[ApiResponse]) -> Any:  # noqa: ANN401
        if response is None:
            return self
        from nextfire.responses.reading import read  # noqa: PLC0415 — only clients read

        found = read(response, self)
        vars(response)[self.name] = found  # precedes this descriptor from now on
        return found

    def put(self, document: dict[str, Any], sources: Sources, given: dict[str, Any]) -> None:
        """Add the field to *document*, unless its value is None."""
        value = given.pop(self.name, None) if given else None
        if value is None and sources:
            value = self.value(*sources) if self.value else getattr(sources[0], self.name)
        if value is not None:
            document[self.alias] = _encode(value)


def field(
    value: Callable[..., object] | None = None,
    *,
    description: str | None = None,
    schema: Any = None,  # noqa: ANN401 — any type
    secret: bool = False,
) -> Any:  # noqa: ANN401 — stands for a value of the annotated type
    """Describe a field of a response.

    Args:
        value: Computes the value from the arguments of `of`. Default: the attribute of the same
            name of the first one.
        description: In the OpenAPI document.
        schema: The type in the OpenAPI document, if it differs from the annotation.
        secret: Never shown by `repr`.
    """
    return ResponseField(value, description, schema, secret=secret)


class AllFields:
    """All fields of *model*, as fields of a response. *value* returns the model."""

    def __init__(self, model: type[Document], value: Callable[..., Any]) -> None:
        self.model = model
        self.value = value

    def put(self, document: dict[str, Any], sources: Sources, given: dict[str, Any]) -> None:
        del given  # they replace single fields
        if sources:
            document.update(self.value(*sources).document())


class Json(NamedTuple):
    """A JSON value of a user, which is shown as it is, even if it is null."""

    value: Any


class ApiResponse:
    """A JSON document that the API returned. `document`: the whole document. `etag`: of a single
    job, for `if_match`.

    Attributes are read on access, so a response of a newer API is readable: unknown fields are
    ignored, and an unknown enum value is a str. If the API omitted a field, the attribute is None
    if its type allows that; otherwise reading it raises AttributeError.
    """

    parts: ClassVar[tuple[ResponseField | AllFields, ...]] = ()
    """What the class lists, in the order of the JSON document."""

    def __init__(self, document: Mapping[str, Any], etag: str | None = None) -> None:
        self.document = dict(document)
        self.etag = etag

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own: list[ResponseField | AllFields] = []
        for name in cls.__annotations__:
            if name not in vars(cls):
                _add(cls, name, ResponseField())
            own.append(vars(cls)[name])
        for each in [value for value in vars(cls).values() if isinstance(value, AllFields)]:
            own.append(each)
            for name in each.model.model_fields:
                _add(cls, name, ResponseField())
        cls.parts = (*cls.parts, *own)

    @classmethod
    def of(cls, *sources: Any, **given: Any) -> Self:  # noqa: ANN401 — see `field`
        """The response about *sources*, the arguments of the fields' functions. *given*: values of
        fields, which replace theirs. Without *sources*, it has only the *given* fields.
        """
        document: dict[str, Any] = {}
        for part in cls.parts:
            part.put(document, sources, given)
        if given:
            raise TypeError(f"{cls.__name__} has no field {', '.join(given)}")
        return cls(document)

    def __repr__(self) -> str:
        hidden = {
            each.alias for each in self.parts if isinstance(each, ResponseField) and each.secret
        }
        shown = {name: value for name, value in self.document.items() if name not in hidden}
        return f"{type(self).__name__}({shown!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 — only clients read

        return core_schema.no_info_plain_validator_function(cls)


def one_line(problem: str) -> str:
    """*problem* on one line, truncated."""
    line = " ".join(problem.split())
    return line if len(line) <= _MAX_PROBLEM_CHARS else line[: _MAX_PROBLEM_CHARS - 1] + "…"


def _add(cls: type[ApiResponse], name: str, added: ResponseField) -> None:
    added.__set_name__(cls, name)
    setattr(cls, name, added)


def _encode(value: Any) -> Any:  # noqa: ANN401 — any JSON
    """*value* as JSON."""
    if type(value) in _PLAIN:
        return value
    match value:
        case ApiResponse():
            return value.document
        case Json():
            return value.value
        case Enum():
            return value.value
        case datetime():
            return isoformat(value)
        case date():
            return value.isoformat()
        case list() | tuple():
            return [_encode(each) for each in value]
    return value
