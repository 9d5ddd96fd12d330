"""Resources of a synthesized template, by their type and by the function that they belong to."""

from collections.abc import Iterator
from typing import Any

from tests.infra.conftest import Template

Resource = dict[str, Any]


def of_type(template: Template, kind: str) -> dict[str, Resource]:
    found = {
        name: resource
        for name, resource in template["Resources"].items()
        if resource["Type"] == f"AWS::{kind}"
    }
    assert found, f"the template has no {kind}"
    return found


def properties(template: Template, kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in of_type(template, kind).values()]


def function_of(template: Template, folder: str) -> tuple[str, dict[str, Any]]:
    handler = f"functions.{folder}.handler.handler"
    [(name, resource)] = [
        (name, resource)
        for name, resource in of_type(template, "Lambda::Function").items()
        if resource["Properties"]["Handler"] == handler
    ]
    return name, resource["Properties"]


def statements(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, policy in of_type(template, "IAM::Policy").items():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            yield name, statement


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def bucket_of(template: Template, output: str) -> tuple[str, dict[str, Any]]:
    """The logical id and the properties of the bucket that the output names."""
    name: str = template["Outputs"][output]["Value"]["Ref"]
    return name, template["Resources"][name]["Properties"]


def queues_of_pools(template: Template) -> dict[str, Resource]:
    queues = of_type(template, "SQS::Queue")
    return {name: queue for name, queue in queues.items() if name.startswith("Pool")}


def routes_of(template: Template) -> dict[str, str]:
    """For each route, how the gateway authenticates the caller."""
    return {
        route["RouteKey"]: route["AuthorizationType"]
        for route in properties(template, "ApiGatewayV2::Route")
    }


def statements_of(template: Template, function: str) -> list[dict[str, Any]]:
    """The statements of the role of the function in that folder."""
    role = function_of(template, function)[1]["Role"]["Fn::GetAtt"][0]
    return [
        statement
        for policy in properties(template, "IAM::Policy")
        if policy["Roles"] == [{"Ref": role}]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
