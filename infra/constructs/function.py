"""A Lambda function of this project, with its folder under functions/, role and log group."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.code import Code
from infra.constructs.grants import allow
from infra.constructs.private_network import PrivateNetwork
from infra.limits import check_environment
from infra.settings import Settings, StackTarget
from nextfire.domain.metrics import NAMESPACE


def _quiet(settings: Settings) -> dict[str, Any]:
    """Logging of a function without Lambda's lines of each invocation, which only JSON allows."""
    if settings.target is not StackTarget.AWS or settings.log_level == "DEBUG":
        return {}
    return {
        "logging_format": lambda_.LoggingFormat.JSON,
        # Lambda treats lines without a level, such as metrics, as INFO.
        "application_log_level_v2": lambda_.ApplicationLogLevel.INFO,
        "system_log_level_v2": lambda_.SystemLogLevel.WARN,
    }


def _sends_to_itself(settings: Settings) -> dict[str, Any]:
    """An executor sends the runs of children to the queue that invokes it. Lambda takes that for a
    loop after 16 in a row if the client passes on its trace header: boto3 does, the lean one not.
    """
    if settings.target is not StackTarget.AWS or settings.aws_client != "boto3":
        return {}
    return {"recursive_loop": lambda_.RecursiveLoop.ALLOW}


class Function(Construct):
    """The function of `functions/<folder>`.

    Its role may write only to its own log group, which is encrypted with *key*. *audited*: the log
    holds audit events and has their retention. *network*: the VPC of the function, if any.
    *reserved*: concurrency that no other function can use. *frequent*: it is invoked for each run,
    so Lambda logs invocations only if they fail, unless the log level is DEBUG.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        folder: str,
        code: Code,
        settings: Settings,
        key: kms.IKey | None,
        memory: int,
        timeout: timedelta,
        environment: Mapping[str, str],
        audited: bool = False,
        network: PrivateNetwork | None = None,
        reserved: int | None = None,
        frequent: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self.folder = folder
        environment = {
            "POWERTOOLS_SERVICE_NAME": folder,
            "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": settings.log_level,
            "NEXTFIRE_AWS_CLIENT": settings.aws_client,
            **environment,
        }
        check_environment(Stack.of(self), folder, environment)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=settings.audit_days if audited else settings.retention,
            removal_policy=settings.audit_removal if audited else RemovalPolicy.DESTROY,
            encryption_key=key,
        )
        allow(self.role, ["logs:CreateLogStream", "logs:PutLogEvents"], log_group.log_group_arn)
        if network is not None:
            network.grant(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            code=code.of(folder),
            handler=f"functions.{folder}.handler.handler",
            runtime=code.runtime,
            architecture=code.architecture,
            layers=code.layers,
            role=self.role,
            log_group=log_group,
            **({**_quiet(settings), **_sends_to_itself(settings)} if frequent else {}),
            memory_size=memory,
            timeout=Duration.seconds(int(timeout.total_seconds())),
            reserved_concurrent_executions=reserved,
            environment=environment,
            # Rules invoke their function again a minute later, so retries are not needed.
            retry_attempts=0,
            max_event_age=Duration.minutes(1),
        )
        if network is not None:
            # The CDK property `vpc` would add a managed policy that allows these actions on "*".
            template = self.function.node.default_child
            if not isinstance(template, lambda_.CfnFunction):
                raise TypeError("the default child of a function is not a CfnFunction")
            template.vpc_config = network.config
