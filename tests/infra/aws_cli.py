"""The AWS command line, as far as the pages use it: operations of the SDK, with their options.

`python -m tests.infra.aws_cli SERVICE OPERATION [--OPTION VALUE…]` calls the endpoint of the
environment. What only AWS's command line has, such as `aws logs tail`, is not an operation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import jmespath  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.session import get_session
from botocore.validate import ParamValidator

_OF_THE_CLI = frozenset({"query", "output", "cli-binary-format", "cli-input-json"})
"""Options that are not parameters of an operation."""
_NO = "no-"


class CommandError(Exception):
    """The command is wrong."""


@dataclass(frozen=True)
class Call:
    """A call of *operation*. `query`: what is shown of its answer."""

    service: str
    operation: str
    parameters: dict[str, Any]
    query: str | None = None
    is_text: bool = False

    def answer(self) -> Any:
        """Make the call. Returns what the command shows."""
        client: Any = boto3.client(self.service)  # type: ignore[call-overload]
        found = getattr(client, xform_name(self.operation))(**self.parameters)
        found.pop("ResponseMetadata", None)
        found = {name: value for name, value in found.items() if not hasattr(value, "read")}
        return found if self.query is None else jmespath.search(self.query, found)


def parsed(words: Sequence[str], *, whole: bool = True) -> Call:
    """The call of the command with *words*, without the first one, `aws`. *whole*: whether it is a
    command to type, not one that a sentence mentions with some of its options.

    Raises:
        CommandError: The operation or an option does not exist, a value is invalid, or, of a whole
            command, an option is missing.
    """
    if len(words) < 2:
        raise CommandError(f"aws {' '.join(words)}: no operation")
    service, name, *rest = words
    model = _operation(service, name)
    parameters: dict[str, Any] = {}
    cli: dict[str, str] = {}
    for option, values in _options(rest):
        if option in _OF_THE_CLI:
            cli[option] = " ".join(values)
            continue
        member, shape = _member(model, option)
        parameters[member] = _value(shape, values, negated=option.startswith(_NO))
    report = ParamValidator().validate(parameters, model.input_shape or _nothing())
    lacking = "Missing required parameter"
    whole = whole and "cli-input-json" not in cli
    faults = report.generate_report().splitlines()
    if found := [each for each in faults if whole or not each.startswith(lacking)]:
        raise CommandError(f"aws {service} {name}: {', '.join(found)}")
    if query := cli.get("query"):
        jmespath.compile(query)
    return Call(service, model.name, parameters, query, cli.get("output") == "text")


def _operation(service: str, name: str) -> OperationModel:
    loader = get_session().get_component("data_loader")
    if service not in loader.list_available_services("service-2"):
        raise CommandError(f"aws {service}: no such service")
    model = ServiceModel(loader.load_service_model(service, "service-2"), service)
    for operation in model.operation_names:
        if xform_name(operation, "-") == name:
            return model.operation_model(operation)
    raise CommandError(f"aws {service} {name}: no such operation")


def _nothing() -> Shape:
    return StructureShape("Nothing", {"type": "structure", "members": {}})


def _options(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The options with their values. What is before the first one, and a file for the output of
    `invoke` after the last one, is left out.
    """
    option: str | None = None
    values: list[str] = []
    for word in words:
        if word.startswith("--"):
            if option is not None:
                yield option, values
            option, values = word[2:], []
        elif not word.startswith("/dev/"):
            values.append(word)
    if option is not None:
        yield option, values


def _member(model: OperationModel, option: str) -> tuple[str, Shape]:
    members = model.input_shape.members if model.input_shape else {}
    for member, shape in members.items():
        known = xform_name(member, "-")
        if option == known or (option == _NO + known and shape.type_name == "boolean"):
            return member, shape
    raise CommandError(f"{xform_name(model.name, '-')} has no option --{option}")


def _value(shape: Shape, words: list[str], *, negated: bool) -> Any:
    if shape.type_name == "boolean" and not words:
        return not negated
    if isinstance(shape, ListShape):
        return [_value(shape.member, [word], negated=False) for word in words]
    [word] = words
    match shape.type_name:
        case "integer" | "long":
            return int(word)
        case "double" | "float":
            return float(word)
        case "boolean":
            return {"true": True, "false": False}[word]
        case "blob":
            return word.encode()
        case "structure" if isinstance(shape, StructureShape):
            return _structure(shape, word)
        case _:
            return word


def _structure(shape: StructureShape, word: str) -> Any:
    """A structure in JSON, or in the short form `Name=value,Name=value`."""
    if word.startswith("{"):
        return json.loads(word)
    found = {}
    for part in word.split(","):
        name, _, value = part.partition("=")
        if name not in shape.members:
            raise CommandError(f"{shape.name} has no member {name}")
        found[name] = _value(shape.members[name], [value], negated=False)
    return found


def main() -> None:
    """Make the call of the command line, and print what it shows."""
    try:
        call = parsed(sys.argv[1:])
    except CommandError as error:
        sys.exit(str(error))
    answer = call.answer()
    shown = answer if call.is_text and isinstance(answer, str) else json.dumps(answer, default=str)
    sys.stdout.write(f"{shown}\n")


if __name__ == "__main__":
    main()
