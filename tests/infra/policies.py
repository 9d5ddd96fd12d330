"""Evaluates the IAM policies of a template; supports only the operators that they use."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.infra.conftest import Template

Context = Mapping[str, str | Sequence[str]]
"""The condition keys of a request; only multivalued keys have several values."""

_WORDS = frozenset(
    {"SET", "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "BETWEEN", "IN"}
    | {"if_not_exists", "list_append", "attribute_exists", "attribute_not_exists"}
    | {"size", "contains"}
)


def rendered(value: Any) -> str:
    """*value* of a template as text; a reference becomes the logical id in angle brackets."""
    match value:
        case str():
            return value
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(rendered, parts))
    raise AssertionError(f"unknown template function: {value}")


_EXPRESSIONS = ("Update", "Condition", "Projection", "KeyCondition", "Filter")


class Policies:
    """The policies of the role whose ARN is the output *output*."""

    def __init__(self, template: Template, output: str) -> None:
        role = template["Outputs"][output]["Value"]["Fn::GetAtt"][0]
        self._statements = [
            statement
            for resource in template["Resources"].values()
            if resource["Type"] == "AWS::IAM::Policy"
            and {"Ref": role} in resource["Properties"]["Roles"]
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        ]

    def allow(self, action: str, resource: str, context: Context) -> bool:
        """Whether a request is allowed: a statement allows it, and none denies it."""
        effects = {each["Effect"] for each in self._matching(action, resource, context)}
        return effects == {"Allow"}

    def deny(self, action: str, resource: str, context: Context) -> bool:
        """Whether a statement denies a request, regardless of any that allow it."""
        return any(each["Effect"] == "Deny" for each in self._matching(action, resource, context))

    def _matching(
        self, action: str, resource: str, context: Context
    ) -> Iterator[Mapping[str, Any]]:
        for statement in self._statements:
            if (
                action in _as_list(statement["Action"])
                and _is_about(statement, resource)
                and all(
                    _holds(operator, context.get(key), _as_list(meant))
                    for operator, keys in statement.get("Condition", {}).items()
                    for key, meant in keys.items()
                )
            ):
                yield statement


def _is_about(statement: Mapping[str, Any], resource: str) -> bool:
    if "NotResource" in statement:
        return not _is_about({"Resource": statement["NotResource"]}, resource)
    return any(fnmatchcase(resource, rendered(each)) for each in _as_list(statement["Resource"]))


def _holds(operator: str, actual: str | Sequence[str] | None, meant: Sequence[str]) -> bool:
    if operator.endswith("IfExists"):
        return actual is None or _holds(operator.removesuffix("IfExists"), actual, meant)
    if ":" in operator:
        kind, operator = operator.split(":")
        each = (_holds(operator, value, meant) for value in _as_list(actual or []))
        return all(each) if kind == "ForAllValues" else any(each)
    match operator:
        case "StringEquals":
            return actual in meant
        case "StringNotEquals":
            return actual not in meant  # also if the key is absent
        case "StringLike":
            return isinstance(actual, str) and any(fnmatchcase(actual, each) for each in meant)
    raise AssertionError(f"unknown operator: {operator}")


def _as_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | dict) else list(value)


def of_request(request: Mapping[str, Any], partition: str) -> Context:
    """The condition keys of a request about one item, or of a Query, in a table whose partition key
    is named *partition*: all top-level attributes in the request, including those in conditions.
    Leading keys of a Query are left out: no policy limits them.
    """
    item = {**request.get("Item", {}), **request.get("Key", {})}
    names = request.get("ExpressionAttributeNames", {})
    text = " ".join(request.get(f"{kind}Expression", "") for kind in _EXPRESSIONS)
    paths = set(re.findall(r"(?<![\w.:#])#?[A-Za-z_]\w*", text)) - _WORDS
    returned = request.get("ReturnValues")
    return {
        "dynamodb:Attributes": sorted({*item, *(names.get(path, path) for path in paths)}),
        **({"dynamodb:LeadingKeys": [item[partition]["S"]]} if item else {}),
        **({"dynamodb:ReturnValues": returned} if returned else {}),
    }
