"""The fields of a job, from the model, for flags, output and the reference page.

`JobDefinition` declares each field once: its type, bounds, default and description.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from nextfire.domain.definition import JobDefinition

_Schema = Mapping[str, Any]


@dataclass(frozen=True)
class JobField:
    """A field of a job document.

    `path`: e.g. ``misfire.policy``. `schema`: the JSON schema without null. `default`: as JSON;
    None without a default.
    """

    path: str
    schema: _Schema
    default: Any
    is_required: bool

    @property
    def description(self) -> str:
        return str(self.schema.get("description", ""))

    @property
    def is_list(self) -> bool:
        return self.schema.get("type") == "array"

    @property
    def is_object(self) -> bool:
        """Whether the value is an object whose member names the user chooses."""
        return self.schema.get("type") == "object"

    @property
    def value(self) -> _Schema:
        """The schema of the value, or of each value of a list."""
        found: _Schema = self.schema["items"] if self.is_list else self.schema
        return found


def fields_of(model: type[BaseModel]) -> dict[str, JobField]:
    """Return the fields of *model* by path, those of nested documents instead of the documents."""
    schema = model.model_json_schema()
    return {field.path: field for field in _fields(model, schema, schema["$defs"], "")}


def _fields(
    model: type[BaseModel], schema: _Schema, defs: _Schema, prefix: str
) -> Iterator[JobField]:
    for name, info in model.model_fields.items():
        alias = info.alias or name
        found = _resolved(schema["properties"][alias], defs)
        nested = info.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from _fields(nested, found, defs, f"{prefix}{alias}.")
        else:
            default = found.get("default")
            if info.default_factory is not None:  # not in the schema
                default = info.get_default(call_default_factory=True, validated_data={})
            yield JobField(f"{prefix}{alias}", found, default, info.is_required())


def _resolved(schema: _Schema, defs: _Schema) -> dict[str, Any]:
    """*schema* without a reference and without null."""
    own = {name: value for name, value in schema.items() if name not in {"$ref", "anyOf"}}
    if "$ref" in schema:
        return _resolved(defs[schema["$ref"].rpartition("/")[2]], defs) | own
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        return _resolved(choices[0], defs) | own
    return {**own, **({"anyOf": choices} if choices else {})}


JOB_FIELDS = fields_of(JobDefinition)
