"""Who may call the API, and what is recorded of the calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crons import LONG
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import (
    as_list,
    function_of,
    of_type,
    properties,
    routes_of,
    statements,
    statements_of,
)
from tests.infra.test_lint import check_with_cfn_lint


def test_only_health_is_open(template: Template) -> None:
    assert routes_of(template) == {"$default": "CUSTOM", "GET /v1/health": "NONE"}


def test_a_key_is_asked_for_and_its_verdict_is_short_lived(template: Template) -> None:
    name, function = function_of(template, "authorizer")
    [authorizer] = properties(template, "ApiGatewayV2::Authorizer")

    assert authorizer["AuthorizerType"] == "REQUEST"
    assert authorizer["AuthorizerPayloadFormatVersion"] == "2.0"
    assert authorizer["EnableSimpleResponses"] is True
    # Without it the gateway answers by itself and does not invoke the authorizer.
    assert authorizer["IdentitySource"] == ["$request.header.Authorization"]
    # A revoked key is rejected within a minute.
    assert 0 < authorizer["AuthorizerResultTtlInSeconds"] <= 30
    assert function["Timeout"] < 10
    assert json.dumps(authorizer["AuthorizerUri"]).count(name) == 1


def test_only_the_gateway_may_ask_the_authorizer_for_this_api(template: Template) -> None:
    name, _ = function_of(template, "authorizer")
    [permission] = [
        permission
        for permission in properties(template, "Lambda::Permission")
        if permission["FunctionName"] == {"Fn::GetAtt": [name, "Arn"]}
    ]

    assert permission["Principal"] == "apigateway.amazonaws.com"
    [api] = of_type(template, "ApiGatewayV2::Api")
    [authorizer] = of_type(template, "ApiGatewayV2::Authorizer")
    source = json.dumps(permission["SourceArn"])
    assert api in source
    assert authorizer in source
    assert "*" not in source


def test_authorizer_reads_keys_and_writes_nothing_but_the_day_of_use(template: Template) -> None:
    keys = template["Outputs"]["KeysTable"]["Value"]["Ref"]
    table = {"Fn::GetAtt": [keys, "Arn"]}
    granted = {
        action: statement
        for statement in statements_of(template, "authorizer")
        for action in as_list(statement["Action"])
        if not action.startswith("logs:")
    }

    assert set(granted) == {"dynamodb:GetItem", "dynamodb:UpdateItem"}
    assert {json.dumps(statement["Resource"]) for statement in granted.values()} == {
        json.dumps(table)
    }
    condition = granted["dynamodb:UpdateItem"]["Condition"]
    assert condition["ForAllValues:StringEquals"]["dynamodb:Attributes"] == [
        "key_id",
        "last_used_on",
        "tenant",
    ]  # fmt: skip
    returned = condition["StringEqualsIfExists"]["dynamodb:ReturnValues"]
    assert "ALL_OLD" not in returned
    assert "ALL_NEW" not in returned


def test_only_the_api_and_the_authorizer_reach_the_keys(template: Template) -> None:
    keys = template["Outputs"]["KeysTable"]["Value"]["Ref"]

    roles = {
        name
        for name, statement in statements(template)
        if keys in json.dumps(statement["Resource"])
        and "StreamArn" not in json.dumps(statement["Resource"])
    }

    assert len(roles) == 2
    assert {name[:4] for name in roles} == {"ApiR", "Auth"}


def test_keys_remove_themselves_some_time_after_they_expired(template: Template) -> None:
    keys = template["Resources"][template["Outputs"]["KeysTable"]["Value"]["Ref"]]["Properties"]

    assert keys["TimeToLiveSpecification"] == {"AttributeName": "forget_at", "Enabled": True}
    assert [each["AttributeName"] for each in keys["KeySchema"]] == ["tenant", "key_id"]


def test_no_output_and_no_environment_holds_a_key(template: Template) -> None:
    text = json.dumps(template)

    assert "nf." not in json.dumps(template["Outputs"])
    assert "nfk_" not in json.dumps(template)
    assert "NEXTFIRE_API_KEY" not in text


@pytest.fixture(scope="module")
def iam_template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return synthesize(tmp_path_factory.mktemp("iam"), {"auth": "iam", "awsClient": "boto3"})[2]


def clients_of(template: Template) -> list[Any]:
    functions = [
        f for f in properties(template, "Lambda::Function") if "functions." in f["Handler"]
    ]
    return [each["Environment"]["Variables"]["NEXTFIRE_AWS_CLIENT"] for each in functions]


def test_every_function_has_the_client_of_the_setting(
    template: Template, iam_template: Template
) -> None:
    """In the second template `awsClient` is boto3."""
    assert {*clients_of(template)} == {"lean"}
    assert {*clients_of(iam_template)} == {"boto3"}
    outputs = template["Outputs"].items()
    [worker] = [o["Value"] for name, o in outputs if name.startswith("WorkerEnvironment")]
    assert "NEXTFIRE_AWS_CLIENT" in json.dumps(worker)


def test_signed_requests_instead_of_keys(iam_template: Template) -> None:
    assert routes_of(iam_template) == {"$default": "AWS_IAM", "GET /v1/health": "NONE"}
    assert "AWS::ApiGatewayV2::Authorizer" not in {
        resource["Type"] for resource in iam_template["Resources"].values()
    }
    _, api = function_of(iam_template, "api")
    assert api["Environment"]["Variables"]["NEXTFIRE_AUTH"] == "iam"
    keys = iam_template["Outputs"]["KeysTable"]["Value"]["Ref"]
    for _, statement in statements(iam_template):
        resource = json.dumps(statement["Resource"])
        assert keys not in resource or "StreamArn" in resource


def test_rules_for_roles_come_to_the_api(tmp_path: Path) -> None:
    rules = [{"role": "team-*", "tenant": "etl", "scopes": ["run"]}]
    template = synthesize(tmp_path, {"auth": "iam", "iam": rules})[2]
    _, api = function_of(template, "api")
    assert json.loads(api["Environment"]["Variables"]["NEXTFIRE_IAM_RULES"]) == rules


def test_tokens_instead_of_keys(tmp_path: Path) -> None:
    jwt = {
        "issuer": "https://login.example.com/acme",
        "audience": ["nextfire"],
        "tenantClaim": "https://example.com/tenant",
    }
    _, _, template, file = synthesize(tmp_path, {"auth": "jwt", "jwt": jwt})

    assert routes_of(template) == {"$default": "JWT", "GET /v1/health": "NONE"}
    [authorizer] = properties(template, "ApiGatewayV2::Authorizer")
    assert authorizer["JwtConfiguration"] == {
        "Issuer": jwt["issuer"],
        "Audience": jwt["audience"],
    }
    assert authorizer["IdentitySource"] == ["$request.header.Authorization"]
    variables = function_of(template, "api")[1]["Environment"]["Variables"]
    assert variables["NEXTFIRE_AUTH"] == "jwt"
    assert variables["NEXTFIRE_TENANT_CLAIM"] == jwt["tenantClaim"]
    if LONG:  # the ordinary template is always checked
        check_with_cfn_lint(file)


def test_access_log_says_who_called_and_never_the_key(
    template: Template, iam_template: Template
) -> None:
    formats = [
        properties(each, "ApiGatewayV2::Stage")[0]["AccessLogSettings"]["Format"]
        for each in (template, iam_template)
    ]

    assert "$context.authorizer.keyId" in formats[0]
    assert "$context.identity.caller" in formats[1]
    assert not [each for each in formats if "header" in each.lower()]


def test_api_is_throttled_and_logged(template: Template) -> None:
    [stage] = properties(template, "ApiGatewayV2::Stage")

    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] > 0
    assert "DestinationArn" in stage["AccessLogSettings"]
