"""Promises of the template: functions, their schedules, their settings and their alarms."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.settings import Settings
from nextfire.adapters.aws.wakers import WAKE_DETAIL, WAKE_SOURCE
from nextfire.domain.events import SOURCE
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import function_of, of_type, properties, queues_of_pools


def test_message_stays_hidden_for_as_long_as_its_executor_may_work(template: Template) -> None:
    functions = of_type(template, "Lambda::Function")
    queues = queues_of_pools(template)
    for source in properties(template, "Lambda::EventSourceMapping"):
        if "StartingPosition" in source:
            continue  # a stream
        queue = queues[source["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
        executor = functions[source["FunctionName"]["Ref"]]["Properties"]

        assert queue["VisibilityTimeout"] >= executor["Timeout"]
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_longest_run_of_a_pool_ends_before_its_executor_is_killed(template: Template) -> None:
    _, executor = function_of(template, "executor")

    longest = Settings().pools["default"].longest_run
    assert longest.total_seconds() < executor["Timeout"]


def test_watcher_outlives_two_wakings_and_is_not_retried(template: Template) -> None:
    name, watcher = function_of(template, "watcher")
    [configuration] = [
        config
        for config in properties(template, "Lambda::EventInvokeConfig")
        if config["FunctionName"]["Ref"] == name
    ]

    assert watcher["Environment"]["Variables"]["NEXTFIRE_LIFE"] == "PT2M5S"
    assert watcher["Timeout"] == 145
    assert configuration["MaximumRetryAttempts"] == 0
    assert configuration["MaximumEventAgeInSeconds"] == 60


def test_each_watcher_group_is_woken_every_minute_without_retries(template: Template) -> None:
    name, _ = function_of(template, "watcher")
    woken = rules_of(template, name)

    assert {rule for rule, _ in woken} == {"rate(1 minute)"}
    assert [event for _, event in woken] == [{"group": 0}, {"group": 1}]


def test_executors_wake_the_watcher_by_an_event_of_the_stacks_bus(template: Template) -> None:
    name, _ = function_of(template, "watcher")
    [rule] = [rule for rule in properties(template, "Events::Rule") if "EventPattern" in rule]

    [target] = rule["Targets"]
    assert target["Arn"]["Fn::GetAtt"][0] == name
    # Whatever an executor publishes, the watcher knows that it was woken.
    assert target["InputTransformer"] == {
        "InputPathsMap": {"detail-group": "$.detail.group"},
        "InputTemplate": '{"group":<detail-group>,"woken":true}',
    }
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert rule["EventPattern"] == {"source": [WAKE_SOURCE], "detail-type": [WAKE_DETAIL]}
    assert WAKE_SOURCE != SOURCE, "users' rules must not match it"
    assert "Ref" in rule["EventBusName"]


def test_auditor_is_woken_without_retries_and_may_take_all_the_time_there_is(
    template: Template,
) -> None:
    name, auditor = function_of(template, "auditor")

    assert rules_of(template, name) == [("rate(15 minutes)", {"segment": 0})]
    assert auditor["Timeout"] == 900


def test_each_segment_of_the_audit_is_woken(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"auditSegments": 7, "accountConcurrency": 1000})[2]
    name, auditor = function_of(template, "auditor")
    targets = [
        target
        for rule in properties(template, "Events::Rule")
        for target in rule["Targets"]
        if target["Arn"]["Fn::GetAtt"][0] == name
    ]

    assert [json.loads(each["Input"]) for each in targets] == [{"segment": n} for n in range(7)]
    assert auditor["Environment"]["Variables"]["NEXTFIRE_AUDIT_SEGMENTS"] == "7"


def test_executors_log_no_line_for_each_invocation_except_when_debugging(tmp_path: Path) -> None:
    def logging(context: dict[str, Any]) -> dict[str, Any]:
        folder = tmp_path / context.get("logLevel", "")
        logs = function_of(synthesize(folder, context)[2], "executor")[1]["LoggingConfig"]
        return {name: value for name, value in logs.items() if name != "LogGroup"}

    assert logging({}) == {
        "LogFormat": "JSON",
        # Metrics have no level, and count as INFO.
        "ApplicationLogLevel": "INFO",
        "SystemLogLevel": "WARN",
    }
    assert logging({"logLevel": "DEBUG"}) == {}


def test_lambda_does_not_end_long_sequences_as_loops(tmp_path: Path) -> None:
    """Executors send runs of children to the queue that invokes them. boto3 passes on the header by
    which Lambda counts that, and Lambda stops a chain after 16; the lean client does not.
    """

    def loops(context: dict[str, Any]) -> dict[str, str | None]:
        template = synthesize(tmp_path / context.get("awsClient", ""), context)[2]
        folders = ("api", "executor", "watcher")
        return {each: function_of(template, each)[1].get("RecursiveLoop") for each in folders}

    assert loops({"awsClient": "boto3"}) == {"api": None, "executor": "Allow", "watcher": None}
    assert loops({}) == dict.fromkeys(("api", "executor", "watcher"))


def rules_of(template: Template, function: str) -> list[tuple[str, Any]]:
    """The schedules that invoke *function*, with their events; none is retried."""
    found = []
    for rule in properties(template, "Events::Rule"):
        [target] = rule["Targets"]
        if target["Arn"]["Fn::GetAtt"][0] == function and "ScheduleExpression" in rule:
            assert target["RetryPolicy"] == {
                "MaximumRetryAttempts": 0,
                "MaximumEventAgeInSeconds": 60,
            }
            found.append((rule["ScheduleExpression"], json.loads(target["Input"])))
    return found


def test_every_function_logs_to_its_own_group_and_every_group_forgets(template: Template) -> None:
    groups = of_type(template, "Logs::LogGroup")
    used = [
        function["LoggingConfig"]["LogGroup"]["Ref"]
        for function in properties(template, "Lambda::Function")
    ]

    assert len(used) == len(set(used))
    assert set(used) <= set(groups)
    kept = {name: group["Properties"]["RetentionInDays"] for name, group in groups.items()}
    audits = {name for name in kept if name.startswith(("ApiLogs", "HttpAccessLogs"))}
    assert len(audits) == 2
    for name, group in groups.items():
        assert kept[name] == (365 if name in audits else 30)
        kept_after = "RetainExceptOnCreate" if name in audits else "Delete"
        assert group["DeletionPolicy"] == kept_after


@pytest.mark.parametrize(
    "kind",
    [
        "DynamoDB::Table",
        "S3::Bucket",
        "SQS::Queue",
        "Lambda::Function",
        "Lambda::LayerVersion",
        "Logs::LogGroup",
        "IAM::Role",
        "Events::Rule",
        "CloudWatch::Dashboard",
    ],
)
def test_nothing_that_may_outlive_its_stack_has_a_physical_name(
    template: Template, kind: str
) -> None:
    short = kind.rpartition("::")[2]
    names = {f"{short}Name", "Name", "LayerName"}
    for resource in properties(template, kind):
        assert not names & set(resource)


def test_functions_run_the_python_and_the_platform_of_their_layers(template: Template) -> None:
    for function in properties(template, "Lambda::Function"):
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == ["arm64"]
        assert len(function["Layers"]) == 2


@pytest.mark.parametrize(
    ("folder", "variables"),
    [
        (
            "api",
            {
                "NEXTFIRE_JOBS_TABLE", "NEXTFIRE_DUE_TABLE", "NEXTFIRE_RUNS_TABLE",
                "NEXTFIRE_CONTROL_TABLE", "NEXTFIRE_WRITE_SHARDS", "NEXTFIRE_READ_SHARDS",
                "NEXTFIRE_POOLS", "NEXTFIRE_SCRIPTS_BUCKET", "NEXTFIRE_OUTPUTS_BUCKET",
                "NEXTFIRE_KEYS_TABLE", "NEXTFIRE_REQUESTS_TABLE", "NEXTFIRE_AUTH",
                "NEXTFIRE_QUOTAS", "NEXTFIRE_TENANT_WEIGHTS", "NEXTFIRE_ENDPOINTS_TABLE",
                "NEXTFIRE_WATCHER_FUNCTION", "NEXTFIRE_GROUPS", "NEXTFIRE_RUN_RETENTION",
                "NEXTFIRE_OVERVIEW_TABLE", "NEXTFIRE_LIFE",
            },
        ),
        ("authorizer", {"NEXTFIRE_KEYS_TABLE"}),
        (
            "auditlog",
            {
                "NEXTFIRE_JOBS_TABLE", "NEXTFIRE_RUNS_TABLE", "NEXTFIRE_KEYS_TABLE",
                "NEXTFIRE_REQUESTS_TABLE", "NEXTFIRE_AUDIT_BUCKET",
            },
        ),
        ("projector", {"NEXTFIRE_RUNS_TABLE", "NEXTFIRE_OVERVIEW_TABLE", "NEXTFIRE_RUN_RETENTION"}),
        (
            "watcher",
            {
                "NEXTFIRE_JOBS_TABLE", "NEXTFIRE_DUE_TABLE", "NEXTFIRE_RUNS_TABLE",
                "NEXTFIRE_CONTROL_TABLE", "NEXTFIRE_WRITE_SHARDS", "NEXTFIRE_READ_SHARDS",
                "NEXTFIRE_POOLS", "NEXTFIRE_TENANT_WEIGHTS", "NEXTFIRE_GROUPS", "NEXTFIRE_LIFE",
                "NEXTFIRE_QUOTAS",
            },
        ),
        (
            "auditor",
            {
                "NEXTFIRE_JOBS_TABLE", "NEXTFIRE_DUE_TABLE", "NEXTFIRE_RUNS_TABLE",
                "NEXTFIRE_CONTROL_TABLE", "NEXTFIRE_WRITE_SHARDS", "NEXTFIRE_READ_SHARDS",
                "NEXTFIRE_POOLS", "NEXTFIRE_AUDIT_EVERY", "NEXTFIRE_JOB_RETENTION",
                "NEXTFIRE_AUDIT_SEGMENTS",
            },
        ),
        (
            "executor",
            {
                "NEXTFIRE_JOBS_TABLE", "NEXTFIRE_DUE_TABLE", "NEXTFIRE_RUNS_TABLE",
                "NEXTFIRE_POOL", "NEXTFIRE_QUEUE_URL", "NEXTFIRE_DLQ_URL",
                "NEXTFIRE_SCRIPTS_BUCKET", "NEXTFIRE_WRITE_SHARDS", "NEXTFIRE_LEASE",
                "NEXTFIRE_RUN_RETENTION", "NEXTFIRE_LOG_SAMPLE",
                "NEXTFIRE_OUTPUTS_BUCKET", "NEXTFIRE_EVENT_BUS", "NEXTFIRE_SCRIPT_MEMORY",
                "NEXTFIRE_PACKAGES", "NEXTFIRE_QUOTAS",
                "NEXTFIRE_EGRESS",
                "NEXTFIRE_METADATA", "NEXTFIRE_ENDPOINTS_TABLE",
                "NEXTFIRE_CONTROL_TABLE", "NEXTFIRE_GROUPS",
            },
        ),
    ],
)  # fmt: skip
def test_function_has_the_variables_that_it_needs_and_names_its_folder(
    template: Template, folder: str, variables: set[str]
) -> None:
    environment = function_of(template, folder)[1]["Environment"]["Variables"]

    names = {name for name in environment if name.startswith("NEXTFIRE_")}
    assert names == variables | {"NEXTFIRE_AWS_CLIENT"}
    assert environment["POWERTOOLS_SERVICE_NAME"] == folder


def test_alarms_watch_the_promises(template: Template) -> None:
    alarms = json.dumps(
        [alarm["AlarmDescription"] for alarm in properties(template, "CloudWatch::Alarm")]
    )

    for promise in ("late", "ticked", "pool default has waited", "quarantined", "repaired"):
        assert promise in alarms
    assert "pool long-jobs has waited" in alarms
    assert "appended to the audit chain" in alarms
    for function in ("auditor", "executor-default"):
        assert f"function {function} failed" in alarms


def test_silence_of_each_watcher_group_is_an_alarm(template: Template) -> None:
    silent = [
        alarm
        for alarm in properties(template, "CloudWatch::Alarm")
        if alarm.get("MetricName") == "Ticks"
    ]

    assert [each["Dimensions"] for each in silent] == [
        [{"Name": "group", "Value": str(group)}, {"Name": "service", "Value": "watcher"}]
        for group in range(2)
    ]
    for each in silent:
        assert each["TreatMissingData"] == "breaching"
        assert each["Period"] * each["EvaluationPeriods"] == 120


def test_an_auditor_that_is_not_invoked_is_an_alarm(template: Template) -> None:
    [alarm] = (
        each
        for each in properties(template, "CloudWatch::Alarm")
        if "function auditor" in each["AlarmDescription"]
    )
    [every] = (
        rule["ScheduleExpression"]
        for rule in properties(template, "Events::Rule")
        if "segment" in json.dumps(rule)
    )

    assert (alarm["TreatMissingData"], alarm["Period"]) == ("breaching", 3600)
    assert every == "rate(15 minutes)"


def test_local_stack_is_the_same_app_with_a_pool_of_each_kind(local_template: Template) -> None:
    pools = json.loads(local_template["Outputs"]["Pools"]["Value"])
    routes = properties(local_template, "ApiGatewayV2::Route")

    assert pools == {"default": "worker", "lambda": "lambda", "calls": "worker"}
    assert {route["AuthorizationType"] for route in routes} == {"CUSTOM", "NONE"}


def test_executors_are_updated_before_watchers(template: Template) -> None:
    """Messages of a newer watcher may contain fields that an older executor cannot read."""
    functions = {
        name: resource
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Lambda::Function"
    }
    (watcher,) = (function for name, function in functions.items() if name.startswith("Watcher"))
    executors = {name for name in functions if name.startswith("Executor")}

    assert executors
    assert executors <= {*watcher["DependsOn"]}
