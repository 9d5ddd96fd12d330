"""Checks AWS calls against the SDK's own model of the service, and fills in idempotency tokens.

Importing this module imports botocore, which takes half a second: the API and the executors do so
when they meet the first AWS call.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from botocore.loaders import create_loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.utils import parse_to_aware_datetime
from pydantic import JsonValue

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.json_text import compact_json
from nextfire.targets.aws.document import AwsCall

FORBIDDEN = frozenset(
    {
        *("iam", "sts", "organizations", "account", "sso", "sso-admin", "sso-oidc"),
        *("identitystore", "rolesanywhere", "signin"),
    }
)
"""Services that manage identities and accounts; never called."""
REDIRECTED = frozenset({"machinelearning"})
"""Services whose requests the SDK sends to a host that a parameter names; never called."""
_FIELD = "target.aws"
_MAX_DEPTH = 32
_SERVICES_KEPT = 16
"""Descriptions of services that are kept: all of them would take half a GB."""
_PLACEHOLDER = re.compile(r"\{\{[^{}]+\}\}")


def operation_of(call: AwsCall) -> OperationModel:
    """Return the model of the operation of *call*.

    Raises:
        InvalidInputError: The SDK does not know the service or the action. Names the nearest.
    """
    known = _services()
    if call.service not in known:
        raise InvalidInputError(
            f"{_FIELD}.service", call.service, "not a service of AWS", _nearest(call.service, known)
        )
    service = _service(call.service)
    if call.action not in service.operation_names:
        raise InvalidInputError(
            f"{_FIELD}.action",
            call.action,
            f"not an action of {call.service}",
            _nearest(call.action, service.operation_names),
        )
    return service.operation_model(call.action)


def check_allowed(call: AwsCall, allowed: Sequence[str]) -> None:
    """Check that a pool may make *call*. *allowed*: patterns such as `sqs:SendMessage`, `sqs:*`.

    Raises:
        InvalidInputError: It may not.
    """
    if call.service in FORBIDDEN:
        raise InvalidInputError(
            f"{_FIELD}.service",
            call.service,
            "jobs may not call services that manage identities and accounts",
            "Run a script with a role for this.",
        )
    if call.service in REDIRECTED:
        raise InvalidInputError(
            f"{_FIELD}.service",
            call.service,
            "jobs may not call services whose parameters choose the host",
            "Run a script with a role for this.",
        )
    name = f"{call.service}:{call.action}"
    if not any(fnmatchcase(name, pattern) for pattern in allowed):
        raise InvalidInputError(
            f"{_FIELD}.action",
            name,
            "the pool may not call it",
            f"Allowed (awsActions of the pool): {', '.join(allowed)[:200] or 'none'}.",
        )


def check_call(call: AwsCall, allowed: Sequence[str]) -> None:
    """Check *call* when its job is stored. Texts with placeholders are accepted for any type.

    Raises:
        InvalidInputError: The call would be rejected.
    """
    check_allowed(call, allowed)
    operation = operation_of(call)
    if operation.has_event_stream_output or operation.has_event_stream_input:
        raise InvalidInputError(
            f"{_FIELD}.action", call.action, "an event stream", "Call another action."
        )
    parameters_of(call, operation, call.input, is_template=True)


def parameters_of(
    call: AwsCall,
    operation: OperationModel,
    values: Mapping[str, JsonValue],
    *,
    is_template: bool = False,
) -> dict[str, Any]:
    """Return *values* as the SDK takes them: texts for blobs become bytes.

    Raises:
        InvalidInputError: A parameter is unknown, missing, or of the wrong type.
    """
    shape = operation.input_shape
    if shape is None:
        if values:
            raise InvalidInputError(
                f"{_FIELD}.input", min(values), "the action has no parameters", "Remove it."
            )
        return {}
    filled = set(token_names(call, operation))
    found = _Reader(is_template, filled).value(shape, dict(values), f"{_FIELD}.input", 0)
    assert isinstance(found, dict)  # noqa: S101 - the input of an operation is a structure
    return found


def with_tokens(
    call: AwsCall, operation: OperationModel, parameters: dict[str, Any], token: str
) -> dict[str, Any]:
    """Return *parameters* with the idempotency tokens that they lack, as UUIDs, which is what the
    SDK itself fills in. *token*: 32 hexadecimal digits or more, the same for all attempts of an
    execution.
    """
    missing = {name for name in token_names(call, operation) if name not in parameters}
    if "MessageDeduplicationId" in missing and not str(parameters.get("QueueUrl", "")).endswith(
        ".fifo"
    ):
        missing.discard("MessageDeduplicationId")
    return {**parameters, **dict.fromkeys(missing, str(UUID(token[:32])))}


def token_names(call: AwsCall, operation: OperationModel) -> Iterator[str]:
    """The parameters of the operation that are idempotency tokens."""
    shape = operation.input_shape
    members = {} if shape is None else shape.members
    for name, member in members.items():
        if member.metadata.get("idempotencyToken"):
            yield name
    if (call.service, call.action) == ("sqs", "SendMessage"):
        yield "MessageDeduplicationId"
    if (call.service, call.action) == ("stepfunctions", "StartExecution"):
        yield "name"


class _Reader:
    """Reads a JSON value as a parameter of the SDK."""

    def __init__(self, is_template: bool, filled: set[str]) -> None:  # noqa: FBT001
        self._is_template = is_template
        self._filled = filled

    def value(self, shape: Shape, value: Any, path: str, depth: int) -> Any:  # noqa: ANN401 - JSON
        if depth > _MAX_DEPTH:
            raise _invalid(path, "…", f"nested more than {_MAX_DEPTH} levels deep")
        if self._is_template and isinstance(value, str) and _PLACEHOLDER.search(value):
            return value
        match shape:
            case StructureShape():
                return self._structure(shape, value, path, depth)
            case ListShape():
                values = _of(list, value, path, "a list")
                _check_least(shape, len(values), path, value, "entries")
                return [
                    self.value(shape.member, each, f"{path}[{number}]", depth + 1)
                    for number, each in enumerate(values)
                ]
            case MapShape():
                members = _of(dict, value, path, "an object")
                return {
                    name: self.value(shape.value, each, f"{path}.{name}", depth + 1)
                    for name, each in members.items()
                }
        return _scalar(shape, value, path)

    def _structure(self, shape: StructureShape, value: object, path: str, depth: int) -> object:
        if getattr(shape, "is_document_type", False):
            return value
        members = _of(dict, value, path, "an object")
        for name in members:
            if name not in shape.members:
                remedy = _nearest(name, shape.members)
                raise InvalidInputError(f"{path}.{name}", name, "unknown parameter", remedy)
        for name in shape.required_members:
            if members.get(name) is None and not (depth == 0 and name in self._filled):
                given = "null" if name in members else "absent"
                raise _invalid(f"{path}.{name}", given, "a required parameter")
        found = {
            name: self.value(shape.members[name], each, f"{path}.{name}", depth + 1)
            for name, each in members.items()
            if each is not None
        }
        if shape.is_tagged_union and len(found) != 1:
            given = ", ".join(found) or "none"
            problem = f"not exactly one of {', '.join(shape.members)}"
            raise _invalid(path, given, problem)
        return found


def _scalar(shape: Shape, value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    match shape.type_name:
        case "string":
            text = _of(str, _as_text(value), path, "a text")
            enum = getattr(shape, "enum", [])
            if enum and text not in enum:
                raise InvalidInputError(path, text, "not a valid value", _nearest(text, enum))
            _check_least(shape, len(text), path, value, "characters")
            return text
        case "blob":
            return _bytes(value, path)
        case "boolean":
            return _of(bool, value, path, "true or false")
        case "integer" | "long":
            if isinstance(value, bool) or not isinstance(value, int):
                raise _invalid(path, value, "not a whole number")
            _check_least(shape, value, path, value)
            return value
        case "float" | "double":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _invalid(path, value, "not a number")
            _check_least(shape, value, path, value)
            return value
        case "timestamp":
            try:
                parse_to_aware_datetime(value)
            except (ValueError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
                raise _invalid(path, value, "not an instant such as 2030-05-24T10:00Z") from error
    return value


def _check_least(shape: Shape, size: float, path: str, value: object, unit: str = "") -> None:
    """Check the minimum of *shape*, which the SDK checks before it sends a request."""
    least = shape.metadata.get("min")
    if least is not None and size < least:
        raise _invalid(path, value, f"less than {least} {unit}".rstrip())


def _as_text(value: object) -> object:
    """*value* as the text of its JSON if it is an object, a list or a number, such as a payload."""
    if isinstance(value, bool) or not isinstance(value, dict | list | int | float):
        return value
    return compact_json(value)


def _bytes(value: object, path: str) -> bytes:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(str(value["base64"]), validate=True)
        except (binascii.Error, ValueError) as error:
            raise _invalid(f"{path}.base64", value["base64"], "not base64") from error
    text: str = _of(str, _as_text(value), path, 'a text or {"base64": …}')
    return text.encode(errors="replace")


def _of(kind: type[Any], value: Any, path: str, noun: str) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, kind):
        raise _invalid(path, value, f"not {noun}")
    return value


def _invalid(path: str, value: object, problem: str) -> InvalidInputError:
    shown = str(value)[:64]
    return InvalidInputError(path, shown, problem, "See the reference of the AWS API.")


def _nearest(name: str, names: Sequence[str] | Mapping[str, object]) -> str:
    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), by_lower, 1, 0.5)
    if near:
        return f"Did you mean {by_lower[near[0]]}?"
    return f"For example {', '.join(sorted(names)[:5])}." if names else "Remove it."


@cache
def _services() -> tuple[str, ...]:
    return tuple(create_loader().list_available_services("service-2"))


@lru_cache(maxsize=_SERVICES_KEPT)
def _service(name: str) -> ServiceModel:
    return ServiceModel(create_loader().load_service_model(name, "service-2"), name)
