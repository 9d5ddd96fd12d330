"""Promises of the template: what must be true of every deployment."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.settings import Settings
from nextfire.adapters.aws.wakers import WAKE_DETAIL, WAKE_SOURCE
from nextfire.domain.events import SOURCE
from nextfire.domain.retention import RETENTION
from tests.crons import LONG
from tests.infra.conftest import Template, synthesize
from tests.infra.test_lint import check_with_cfn_lint

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


def test_tables_outlive_the_stack_and_can_be_restored(template: Template) -> None:
    for table in of_type(template, "DynamoDB::Table").values():
        assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
        assert table["Properties"]["DeletionProtectionEnabled"] is True
        assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
        assert table["Properties"]["SSESpecification"]["SSEEnabled"] is True
        recovery = table["Properties"]["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] is True


def test_runs_expire_and_an_index_has_the_keys_of_dead_ones(template: Template) -> None:
    [runs] = [
        table
        for table in properties(template, "DynamoDB::Table")
        if table["KeySchema"][-1]["AttributeName"] == "run_id"
    ]

    assert runs["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    [index] = runs["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "dead"
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def bucket_of(template: Template, output: str) -> tuple[str, dict[str, Any]]:
    """The logical id and the properties of the bucket that the output names."""
    name: str = template["Outputs"][output]["Value"]["Ref"]
    return name, template["Resources"][name]["Properties"]


def test_buckets_are_private_encrypted_and_retained(template: Template) -> None:
    for bucket in of_type(template, "S3::Bucket").values():
        assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
        assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
        assert "BucketEncryption" in bucket["Properties"]


def test_scripts_keep_their_versions_and_never_expire(template: Template) -> None:
    _, scripts = bucket_of(template, "ScriptsBucket")

    assert scripts["VersioningConfiguration"]["Status"] == "Enabled"
    assert "LifecycleConfiguration" not in scripts


def test_outputs_outlive_the_longest_retention_of_records() -> None:
    assert Settings().output_retention == RETENTION + timedelta(days=7)
    kept = {"runRetention": {"succeeded": "P200D"}}
    assert Settings.from_context(kept).output_retention == timedelta(days=207)


def test_outputs_expire_after_the_records_that_name_them(template: Template) -> None:
    _, outputs = bucket_of(template, "OutputsBucket")
    [rule] = outputs["LifecycleConfiguration"]["Rules"]

    assert rule["Status"] == "Enabled"
    assert rule["ExpirationInDays"] > RETENTION.days
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1
    # A log is rewritten again and again under one name: versions would keep each state of it.
    assert "VersioningConfiguration" not in outputs


def test_buckets_and_queues_refuse_requests_without_tls(template: Template) -> None:
    guarded = []
    for kind, key in (("S3::BucketPolicy", "Bucket"), ("SQS::QueuePolicy", "Queues")):
        for policy in properties(template, kind):
            denials = [
                statement
                for statement in policy["PolicyDocument"]["Statement"]
                if statement["Effect"] == "Deny"
                and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            ]
            if denials:
                guarded += [reference["Ref"] for reference in as_list(policy[key])]

    stores = {*of_type(template, "S3::Bucket"), *of_type(template, "SQS::Queue")}
    assert set(guarded) == stores


def queues_of_pools(template: Template) -> dict[str, Resource]:
    queues = of_type(template, "SQS::Queue")
    return {name: queue for name, queue in queues.items() if name.startswith("Pool")}


def test_every_queue_of_a_pool_has_dead_letters_or_holds_them(template: Template) -> None:
    queues = queues_of_pools(template)
    policies = [queue["Properties"].get("RedrivePolicy") for queue in queues.values()]
    holding = {policy["deadLetterTargetArn"]["Fn::GetAtt"][0] for policy in policies if policy}

    for name, queue in queues.items():
        if name in holding:
            assert queue["Properties"]["MessageRetentionPeriod"] == 14 * 86_400
        else:
            assert queue["Properties"]["RedrivePolicy"]["maxReceiveCount"] == 1000


def test_queues_are_encrypted(template: Template) -> None:
    for queue in properties(template, "SQS::Queue"):
        assert queue["SqsManagedSseEnabled"] is True


def test_queues_of_pools_are_fifo_of_high_throughput(template: Template) -> None:
    for resource in queues_of_pools(template).values():
        queue = resource["Properties"]
        assert queue["FifoQueue"] is True
        assert queue["DeduplicationScope"] == "messageGroup"
        assert queue["FifoThroughputLimit"] == "perMessageGroupId"


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


def test_executors_publish_events_of_the_stacks_sources_only(template: Template) -> None:
    publishing = [
        statement
        for policy in properties(template, "IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "events:PutEvents"
    ]
    assert publishing
    for statement in publishing:
        assert statement["Condition"] == {
            "ForAllValues:StringEquals": {"events:source": [SOURCE, WAKE_SOURCE]}
        }


def test_the_api_may_invoke_the_watcher_and_nobody_else_may_invoke_anything(
    template: Template,
) -> None:
    name, _ = function_of(template, "watcher")
    invoking = [
        (policy["Roles"][0]["Ref"], statement["Resource"])
        for policy in properties(template, "IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if "lambda:" in json.dumps(statement["Action"])
    ]
    [(role, resource)] = invoking
    assert role.startswith("ApiRole")
    assert resource == {"Fn::GetAtt": [name, "Arn"]}


def test_executors_read_leases_and_nothing_else_of_the_control_table(template: Template) -> None:
    reads = [
        statement
        for policy in properties(template, "IAM::Policy")
        if policy["Roles"][0]["Ref"].startswith(("Executor", "Worker"))
        for statement in policy["PolicyDocument"]["Statement"]
        if "StoresControl" in json.dumps(statement["Resource"])
    ]
    assert reads
    for statement in reads:
        assert statement["Action"] == "dynamodb:GetItem"
        keys = statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        assert keys == ["lease#*"]


def test_the_runs_table_is_without_recovery_only_by_setting(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"runsRecovery": False})[2]
    tables = {
        name: each["Properties"]["PointInTimeRecoverySpecification"]
        for name, each in template["Resources"].items()
        if each["Type"] == "AWS::DynamoDB::Table"
    }
    without = [name for name, of in tables.items() if not of["PointInTimeRecoveryEnabled"]]
    [name] = without
    assert name.startswith("StoresRuns")


def test_auditor_is_woken_without_retries_and_may_take_all_the_time_there_is(
    template: Template,
) -> None:
    name, auditor = function_of(template, "auditor")

    assert rules_of(template, name) == [("rate(15 minutes)", {"segment": 0})]
    assert auditor["Timeout"] == 900


def test_each_segment_of_the_audit_is_woken(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"auditSegments": 7})[2]
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


def routes_of(template: Template) -> dict[str, str]:
    """For each route, how the gateway authenticates the caller."""
    return {
        route["RouteKey"]: route["AuthorizationType"]
        for route in properties(template, "ApiGatewayV2::Route")
    }


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


def statements_of(template: Template, function: str) -> list[dict[str, Any]]:
    """The statements of the role of the function in that folder."""
    role = function_of(template, function)[1]["Role"]["Fn::GetAtt"][0]
    return [
        statement
        for policy in properties(template, "IAM::Policy")
        if policy["Roles"] == [{"Ref": role}]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def test_functions_that_complete_jobs_may_write_them(template: Template) -> None:
    jobs = {"Fn::GetAtt": [template["Outputs"]["JobsTable"]["Value"]["Ref"], "Arn"]}

    for function in ("api", "watcher", "auditor", "executor"):
        may = {
            action
            for statement in statements_of(template, function)
            if jobs in as_list(statement["Resource"])
            for action in as_list(statement["Action"])
        }
        assert "dynamodb:UpdateItem" in may, function


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
        assert group["DeletionPolicy"] == ("Retain" if name in audits else "Delete")


def test_no_policy_has_a_wildcard_but_for_objects_and_what_is_kept_for_jobs(
    template: Template,
) -> None:
    meant = [
        {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, "/*"]]}
        for bucket in of_type(template, "S3::Bucket")
    ]
    audit, _ = bucket_of(template, "AuditBucket")
    meant.append({"Fn::Join": ["", [{"Fn::GetAtt": [audit, "Arn"]}, "/chain/*"]]})
    for name, statement in statements(template):
        if statement["Effect"] == "Deny":
            continue  # wider is safer in a Deny statement
        for action in as_list(statement["Action"]):
            assert "*" not in action, name
        for resource in as_list(statement["Resource"]):
            text = json.dumps(resource)
            prefix = re.search(r'[:/](nextfire/)?pools/(default|long-jobs)/\*"\]\]}$', text)
            assert resource in meant or prefix or "*" not in text, name


def test_lists_of_attributes_have_an_order(template: Template) -> None:
    """A template that differs without a cause would change all roles at each deployment."""
    lists = re.findall(r'"dynamodb:Attributes": (\[.*?\])', json.dumps(template))

    assert lists
    assert [each for each in map(json.loads, lists) if each != sorted(each)] == []


def test_roles_have_no_managed_policies(template: Template) -> None:
    assert not [role for role in properties(template, "IAM::Role") if "ManagedPolicyArns" in role]


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
        "CloudWatch::Alarm",
        "CloudWatch::Dashboard",
    ],
)
def test_nothing_has_a_physical_name(template: Template, kind: str) -> None:
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
                "NEXTFIRE_OVERVIEW_TABLE",
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
def test_function_is_told_what_it_needs_and_names_its_folder(
    template: Template, folder: str, variables: set[str]
) -> None:
    environment = function_of(template, folder)[1]["Environment"]["Variables"]

    names = {name for name in environment if name.startswith("NEXTFIRE_")}
    assert names == variables | {"NEXTFIRE_AWS_CLIENT"}
    assert environment["POWERTOOLS_SERVICE_NAME"] == folder


def trust_of(template: Template, output: str) -> list[dict[str, Any]]:
    """The statements of the trust policy of the role whose ARN is *output*."""
    name = template["Outputs"][output]["Value"]["Fn::GetAtt"][0]
    role = template["Resources"][name]["Properties"]
    found: list[dict[str, Any]] = role["AssumeRolePolicyDocument"]["Statement"]
    return found


def test_worker_role_trusts_ecs_tasks_of_this_account_and_region_only(template: Template) -> None:
    [statement] = trust_of(template, "WorkerRoleArnLongJobs")

    assert statement["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {
        "aws:SourceAccount": {"Ref": "AWS::AccountId"}
    }
    parts = statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1]
    assert [part["Ref"] if isinstance(part, dict) else part for part in parts] == [
        *("arn:", "AWS::Partition", ":ecs:", "AWS::Region", ":", "AWS::AccountId", ":*")
    ]


def test_worker_role_trusts_the_named_principals_and_no_others(tmp_path: Path) -> None:
    named = [
        "arn:aws:iam::123456789012:role/workers/etl",
        "arn:aws:iam::123456789012:user/operator",
    ]
    pools = {
        "etl": {"executor": "worker", "workerPrincipals": named},
        "other": {"executor": "worker"},
    }
    _, _, template, _ = synthesize(tmp_path, {"pools": pools})

    tasks, callers = trust_of(template, "WorkerRoleArnEtl")
    assert tasks["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert callers["Principal"] == {"AWS": named}
    assert len(trust_of(template, "WorkerRoleArnOther")) == 1


def test_no_role_trusts_a_whole_account(template: Template) -> None:
    for role in properties(template, "IAM::Role"):
        assert ":root" not in json.dumps(role["AssumeRolePolicyDocument"])


def test_local_worker_role_trusts_the_root_user_only(local_template: Template) -> None:
    [_, statement] = trust_of(local_template, "WorkerRoleArnDefault")

    root = statement["Principal"]["AWS"]
    assert statement["Condition"] == {"ArnEquals": {"aws:PrincipalArn": root}}


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


def test_local_stack_is_the_same_app_with_a_pool_of_each_kind(local_template: Template) -> None:
    pools = json.loads(local_template["Outputs"]["Pools"]["Value"])
    routes = properties(local_template, "ApiGatewayV2::Route")

    assert pools == {"default": "worker", "lambda": "lambda", "calls": "worker"}
    assert {route["AuthorizationType"] for route in routes} == {"CUSTOM", "NONE"}


AUDITED = ("Jobs", "Runs", "Keys", "Requests")


def sources_of_audit(template: Template) -> list[dict[str, Any]]:
    name, _ = function_of(template, "auditlog")
    found = properties(template, "Lambda::EventSourceMapping")
    return [source for source in found if source["FunctionName"] == {"Ref": name}]


def test_changes_of_the_audited_tables_come_with_both_images(template: Template) -> None:
    streams = []
    for each in AUDITED:
        name = template["Outputs"][f"{each}Table"]["Value"]["Ref"]
        table = template["Resources"][name]["Properties"]
        assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
        streams.append({"Fn::GetAtt": [name, "StreamArn"]})

    assert [source["EventSourceArn"] for source in sources_of_audit(template)] == streams


def test_writes_without_a_request_do_not_invoke_the_audit_log(template: Template) -> None:
    of_keys = []
    for source in sources_of_audit(template):
        if "Keys" in source["EventSourceArn"]["Fn::GetAtt"][0]:
            of_keys.append(source)
            continue
        [criterion] = source["FilterCriteria"]["Filters"]
        pattern = json.loads(criterion["Pattern"])
        assert pattern == {"dynamodb": {"NewImage": {"changed_by": {"S": [{"exists": True}]}}}}

    [unfiltered] = of_keys  # a key that was not made by a request is an event too
    assert "FilterCriteria" not in unfiltered


def test_a_batch_that_fails_is_retried_for_hours_and_then_put_aside(template: Template) -> None:
    for source in sources_of_audit(template):
        assert source["StartingPosition"] == "TRIM_HORIZON"
        assert source["MaximumRetryAttempts"] == -1
        assert source["MaximumRecordAgeInSeconds"] == 6 * 3600
        assert source["BisectBatchOnFunctionError"] is True
        queue = source["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
        assert template["Resources"][queue]["Type"] == "AWS::SQS::Queue"


def test_audit_log_appends_to_its_bucket_and_cannot_delete(template: Template) -> None:
    bucket, _ = bucket_of(template, "AuditBucket")
    reaching = {
        name: as_list(statement["Action"])
        for name, statement in statements(template)
        if bucket in json.dumps(statement["Resource"])
        and "s3:ListBucket" not in statement["Action"]
    }

    [(name, actions)] = reaching.items()
    assert name.startswith("Auditlog")
    assert actions == ["s3:GetObject", "s3:PutObject"]


def test_objects_of_the_audit_chain_cannot_be_overwritten(template: Template) -> None:
    bucket, audit = bucket_of(template, "AuditBucket")
    [policy] = [
        policy["PolicyDocument"]["Statement"]
        for policy in properties(template, "S3::BucketPolicy")
        if policy["Bucket"] == {"Ref": bucket}
    ]
    [denial] = [statement for statement in policy if statement["Action"] == "s3:PutObject"]

    assert audit["VersioningConfiguration"]["Status"] == "Enabled"
    assert denial["Effect"] == "Deny"
    assert denial["Principal"] == {"AWS": "*"}
    assert denial["Condition"]["Null"] == {"s3:if-none-match": "true"}


@pytest.mark.parametrize("mode", ["GOVERNANCE", "COMPLIANCE"])
def test_object_lock_is_set_by_setting_and_then_outlives_the_stack(
    tmp_path: Path, template: Template, mode: str
) -> None:
    lock = {"mode": mode, "period": "P400D"}
    _, _, locked, _ = synthesize(tmp_path, {"auditLock": lock, "removeData": "true"})
    name, bucket = bucket_of(locked, "AuditBucket")
    _, unlocked = bucket_of(template, "AuditBucket")

    assert bucket["ObjectLockEnabled"] is unlocked["ObjectLockEnabled"] is True
    retention = bucket["ObjectLockConfiguration"]["Rule"]["DefaultRetention"]
    assert retention == {"Mode": mode, "Days": 400}
    assert locked["Resources"][name]["DeletionPolicy"] == "Retain"
    assert "ObjectLockConfiguration" not in unlocked


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
