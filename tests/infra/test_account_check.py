"""The check of the account before a deployment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from infra import __main__ as command
from infra.account_check import Table, check, given_context, profile_of, settings_of
from infra.aws_account import AwsAccount
from infra.constructs.stores import FIRST_DEPLOYMENT
from infra.settings import Settings

POOLS = {"default": {"executor": "lambda"}, "large": {"executor": "worker"}}


@dataclass(frozen=True)
class Stub:
    """An account with these properties; None: the caller may not ask for them."""

    bootstrapped: bool | None = True
    quota: int | None = 1000
    tables: Mapping[str, Table] = field(default_factory=dict)
    left: Sequence[str] = ()
    deployed_shards: int | None = None
    cursors: int = 0
    roles: Sequence[str] = ()

    def name(self) -> str:
        return "111122223333 in eu-central-1"

    def is_bootstrapped(self) -> bool:
        if self.bootstrapped is None:
            raise PermissionError("AccessDenied: ssm:GetParameter")
        return self.bootstrapped

    def concurrent_executions(self) -> int:
        if self.quota is None:
            raise PermissionError("AccessDenied: lambda:GetAccountSettings")
        return self.quota

    def table(self, name: str) -> Table | None:
        return self.tables.get(name)

    def tables_left(self, stack: str) -> Sequence[str]:
        assert stack == "Nextfire"
        return self.left

    def read_shards(self, stack: str) -> int | None:
        assert stack == "Nextfire"
        return self.deployed_shards

    def has_cursor(self, control: str, shard: int) -> bool:
        assert control == "old-control"
        return shard < self.cursors

    def has_role(self, name: str) -> bool:
        return name in self.roles

    def has_stack(self, name: str) -> bool:
        raise NotImplementedError(name)


class NoCredentials(Stub):
    def name(self) -> str:
        raise PermissionError("Unable to locate credentials")


def a_deployment(concurrency: int = 1000, **others: object) -> Settings:
    return Settings.from_context({"pools": POOLS, "accountConcurrency": concurrency, **others})


def found(account: Stub, settings: Settings | None = None) -> tuple[str, bool]:
    """The findings as text, and whether one prevents the deployment."""
    findings = check(settings or a_deployment(), account)
    return "\n".join(each.text for each in findings), any(each.prevents for each in findings)


def test_an_account_that_is_ready_is_named() -> None:
    assert found(Stub()) == ("account 111122223333 in eu-central-1", False)


def test_without_credentials_nothing_else_is_asked() -> None:
    text, prevents = found(NoCredentials(bootstrapped=False))

    assert prevents
    assert text.startswith("no credentials that AWS accepts: Unable to locate credentials.")
    assert "AWS_PROFILE" in text
    assert "bootstrap" not in text


def test_the_message_about_a_missing_bootstrap_has_the_command() -> None:
    text, prevents = found(Stub(bootstrapped=False))

    assert prevents
    assert "`make bootstrap`" in text


def test_a_concurrency_above_the_quota_prevents_the_deployment() -> None:
    text, prevents = found(Stub(quota=10), a_deployment(1000))

    assert prevents
    assert "Set accountConcurrency to 10" in text


def test_a_concurrency_below_the_quota_says_what_the_pools_on_lambda_lose() -> None:
    text, prevents = found(Stub(quota=1000), a_deployment(10, groups=1))

    assert not prevents
    assert "the pools default executes at most 2 messages at once" in text
    assert "Set accountConcurrency to 1000" in text
    assert "large" not in text


def test_the_concurrency_does_not_matter_without_a_pool_on_lambda() -> None:
    text, prevents = found(Stub(), a_deployment(10, pools={"large": {"executor": "worker"}}))

    assert (text, prevents) == ("account 111122223333 in eu-central-1", False)


def test_what_the_caller_may_not_ask_is_named_and_prevents_nothing() -> None:
    text, prevents = found(Stub(bootstrapped=None, quota=None))

    assert not prevents
    assert "not checked: AccessDenied: ssm:GetParameter" in text
    assert "not checked: AccessDenied: lambda:GetAccountSettings" in text


RESTORED = Table(expires_by=None, recovery=False, protected=False)


def test_an_adopted_table_that_lacks_what_a_restored_one_lacks_prevents_the_deployment() -> None:
    settings = a_deployment(adopt={"runs": "old-runs", "jobs": "old-jobs"})
    text, prevents = found(Stub(tables={"old-runs": RESTORED, "old-jobs": RESTORED}), settings)

    assert prevents
    runs = text[text.index("adopt.runs") :]
    assert "update-time-to-live --table-name old-runs" in runs
    assert "Enabled=true,AttributeName=expires_at" in runs
    assert "update-continuous-backups --table-name old-runs" in runs
    assert "update-table --table-name old-runs --deletion-protection-enabled" in runs
    assert "update-table --table-name old-jobs --deletion-protection-enabled" in text
    assert "update-time-to-live --table-name old-jobs" not in text


def test_an_adopted_table_that_has_everything_is_not_mentioned() -> None:
    runs = Table(expires_by="expires_at", recovery=True, protected=True)
    text, prevents = found(
        Stub(tables={"old-runs": runs}), a_deployment(adopt={"runs": "old-runs"})
    )

    assert (text, prevents) == ("account 111122223333 in eu-central-1", False)


def test_an_adopted_table_may_lack_what_the_settings_do_without() -> None:
    runs = Table(expires_by="expires_at", recovery=False, protected=False)
    without = a_deployment(adopt={"runs": "old-runs"}, runsRecovery=False, removeData=True)

    assert not found(Stub(tables={"old-runs": runs}), without)[1]


def test_settings_of_the_command_line_override_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"pools": POOLS, "groups": 1}}))
    arguments = ["deploy", "-c", "accountConcurrency=1000", "--context=life=PT3M"]

    settings = settings_of(arguments, tmp_path)

    assert (settings.account_concurrency, settings.groups) == (1000, 1)
    assert given_context(arguments) == {"accountConcurrency": "1000", "life": "PT3M"}


@pytest.mark.parametrize("options", [["--profile=prod"], ["--profile", "prod"]])
def test_the_account_of_the_profile_is_checked(options: list[str]) -> None:
    assert profile_of(["deploy", *options, "-c", "groups=2", "--hotswap"]) == "prod"
    assert profile_of(["deploy"]) is None


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield


@pytest.mark.usefixtures("aws")
def test_the_bootstrap_is_recognized_by_its_parameter() -> None:
    account = AwsAccount()
    assert account.name() == "123456789012 in eu-central-1"
    assert not account.is_bootstrapped()

    boto3.client("ssm").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="21", Type="String"
    )

    assert account.is_bootstrapped()


@pytest.mark.usefixtures("aws")
def test_what_a_table_has_is_read_from_aws() -> None:
    dynamodb, account = boto3.client("dynamodb"), AwsAccount()
    assert account.table("old-runs") is None
    dynamodb.create_table(
        TableName="old-runs",
        KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    assert account.table("old-runs") == RESTORED

    expiry: Any = {"Enabled": True, "AttributeName": "expires_at"}
    dynamodb.update_time_to_live(TableName="old-runs", TimeToLiveSpecification=expiry)
    dynamodb.update_continuous_backups(
        TableName="old-runs",
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
    )
    dynamodb.update_table(TableName="old-runs", DeletionProtectionEnabled=True)

    assert account.table("old-runs") == Table("expires_at", recovery=True, protected=True)


@pytest.mark.usefixtures("aws")
def test_deploy_stops_before_the_cdk_if_the_account_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_cdk(_: Path) -> Path:
        raise AssertionError("the CDK was called")

    monkeypatch.setattr(command, "installed_cdk", no_cdk)

    assert command.main(["deploy"]) == 1
    assert "error: it is not bootstrapped" in capsys.readouterr().err


@dataclass
class Cdk:
    """The CDK, whose deployments end with *code*. `calls`: their arguments."""

    code: int = 0
    calls: list[list[str]] = field(default_factory=list)

    def __call__(self, arguments: Sequence[str]) -> int:
        self.calls.append([*arguments])
        return self.code


@dataclass(frozen=True)
class Stacks:
    """CloudFormation with the stack in *state*; None: it does not exist."""

    state: str | None

    def describe_stacks(self, **_: str) -> Any:
        if self.state is None:
            error: Any = {"Error": {"Code": "ValidationError", "Message": "does not exist"}}
            raise ClientError(error, "DescribeStacks")
        return {"Stacks": [{"StackStatus": self.state}]}


FIRST = ["-c", f"{FIRST_DEPLOYMENT}=true"]


def deploy(monkeypatch: pytest.MonkeyPatch, cdk: Cdk, state: str | None, *more: str) -> int:
    return run(monkeypatch, cdk, state, "deploy", *more)


def run(monkeypatch: pytest.MonkeyPatch, cdk: Cdk, state: str | None, *arguments: str) -> int:
    """The command with the stack in *state*, in an account that is ready."""
    monkeypatch.setattr(command, "_check", lambda _: 0)
    monkeypatch.setattr(command, "_cdk", cdk)
    monkeypatch.setattr(boto3.Session, "client", lambda *_, **__: Stacks(state))
    return command.main(arguments)


@pytest.mark.parametrize("state", [None, "ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"])
def test_a_first_deployment_protects_the_tables_in_a_second_step(
    monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    cdk = Cdk()

    assert deploy(monkeypatch, cdk, state, "-c", "groups=2") == 0
    assert cdk.calls == [["deploy", "-c", "groups=2", *FIRST], ["deploy", "-c", "groups=2"]]


def test_a_first_deployment_that_fails_has_no_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    cdk = Cdk(code=1)

    assert deploy(monkeypatch, cdk, None) == 1
    assert cdk.calls == [["deploy", *FIRST]]


@pytest.mark.parametrize("state", ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"])
def test_later_deployments_have_one_step(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    cdk = Cdk()

    assert deploy(monkeypatch, cdk, state) == 0
    assert cdk.calls == [["deploy"]]


REMOVE = ["-c", "removeData=true"]


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        ("CREATE_COMPLETE", [["deploy", *REMOVE], ["destroy", *REMOVE]]),
        (None, [["destroy", *REMOVE]]),
    ],
)
def test_data_are_removed_after_an_update_of_a_stack_that_exists(
    monkeypatch: pytest.MonkeyPatch, state: str | None, calls: list[list[str]]
) -> None:
    cdk = Cdk()

    assert run(monkeypatch, cdk, state, "destroy", *REMOVE) == 0
    assert cdk.calls == calls


def test_a_stack_whose_update_fails_is_not_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    cdk = Cdk(code=1)

    assert run(monkeypatch, cdk, "CREATE_COMPLETE", "destroy", *REMOVE) == 1
    assert cdk.calls == [["deploy", *REMOVE]]


def test_a_deployment_of_an_account_that_does_not_say_has_one_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Stacks, **__: str) -> None:
        raise PermissionError("AccessDenied: cloudformation:DescribeStacks")

    monkeypatch.setattr(Stacks, "describe_stacks", refuse)
    cdk = Cdk()

    assert deploy(monkeypatch, cdk, None) == 0
    assert cdk.calls == [["deploy"]]
    assert "not known whether the stack exists: AccessDenied" in capsys.readouterr().err
