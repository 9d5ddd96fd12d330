"""Workers of a pool as an ECS service on Fargate, scaled by the queue's backlog."""

import re
from collections.abc import Mapping

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.build import Build
from infra.constructs.grants import allow
from infra.constructs.pool import Pool
from infra.fargate_settings import FargateSettings
from infra.settings import Settings

_USER = "1000:1000"
"""The same user as in `functions/worker/Dockerfile`."""
_STOP_TIMEOUT = Duration.seconds(120)
"""The maximum of Fargate between SIGTERM and SIGKILL, in which a worker hands its runs back."""
_ECR_IMAGE = re.compile(r"([0-9]{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)")
_MINUTE = Duration.minutes(1)
_OLD = Duration.minutes(1)
"""If a run has waited that long, another worker is started, even if the backlog is small."""
_IDLE_MINUTES = 10
_RUNS_OF_STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 50, 100, 200, 500]
"""Scaling steps with isolation by task: each waiting run adds a task. The maximum of a policy is 20
steps."""


def create_vpc(scope: Construct, construct_id: str) -> ec2.Vpc:
    """A VPC with public subnets, no NAT, and gateway endpoints for tables and buckets."""
    return ec2.Vpc(
        scope,
        construct_id,
        max_azs=2,
        nat_gateways=0,
        subnet_configuration=[
            ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC)
        ],
        gateway_endpoints={
            "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
            "DynamoDb": ec2.GatewayVpcEndpointOptions(
                service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
            ),
        },
    )


class WorkerService(Construct):
    """Fargate tasks that serve *pool* with the role *role*, in *vpc* or the VPC of *fargate*.

    The service scales out while messages wait, and scales in when the queue is empty. ECS does not
    stop a task that runs jobs: the worker enables task protection. On SIGTERM a worker hands its
    runs back.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        pool: Pool,
        role: iam.Role,
        vpc: ec2.IVpc | None,
        fargate: FargateSettings,
        build: Build,
        settings: Settings,
        environment: Mapping[str, str],
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._key = key
        self._puller = iam.Role(
            self, "Puller", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        )
        home = vpc if fargate.vpc_id is None else None
        if home is None:
            # The zones are required by the CDK but unused: the subnets are set explicitly.
            home = ec2.Vpc.from_vpc_attributes(
                self, "Vpc", vpc_id=str(fargate.vpc_id), availability_zones=["unknown"]
            )
        cluster = ecs.Cluster(self, "Cluster", vpc=home)
        service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self._task(pool, role, fargate, build, settings, environment),
            platform_version=ecs.FargatePlatformVersion.VERSION1_4,
            assign_public_ip=fargate.assign_public_ip,
            vpc_subnets=self._subnets(fargate),
            security_groups=[
                # Outbound only: workers accept no connections.
                ec2.SecurityGroup(
                    self, "Wall", vpc=home, description=f"Workers of the pool {pool.name}"
                )
            ],
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            min_healthy_percent=100,
            max_healthy_percent=200,
            # By default ECS stops tasks to even out zones, maybe also those that are protected.
            availability_zone_rebalancing=ecs.AvailabilityZoneRebalancing.DISABLED,
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
        )
        # Created after, and deleted before, what tasks need to start and to hand their runs back.
        # The CDK adds the dependency on the role of the tasks only.
        service.node.add_dependency(home, self._puller)
        self.cluster_name = cluster.cluster_name
        self.service_name = service.service_name
        tasks, services = (self._all_of(cluster, kind) for kind in ("task", "service"))
        allow(role, ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"], tasks)
        allow(role, ["ecs:DescribeServices"], services)
        self._scale(pool, fargate, cluster, service)

    def _all_of(self, cluster: ecs.Cluster, kind: str) -> str:
        """The ARN of all tasks, or services, of *cluster*, which has this service only."""
        return Stack.of(self).format_arn(
            service="ecs",
            resource=kind,
            resource_name=f"{cluster.cluster_name}/*",
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )

    def _task(
        self,
        pool: Pool,
        role: iam.Role,
        fargate: FargateSettings,
        build: Build,
        settings: Settings,
        environment: Mapping[str, str],
    ) -> ecs.FargateTaskDefinition:
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=settings.retention,
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=self._key,
        )
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=fargate.cpu,
            memory_limit_mib=fargate.memory,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.ARM64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
            task_role=role,
            execution_role=self._puller,
            volumes=[ecs.Volume(name="tmp")],
        )
        container = task.add_container(
            "worker",
            image=self._image(fargate, build),
            user=_USER,
            readonly_root_filesystem=True,
            stop_timeout=_STOP_TIMEOUT,
            linux_parameters=self._linux(),
            logging=ecs.LogDrivers.aws_logs(stream_prefix=pool.name, log_group=log_group),
            environment={**environment, "POWERTOOLS_LOG_LEVEL": settings.log_level},
        )
        container.add_mount_points(
            ecs.MountPoint(container_path="/tmp", source_volume="tmp", read_only=False)  # noqa: S108 — private to the container
        )
        return task

    def _linux(self) -> ecs.LinuxParameters:
        # No init process: it would run as the scripts' user, and scripts could read the address of
        # the task's credentials in its environment. The worker hides its own environment, and
        # adopts orphans itself.
        linux = ecs.LinuxParameters(self, "Linux", init_process_enabled=False)
        linux.drop_capabilities(ecs.Capability.ALL)
        return linux

    def _image(self, fargate: FargateSettings, build: Build) -> ecs.ContainerImage:
        if fargate.image is None:
            asset = ecr_assets.DockerImageAsset(
                self,
                "Image",
                directory=str(build.worker_image()),
                file="functions/worker/Dockerfile",
                platform=ecr_assets.Platform.LINUX_ARM64,
            )
            return ecs.ContainerImage.from_docker_image_asset(asset)
        if found := _ECR_IMAGE.match(fargate.image):
            account, region, name = found.groups()
            arn = Stack.of(self).format_arn(
                service="ecr",
                resource="repository",
                resource_name=name,
                account=account,
                region=region,
            )
            ecr.Repository.from_repository_attributes(
                self, "Repository", repository_arn=arn, repository_name=name
            ).grant_pull(self._puller)
        return ecs.ContainerImage.from_registry(fargate.image)

    def _subnets(self, fargate: FargateSettings) -> ec2.SubnetSelection:
        if fargate.vpc_id is None:
            return ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
        return ec2.SubnetSelection(
            subnets=[
                ec2.Subnet.from_subnet_id(self, f"Subnet{number}", subnet_id)
                for number, subnet_id in enumerate(fargate.subnet_ids)
            ]
        )

    def _scale(
        self,
        pool: Pool,
        fargate: FargateSettings,
        cluster: ecs.Cluster,
        service: ecs.FargateService,
    ) -> None:
        tasks = self._scaled(fargate, f"service/{cluster.cluster_name}/{service.service_name}")
        waiting = pool.queue.metric_approximate_number_of_messages_visible(
            period=_MINUTE, statistic="Maximum"
        )
        each = pool.settings.slots
        # One more task for as many waiting runs as a task runs concurrently.
        steps = [(0, 1), (each + 1, 2), (5 * each + 1, 5), (25 * each + 1, 25)]
        if pool.settings.isolation == "task":
            most = fargate.max_tasks
            steps = [(n if n > 1 else 0, n) for n in _RUNS_OF_STEPS if n < most or n == 1]
            steps += [(most, most)] if most > 1 else []
        self._step(
            "More",
            tasks,
            waiting,
            f"Runs are waiting in the pool {pool.name}.",
            steps,
        )
        self._step(
            "Older",
            tasks,
            pool.longest_wait(_MINUTE),
            f"A run has waited in the pool {pool.name} for more than a minute.",
            [(0, 1)],
            threshold=_OLD.to_seconds(),
        )
        self._scale_in(pool, fargate, tasks, waiting)

    def _scale_in(
        self,
        pool: Pool,
        fargate: FargateSettings,
        tasks: appscaling.IScalableTarget,
        waiting: cloudwatch.Metric,
    ) -> None:
        """Return to the minimum of tasks when *pool* is idle: no run is waiting or running."""
        hidden = pool.queue.metric_approximate_number_of_messages_not_visible(
            period=_MINUTE, statistic="Maximum"
        )
        idle = cloudwatch.Alarm(
            self,
            "Idle",
            alarm_description=f"The pool {pool.name} is idle: scale its workers in.",
            metric=cloudwatch.MathExpression(
                # SQS reports hidden messages only if there are any. Without the 0 the sum would be
                # missing, and breaching, while runs wait for the first task.
                expression="waiting + FILL(hidden, 0)",
                using_metrics={"waiting": waiting, "hidden": hidden},
                period=_MINUTE,
            ),
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=1,
            evaluation_periods=_IDLE_MINUTES,
            # SQS publishes no metrics for a queue that was unused for hours.
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )
        fewer = appscaling.StepScalingAction(
            self,
            "Fewer",
            scaling_target=tasks,
            adjustment_type=appscaling.AdjustmentType.EXACT_CAPACITY,
        )
        fewer.add_adjustment(adjustment=fargate.min_tasks, upper_bound=0)
        idle.add_alarm_action(actions.ApplicationScalingAction(fewer))

    def _scaled(self, fargate: FargateSettings, service: str) -> appscaling.IScalableTarget:
        """The number of tasks of *service*.

        The CDK's own construct names the service-linked role of Application Auto Scaling, which
        rejects that name if the account lacks the role. Without a name it creates the role.
        """
        tasks = appscaling.CfnScalableTarget(
            Construct(self, "Tasks"),
            "Resource",
            service_namespace="ecs",
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=service,
            min_capacity=fargate.min_tasks,
            max_capacity=fargate.max_tasks,
        )
        return appscaling.ScalableTarget.from_scalable_target_attributes(
            self,
            "Scaled",
            service_namespace=tasks.service_namespace,
            scalable_dimension=tasks.scalable_dimension,
            scalable_target_id=tasks.ref,
        )

    def _step(
        self,
        construct_id: str,
        tasks: appscaling.IScalableTarget,
        metric: cloudwatch.IMetric,
        description: str,
        steps: list[tuple[int, int]],
        *,
        threshold: float = 0,
    ) -> None:
        """Add tasks while *metric* is above *threshold*. *steps*: pairs of the amount above the
        threshold, and the number of tasks to add from there on.
        """
        action = appscaling.StepScalingAction(
            self,
            f"{construct_id}Tasks",
            scaling_target=tasks,
            adjustment_type=appscaling.AdjustmentType.CHANGE_IN_CAPACITY,
            # A new task needs about a minute until it takes runs.
            cooldown=Duration.minutes(2),
            metric_aggregation_type=appscaling.MetricAggregationType.MAXIMUM,
        )
        ends = [lower for lower, _ in steps[1:]]
        for (lower, change), upper in zip(steps, [*ends, None], strict=True):
            action.add_adjustment(adjustment=change, lower_bound=lower, upper_bound=upper)
        cloudwatch.Alarm(
            self,
            construct_id,
            alarm_description=description,
            metric=metric,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            threshold=threshold,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        ).add_alarm_action(actions.ApplicationScalingAction(action))
