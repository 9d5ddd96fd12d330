"""AWS calls are checked against the SDK's model of the service, and filled in."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from botocore.handlers import BUILTIN_HANDLERS  # noqa: TID251 - what the SDK does by itself
from botocore.validate import ParamValidator  # noqa: TID251 - as above
from pydantic import ValidationError

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.aws import model
from nextfire.targets.aws.document import AwsCall
from nextfire.targets.aws.model import (
    FORBIDDEN,
    REDIRECTED,
    check_call,
    operation_of,
    parameters_of,
    with_tokens,
)

QUEUE = "https://sqs.eu-central-1.amazonaws.com/111122223333/orders"
SEND = {"QueueUrl": QUEUE, "MessageBody": "hello"}
TOKEN = "0123456789abcdef" * 4


def call(name: str, values: dict[str, Any]) -> AwsCall:
    service, _, action = name.partition(":")
    return AwsCall.model_validate({"service": service, "action": action, "input": values})


def error(name: str, values: dict[str, Any], allowed: tuple[str, ...] = ("*",)) -> str:
    with pytest.raises(InvalidInputError) as invalid:
        check_call(call(name, values), allowed)
    return str(invalid.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sqs:SendMessage", SEND),
        ("sqs:SendMessage", {"QueueUrl": QUEUE, "MessageBody": "{{payload}}"}),
        ("sqs:SendMessage", SEND | {"DelaySeconds": "{{payload.delay}}"}),
        ("stepfunctions:StartExecution", {"stateMachineArn": "arn:a", "input": "{{payload}}"}),
        ("ecs:RunTask", {"taskDefinition": "nightly:3", "launchType": "FARGATE"}),
        ("lambda:Invoke", {"FunctionName": "f", "Payload": "{{payload}}"}),
        ("glue:StartJobRun", {"JobName": "etl", "Arguments": {"--day": "{{run.scheduledAt}}"}}),
        ("events:PutEvents", {"Entries": [{"Source": "a", "DetailType": "b", "Detail": "{}"}]}),
        ("dynamodb:PutItem", {"TableName": "t", "Item": {"a": {"S": "x"}, "b": {"N": "1"}}}),
        ("s3:PutObject", {"Bucket": "b", "Key": "k", "Body": {"base64": "AAE="}}),
        ("ec2:StopInstances", {"InstanceIds": ["i-1"]}),
        ("sns:ListTopics", {}),
    ],
)
def test_valid_calls_are_accepted(name: str, values: dict[str, Any]) -> None:
    check_call(call(name, values), ["*"])


@pytest.mark.parametrize(
    ("name", "values", "hint"),
    [
        ("sqz:SendMessage", {}, "Did you mean sqs?"),
        ("sqs:SendMesage", {}, "Did you mean SendMessage?"),
        ("sqs:SendMessage", SEND | {"MesageBody": "x"}, "input.MesageBody"),
        ("sqs:SendMessage", {"queueUrl": QUEUE}, "Did you mean QueueUrl?"),
        ("sqs:SendMessage", {"QueueUrl": QUEUE}, "input.MessageBody"),
        ("sqs:SendMessage", SEND | {"MessageBody": True}, "not a text"),
        ("sqs:SendMessage", SEND | {"DelaySeconds": "5"}, "not a whole number"),
        ("sqs:SendMessage", SEND | {"DelaySeconds": True}, "not a whole number"),
        ("sqs:SendMessage", SEND | {"MessageAttributes": []}, "not an object"),
        ("ecs:RunTask", {"taskDefinition": "t", "launchType": "FARGATES"}, "Did you mean FARGATE?"),
        ("ec2:StopInstances", {"InstanceIds": "i-1"}, "not a list"),
        ("s3:PutObject", {"Bucket": "b", "Key": "k", "Body": {"base64": "%"}}, "not base64"),
        ("events:PutEvents", {"Entries": [{"Sorce": "a"}]}, "Entries[0].Sorce"),
    ],
)
def test_an_invalid_call_is_rejected_with_the_nearest_name(
    name: str, values: dict[str, Any], hint: str
) -> None:
    assert hint in error(name, values)


@pytest.mark.parametrize(
    ("name", "values", "place"),
    [
        (
            "ecs:RunTask",
            {"overrides": {"containerOverrides": [{"environment": [{"nonsense": "a"}]}]}},
            "overrides.containerOverrides[0].environment[0].nonsense",
        ),
        (
            "sqs:SendMessage",
            {"MessageAttributes": {"color": {"DataType": "String"}, "size": {"Nonsense": "a"}}},
            "input.MessageAttributes.size.Nonsense",
        ),
    ],
)
def test_an_invalid_parameter_is_named_with_its_place(
    name: str, values: dict[str, Any], place: str
) -> None:
    required = {"ecs:RunTask": {"taskDefinition": "nightly:3"}, "sqs:SendMessage": SEND}

    assert place in error(name, {**required[name], **values})


SCHEDULE = {
    "Name": "nightly",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "ScheduleExpression": "rate(1 day)",
    "Target": {"Arn": "arn:a", "RoleArn": "arn:b"},
}


@pytest.mark.parametrize(
    ("name", "values", "place", "problem"),
    [
        ("sqs:SendMessage", SEND | {"QueueUrl": None}, "QueueUrl", "a required parameter"),
        ("stepfunctions:StartExecution", {"stateMachineArn": ""}, "stateMachineArn", "less than 1"),
        ("dynamodb:TransactWriteItems", {"TransactItems": []}, "TransactItems", "less than 1"),
        ("dynamodb:Query", {"TableName": "t", "Limit": 0}, "Limit", "less than 1"),
        ("scheduler:CreateSchedule", SCHEDULE | {"StartDate": "soon"}, "StartDate", "not an inst"),
        ("scheduler:CreateSchedule", SCHEDULE | {"StartDate": ["x"]}, "StartDate", "not an inst"),
        ("scheduler:CreateSchedule", SCHEDULE | {"StartDate": 1e300}, "StartDate", "not an inst"),
    ],
)
def test_what_the_sdk_would_refuse_is_rejected_when_the_job_is_stored(
    name: str, values: dict[str, Any], place: str, problem: str
) -> None:
    shape: Any = operation_of(call(name, values)).input_shape
    sent = {key: each for key, each in values.items() if each is not None}
    with suppress(RuntimeError):  # it does not catch that of 1e300
        assert ParamValidator().validate(sent, shape).has_errors()

    said = error(name, values)

    assert f"target.aws.input.{place}: " in said
    assert problem in said


def test_an_instant_may_be_a_text_a_number_or_a_placeholder() -> None:
    for start in ("2030-05-24T10:00:00Z", "2030-05-24", 1_900_000_000, "{{run.scheduledAt}}"):
        check_call(call("scheduler:CreateSchedule", SCHEDULE | {"StartDate": start}), ["*"])


@pytest.mark.parametrize(
    ("value", "given"),
    [({}, "none"), ({"stringValue": "a", "longValue": 1}, "stringValue, longValue")],
)
def test_a_union_has_one_member(value: dict[str, Any], given: str) -> None:
    statement = {"resourceArn": "arn:aws:rds:a", "secretArn": "arn:aws:sec", "sql": "SELECT 1"}
    parameters = [{"name": "a", "value": value}]

    said = error("rds-data:ExecuteStatement", {**statement, "parameters": parameters})

    assert "input.parameters[0].value: not exactly one of isNull, booleanValue, " in said
    assert f"(got {given!r})" in said


@pytest.mark.parametrize("service", sorted(FORBIDDEN))
def test_services_that_manage_identities_are_never_called(service: str) -> None:
    assert "identities" in error(f"{service}:Anything", {}, ("*", f"{service}:*"))


def test_services_whose_parameters_choose_the_host_are_never_called() -> None:
    """The SDK sends `Predict` to its parameter `PredictEndpoint`, with the role's token."""
    switching = {
        event.split(".")[1]
        for event, handler, *_ in BUILTIN_HANDLERS
        if "switch_host" in repr(handler)
    }

    assert switching == REDIRECTED
    for service in REDIRECTED:
        assert "choose the host" in error(f"{service}:Predict", {})


@pytest.mark.parametrize("allowed", [(), ("sqs:ReceiveMessage",), ("sns:*",), ("sqs:Send",)])
def test_a_pool_calls_only_what_it_lists(allowed: tuple[str, ...]) -> None:
    assert "awsActions" in error("sqs:SendMessage", SEND, allowed)
    check_call(call("sqs:SendMessage", SEND), [*allowed, "sqs:Send*"])


@pytest.mark.parametrize(
    "document",
    [
        *(
            {"service": "SQS", "action": "SendMessage"},
            {"service": "sqs", "action": "send_message"},
        ),
        *({"service": "../sqs", "action": "A"}, {"service": "sqs"}, {"action": "SendMessage"}),
        {"service": "sqs", "action": "SendMessage", "region": "evil.example"},
        {"service": "sqs", "action": "SendMessage", "endpoint": "https://evil.example"},
    ],
)
def test_invalid_documents_are_rejected(document: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        AwsCall.model_validate(document)


def filled(name: str, values: dict[str, Any]) -> dict[str, Any]:
    of_call = call(name, values)
    operation = operation_of(of_call)
    return with_tokens(of_call, operation, parameters_of(of_call, operation, values), TOKEN)


@pytest.mark.parametrize(
    ("name", "values", "token"),
    [
        ("sqs:SendMessage", SEND | {"QueueUrl": f"{QUEUE}.fifo"}, "MessageDeduplicationId"),
        ("stepfunctions:StartExecution", {"stateMachineArn": "arn:a"}, "name"),
        ("ecs:RunTask", {"taskDefinition": "t"}, "clientToken"),
        ("ec2:RunInstances", {"MinCount": 1, "MaxCount": 1}, "ClientToken"),
        ("athena:StartQueryExecution", {"QueryString": "x"}, "ClientRequestToken"),
    ],
)
def test_idempotency_tokens_are_filled_in_unless_they_are_given(
    name: str, values: dict[str, Any], token: str
) -> None:
    assert filled(name, values)[token] == str(UUID(TOKEN[:32]))
    mine = "mine" * 8  # Athena requires 32 characters
    assert filled(name, values | {token: mine})[token] == mine


def test_a_standard_queue_gets_no_deduplication_id() -> None:
    assert filled("sqs:SendMessage", SEND) == SEND


def test_few_descriptions_of_services_are_kept() -> None:
    for service in model._services()[:40]:  # noqa: SLF001 - all of them take 400 MB
        model._service(service)  # noqa: SLF001

    assert model._service.cache_info().currsize <= 16  # noqa: SLF001
