"""The AWS account of the caller's credentials, by boto3."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.account_check import Table
from nextfire.adapters.dynamodb.control_items import encode_id

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

_BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
_NEVER_CREATED = {"REVIEW_IN_PROGRESS", "CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"}
"""States of a stack whose creation has not succeeded."""
_QUICK = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})


class AwsAccount:
    """`CallersAccount` by the credentials and region of *profile*. None: of the default one."""

    def __init__(self, profile: str | None = None) -> None:
        self._profile = profile

    @cached_property
    def _session(self) -> boto3.Session:
        # Not when it is built: the profile may not exist, which the first question reports.
        return boto3.Session(profile_name=self._profile)

    def name(self) -> str:
        """See `CallersAccount.name`."""
        number = self._session.client("sts", config=_QUICK).get_caller_identity()["Account"]
        return f"{number} in {self._session.region_name}"

    def is_bootstrapped(self) -> bool:
        """See `CallersAccount.is_bootstrapped`."""
        try:
            self._session.client("ssm", config=_QUICK).get_parameter(Name=_BOOTSTRAP)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ParameterNotFound":
                return False
            raise
        return True

    def concurrent_executions(self) -> int:
        """See `CallersAccount.concurrent_executions`."""
        answer = self._session.client("lambda", config=_QUICK).get_account_settings()
        return answer["AccountLimit"]["ConcurrentExecutions"]

    def table(self, name: str) -> Table | None:
        """See `CallersAccount.table`."""
        dynamodb = self._session.client("dynamodb", config=_QUICK)
        try:
            described = dynamodb.describe_table(TableName=name)["Table"]
        except dynamodb.exceptions.ResourceNotFoundException:
            return None
        expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        expires = expiry.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
        backups = dynamodb.describe_continuous_backups(TableName=name)
        recovery = backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        return Table(
            expires_by=expiry.get("AttributeName") if expires else None,
            recovery=recovery["PointInTimeRecoveryStatus"] == "ENABLED",
            protected=described.get("DeletionProtectionEnabled", False),
        )

    def tables_left(self, stack: str) -> Sequence[str]:
        """See `CallersAccount.tables_left`."""
        pages = self._session.client("dynamodb", config=_QUICK).get_paginator("list_tables")
        # Logical ids of tables begin with the id of their construct, and names with logical ids.
        created = f"{stack}-Stores"
        names = [name for page in pages.paginate() for name in page["TableNames"]]
        left = [name for name in names if name.startswith(created)]
        current = self._resources(stack) if left else set()
        return [name for name in left if name not in current]

    def _resources(self, stack: str) -> set[str]:
        """The physical ids of the resources of *stack*; none if it does not exist."""
        formation = self._session.client("cloudformation", config=_QUICK)
        pages = formation.get_paginator("list_stack_resources").paginate(StackName=stack)
        try:
            return {
                resource.get("PhysicalResourceId", "")
                for page in pages
                for resource in page["StackResourceSummaries"]
            }
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return set()
            raise

    def read_shards(self, stack: str) -> int | None:
        """See `CallersAccount.read_shards`."""
        found = self._stack(stack)
        outputs = found.get("Outputs", []) if found else []
        for output in outputs:
            if output.get("OutputKey") == "WatcherFunction":
                functions = self._session.client("lambda", config=_QUICK)
                watcher = functions.get_function_configuration(FunctionName=output["OutputValue"])
                return int(watcher["Environment"]["Variables"]["NEXTFIRE_READ_SHARDS"])
        return None

    def has_cursor(self, control: str, shard: int) -> bool:
        """See `CallersAccount.has_cursor`."""
        dynamodb = self._session.client("dynamodb", config=_QUICK)
        return "Item" in dynamodb.get_item(TableName=control, Key=encode_id(f"cursor#{shard}"))

    def has_role(self, name: str) -> bool:
        """See `CallersAccount.has_role`."""
        iam = self._session.client("iam", config=_QUICK)
        try:
            iam.get_role(RoleName=name)
        except iam.exceptions.NoSuchEntityException:
            return False
        return True

    def has_stack(self, name: str) -> bool:
        """See `CallersAccount.has_stack`."""
        found = self._stack(name)
        return found is not None and found["StackStatus"] not in _NEVER_CREATED

    def _stack(self, name: str) -> StackTypeDef | None:
        formation = self._session.client("cloudformation", config=_QUICK)
        try:
            return formation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError":
                return None
            raise
