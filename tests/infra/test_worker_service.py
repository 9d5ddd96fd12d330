"""Workers that the stack runs on Fargate."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.crons import LONG
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import as_list, properties, statements
from tests.infra.test_lint import check_with_cfn_lint, check_with_nag

POOLS = {
    "default": {"executor": "lambda"},
    "by-hand": {"executor": "worker"},
    "etl": {"executor": "worker", "concurrency": 4, "fargate": {"maxTasks": 9}},
    "given": {
        "executor": "worker",
        "fargate": {
            "image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/team/worker:1",
            "vpcId": "vpc-0a1b2c3d",
            "subnetIds": ["subnet-0a1b2c3d", "subnet-0a1b2d3e"],
            "assignPublicIp": False,
            "minTasks": 1,
        },
    },
}
_MEANT = {
    "AwsSolutions-VPC7": "The VPC holds workers without open ports; flow logs cost more.",
    "AwsSolutions-ECS2": "No variable is a secret: jobs refer to secrets, and workers fetch them.",
    "AwsSolutions-ECS4": "What matters is how long runs wait; the queue's metrics show it.",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>:task/"
    "<WorkersEtlCluster34F2F771>/*]": "A worker protects its own task; ECS assigns the id.",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>:task/"
    "<WorkersGivenCluster0B56D52A>/*]": "A worker protects its own task; ECS assigns the id.",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>:service/"
    "<WorkersEtlCluster34F2F771>/*]": "A worker reads its own service, the only one there.",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>:service/"
    "<WorkersGivenCluster0B56D52A>/*]": "A worker reads its own service, the only one there.",
    "AwsSolutions-IAM5[Resource::*]": "ecr:GetAuthorizationToken does not support resources.",
}


@pytest.fixture(scope="module")
def fargate_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(tmp_path_factory.mktemp("fargate"), {"pools": POOLS})[3]


@pytest.fixture(scope="module")
def fargate(fargate_file: Path) -> Template:
    loaded: Template = json.loads(fargate_file.read_text())
    return loaded


def of_pool(template: Template, kind: str, part: str) -> dict[str, Any]:
    """The properties of the only resource of *kind* whose id begins with *part*."""
    [found] = [
        resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == f"AWS::{kind}" and name.startswith(part)
    ]
    return dict(found)


def container_of(template: Template, part: str) -> dict[str, Any]:
    [container] = of_pool(template, "ECS::TaskDefinition", part)["ContainerDefinitions"]
    return dict(container)


def test_there_is_no_service_by_default(template: Template) -> None:
    kinds = {resource["Type"] for resource in template["Resources"].values()}

    assert not [kind for kind in kinds if kind.startswith(("AWS::ECS", "AWS::EC2"))]


def test_locally_there_are_worker_processes_instead(tmp_path: Path) -> None:
    local = {"target": "local", "local": {"pools": POOLS}}
    _, _, template, _ = synthesize(tmp_path, local)

    kinds = {resource["Type"] for resource in template["Resources"].values()}
    assert not [kind for kind in kinds if kind.startswith(("AWS::ECS", "AWS::EC2"))]
    assert "WorkerEnvironmentEtl" in template["Outputs"]


def test_only_pools_that_ask_get_a_service(fargate: Template) -> None:
    services = [name for name in fargate["Outputs"] if name.startswith("WorkerService")]

    assert services == ["WorkerServiceEtl", "WorkerServiceGiven"]
    assert len(properties(fargate, "ECS::Service")) == 2


def test_container_can_write_to_tmp_only_and_is_not_root(fargate: Template) -> None:
    container = container_of(fargate, "WorkersEtl")

    assert container["ReadonlyRootFilesystem"] is True
    assert container["User"] == "1000:1000"
    assert container["LinuxParameters"]["Capabilities"] == {"Drop": ["ALL"]}
    assert container["MountPoints"] == [
        {"ContainerPath": "/tmp", "ReadOnly": False, "SourceVolume": "tmp"}  # noqa: S108 — of the container
    ]
    assert "Privileged" not in container


def test_container_has_time_to_hand_its_runs_back(fargate: Template) -> None:
    assert container_of(fargate, "WorkersEtl")["StopTimeout"] == 120


def test_first_process_is_the_worker_which_hides_its_environment(fargate: Template) -> None:
    """An init process of the same user would show scripts where to get the task's credentials."""
    container = container_of(fargate, "WorkersEtl")

    assert container["LinuxParameters"].get("InitProcessEnabled", False) is False
    assert "EntryPoint" not in container
    assert "Command" not in container


def test_container_has_the_environment_of_any_worker(fargate: Template) -> None:
    names = {entry["Name"] for entry in container_of(fargate, "WorkersEtl")["Environment"]}
    output = str(fargate["Outputs"]["WorkerEnvironmentEtl"]["Value"])

    own = {"NEXTFIRE_LOG_SAMPLE"}  # for what logs to CloudWatch
    assert {name for name in names if name.startswith("NEXTFIRE_")} - own == set(
        re.findall(r"NEXTFIRE_\w+", output)
    )


def test_task_runs_in_the_pools_worker_role(fargate: Template) -> None:
    task = of_pool(fargate, "ECS::TaskDefinition", "WorkersEtl")
    role = fargate["Outputs"]["WorkerRoleArnEtl"]["Value"]

    assert task["TaskRoleArn"] == role
    assert task["ExecutionRoleArn"] != role
    assert task["RuntimePlatform"]["CpuArchitecture"] == "ARM64"
    assert task["RequiresCompatibilities"] == ["FARGATE"]


def test_worker_may_protect_the_tasks_of_its_own_cluster_only(fargate: Template) -> None:
    role = fargate["Outputs"]["WorkerRoleArnEtl"]["Value"]["Fn::GetAtt"][0]
    cluster = fargate["Outputs"]["WorkerClusterEtl"]["Value"]
    own = of_pool(fargate, "IAM::Policy", "WorkerEtl")
    [statement] = [
        statement
        for statement in own["PolicyDocument"]["Statement"]
        if "ecs:UpdateTaskProtection" in statement["Action"]
    ]

    assert own["Roles"] == [{"Ref": role}]
    assert set(statement["Action"]) == {"ecs:GetTaskProtection", "ecs:UpdateTaskProtection"}
    assert statement["Resource"]["Fn::Join"][1][-2:] == [cluster, "/*"]


def test_worker_may_read_the_service_of_its_own_cluster_only(fargate: Template) -> None:
    own = of_pool(fargate, "IAM::Policy", "WorkerEtl")
    cluster = fargate["Outputs"]["WorkerClusterEtl"]["Value"]
    [resource] = [
        statement["Resource"]
        for statement in own["PolicyDocument"]["Statement"]
        if statement["Action"] == "ecs:DescribeServices"
    ]

    assert resource["Fn::Join"][1][-3:] == [":service/", cluster, "/*"]


def test_wildcards_are_those_that_cannot_be_spared(fargate: Template) -> None:
    for name, statement in statements(fargate):
        for resource in as_list(statement.get("Resource", [])):
            if resource == "*" and statement["Effect"] == "Allow":
                assert as_list(statement["Action"]) == ["ecr:GetAuthorizationToken"], name


def test_no_one_can_call_a_worker(fargate: Template) -> None:
    kinds = {resource["Type"] for resource in fargate["Resources"].values()}

    assert "AWS::EC2::SecurityGroupIngress" not in kinds
    for wall in properties(fargate, "EC2::SecurityGroup"):
        assert "SecurityGroupIngress" not in wall
    for service in properties(fargate, "ECS::Service"):
        assert "LoadBalancers" not in service


def test_service_goes_back_to_what_worked(fargate: Template) -> None:
    service = of_pool(fargate, "ECS::Service", "WorkersEtl")
    deployment = service["DeploymentConfiguration"]

    assert deployment["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}
    assert deployment["MinimumHealthyPercent"] == 100
    assert "DesiredCount" not in service, "a deployment would undo the scaling"


def test_ecs_does_not_move_tasks_to_other_zones(fargate: Template) -> None:
    """It does by default, and protection is documented for scale-in and deployments only."""
    service = of_pool(fargate, "ECS::Service", "WorkersEtl")

    assert service["AvailabilityZoneRebalancing"] == "DISABLED"


def test_tasks_are_from_none_to_as_many_as_asked_for(fargate: Template) -> None:
    target = of_pool(fargate, "ApplicationAutoScaling::ScalableTarget", "WorkersEtl")

    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 9)


def test_scaling_does_not_name_a_role_that_a_new_account_lacks(fargate: Template) -> None:
    """Without a name Application Auto Scaling uses its service-linked role, and creates it."""
    assert "RoleARN" not in of_pool(fargate, "ApplicationAutoScaling::ScalableTarget", "WorkersEtl")


def test_waiting_runs_bring_tasks_from_none_on(fargate: Template) -> None:
    policy = of_pool(fargate, "ApplicationAutoScaling::ScalingPolicy", "WorkersEtlMore")
    steps = policy["StepScalingPolicyConfiguration"]["StepAdjustments"]
    alarm = of_pool(fargate, "CloudWatch::Alarm", "WorkersEtlMore")

    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)
    assert [step["ScalingAdjustment"] for step in steps] == [1, 2, 5, 25]
    assert steps[0]["MetricIntervalUpperBound"] == 5, "one task runs four at a time"


@pytest.mark.parametrize(
    ("most", "added"), [(1, [1]), (4, [1, 2, 3, 4]), (12, [*range(1, 11), 12])]
)
def test_isolation_by_task_brings_a_task_per_waiting_run(
    tmp_path: Path, most: int, added: list[int]
) -> None:
    pool = {"executor": "worker", "isolation": "task", "fargate": {"maxTasks": most}}
    template = synthesize(tmp_path, {"pools": {"sealed": pool}})[2]

    policy = of_pool(template, "ApplicationAutoScaling::ScalingPolicy", "WorkersSealedMore")
    steps = policy["StepScalingPolicyConfiguration"]["StepAdjustments"]
    assert [step["ScalingAdjustment"] for step in steps] == added
    assert [step["MetricIntervalLowerBound"] for step in steps] == [0, *added[1:]]
    variables = container_of(template, "WorkersSealed")["Environment"]
    assert {"Name": "NEXTFIRE_ISOLATION", "Value": "task"} in variables
    assert {"Name": "NEXTFIRE_SLOTS", "Value": "1"} in variables


def test_steps_of_the_largest_isolated_pool_are_as_many_as_a_policy_may_have(
    tmp_path: Path,
) -> None:
    pool = {"executor": "worker", "isolation": "task", "fargate": {"maxTasks": 1000}}
    template = synthesize(tmp_path, {"pools": {"sealed": pool}})[2]

    policy = of_pool(template, "ApplicationAutoScaling::ScalingPolicy", "WorkersSealedMore")
    assert len(policy["StepScalingPolicyConfiguration"]["StepAdjustments"]) <= 20


def test_locally_an_isolated_pool_has_workers_that_stay(tmp_path: Path) -> None:
    """The local stack starts its workers once and would not replace a worker that ends."""
    pool = {"executor": "worker", "isolation": "task", "fargate": {}}
    context = {"target": "local", "local": {"pools": {"sealed": pool}}}
    template = synthesize(tmp_path, context)[2]

    environment = json.dumps(template["Outputs"]["WorkerEnvironmentSealed"])
    assert "NEXTFIRE_ISOLATION" not in environment
    assert "NEXTFIRE_SLOTS" in environment


def test_age_counts_only_where_something_waits(fargate: Template) -> None:
    alarm = of_pool(fargate, "CloudWatch::Alarm", "WorkersEtlOlder")
    [expression] = [metric for metric in alarm["Metrics"] if metric["ReturnData"]]

    assert expression["Expression"] == "IF(waiting > 0, oldest, 0)"
    assert alarm["Threshold"] == 60


@pytest.mark.parametrize(("part", "least"), [("WorkersEtl", 0), ("WorkersGiven", 1)])
def test_tasks_end_when_nothing_waits_or_runs(fargate: Template, part: str, least: int) -> None:
    policy = of_pool(fargate, "ApplicationAutoScaling::ScalingPolicy", f"{part}Fewer")
    configuration = policy["StepScalingPolicyConfiguration"]
    alarm = of_pool(fargate, "CloudWatch::Alarm", f"{part}Idle")
    [expression] = [metric for metric in alarm["Metrics"] if metric["ReturnData"]]

    # SQS publishes the number of hidden messages only if there are any, and that of waiting ones
    # while the queue is in use. Runs that wait for the first task must not count as idle.
    assert expression["Expression"] == "waiting + FILL(hidden, 0)"
    assert configuration["AdjustmentType"] == "ExactCapacity"
    assert [step["ScalingAdjustment"] for step in configuration["StepAdjustments"]] == [least]


def test_logs_are_kept_as_those_of_functions(fargate: Template) -> None:
    options = container_of(fargate, "WorkersEtl")["LogConfiguration"]["Options"]
    group = fargate["Resources"][options["awslogs-group"]["Ref"]]

    assert group["Properties"]["RetentionInDays"] == 30


def test_given_image_and_network_are_used_as_they_are(fargate: Template) -> None:
    service = of_pool(fargate, "ECS::Service", "WorkersGiven")
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    wall = of_pool(fargate, "EC2::SecurityGroup", "WorkersGiven")
    puller = of_pool(fargate, "IAM::Policy", "WorkersGivenPuller")

    assert container_of(fargate, "WorkersGiven")["Image"].endswith("/team/worker:1")
    assert network["Subnets"] == ["subnet-0a1b2c3d", "subnet-0a1b2d3e"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert wall["VpcId"] == "vpc-0a1b2c3d"
    assert ":ecr:eu-central-1:123456789012:repository/team/worker" in str(puller)
    assert len(properties(fargate, "EC2::VPC")) == 1, "only that of the other pool"


def test_tasks_have_their_network_and_their_image_as_long_as_the_service_exists(
    fargate: Template,
) -> None:
    """CloudFormation creates what a service depends on before it, and deletes it afterwards: a task
    that ends with its service needs the network to hand its runs back.
    """
    resources = fargate["Resources"]
    network = {
        name
        for name, resource in resources.items()
        if name.startswith("WorkerVpc") and resource["Type"].startswith("AWS::EC2::")
    }
    puller = of_pool(fargate, "ECS::TaskDefinition", "WorkersEtl")["ExecutionRoleArn"]
    policies = {
        name
        for name, resource in resources.items()
        if resource["Type"] == "AWS::IAM::Policy"
        and resource["Properties"]["Roles"] == [{"Ref": puller["Fn::GetAtt"][0]}]
    }
    [service] = [
        resource
        for name, resource in resources.items()
        if resource["Type"] == "AWS::ECS::Service" and name.startswith("WorkersEtl")
    ]

    kinds = {resources[name]["Type"].removeprefix("AWS::EC2::") for name in network}
    assert {"Route", "SubnetRouteTableAssociation", "VPCGatewayAttachment"} <= kinds
    assert policies
    assert network | policies <= {*service["DependsOn"]}


def test_own_network_costs_nothing_by_itself(fargate: Template) -> None:
    kinds = {resource["Type"] for resource in fargate["Resources"].values()}

    assert not kinds & {"AWS::EC2::NatGateway", "AWS::EC2::EIP"}
    for endpoint in properties(fargate, "EC2::VPCEndpoint"):
        assert endpoint["VpcEndpointType"] == "Gateway"


@pytest.mark.skipif(not LONG, reason="the default template is always checked")
def test_cfn_lint_finds_nothing(fargate_file: Path) -> None:
    check_with_cfn_lint(fargate_file)


def test_cdk_nag_finds_nothing_but_what_is_meant(tmp_path: Path) -> None:
    check_with_nag(tmp_path, {"pools": POOLS}, _MEANT)
