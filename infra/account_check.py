"""Checks the AWS account before a deployment: credentials, bootstrap, concurrency of Lambda, the
role of ECS, the tables that the stack adopts, those that it no longer uses, and the shards that it
reads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from infra.app import STACK_NAME
from infra.settings import Settings
from infra.store_settings import EXPIRES_BY

_CDK_OPTIONS = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_CDK_OPTIONS.add_argument("-c", "--context", action="append", default=[])
_CDK_OPTIONS.add_argument("--profile")


@dataclass(frozen=True, slots=True)
class Table:
    """What a restored table lacks. `expires_by`: the attribute of its time to live, if that is
    enabled; `recovery`: point-in-time recovery; `protected`: from deletion.
    """

    expires_by: str | None
    recovery: bool
    protected: bool


class CdkJsonError(Exception):
    """The file ``cdk.json`` cannot be used."""


class CallersAccount(Protocol):
    """The account and region of the caller's credentials. Each method raises an error with a text
    for the user if it gets no answer.
    """

    def name(self) -> str:
        """Number and region, for example ``111122223333 in eu-central-1``."""

    def is_bootstrapped(self) -> bool:
        """Whether the account and region are prepared for the CDK."""

    def concurrent_executions(self) -> int:
        """The quota "Concurrent executions" of Lambda."""

    def table(self, name: str) -> Table | None:
        """The table called *name*; None if it does not exist."""

    def tables_left(self, stack: str) -> Sequence[str]:
        """The names of tables that stacks called *stack* created, and that are in no stack now."""

    def read_shards(self, stack: str) -> int | None:
        """The `readShards` with which *stack* is deployed; None if it does not exist."""

    def has_cursor(self, control: str, shard: int) -> bool:
        """Whether watchers whose table `control` is called *control* have read *shard*."""

    def has_role(self, name: str) -> bool:
        """Whether the account has the role called *name*."""

    def has_stack(self, name: str) -> bool:
        """Whether the stack called *name* was once created completely."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. *prevents*: a deployment would fail, or jobs would not run on time."""

    text: str
    prevents: bool = False


def check(settings: Settings, account: CallersAccount) -> list[Finding]:
    """The findings for a deployment of *settings* to *account*."""
    try:
        findings = [Finding(f"account {account.name()}")]
    except Exception as error:  # noqa: BLE001 — the SDK has many
        return [Finding(f"no credentials that AWS accepts: {error}. {_CREDENTIALS}", prevents=True)]
    checks: Sequence[Callable[[], list[Finding]]] = (
        lambda: _bootstrap(account),
        lambda: _shards(settings, account.read_shards(STACK_NAME)),
        lambda: _concurrency(settings, account.concurrent_executions()),
        lambda: _role_of_ecs(settings, account),
        lambda: _adopted_tables(settings, account),
        lambda: _adopted_shards(settings, account),
        lambda: _tables_left(settings, account.tables_left(STACK_NAME)),
    )
    for each in checks:
        try:
            findings += each()
        except Exception as error:  # noqa: BLE001 — a deployer may lack this permission
            findings.append(Finding(f"not checked: {error}"))
    return findings


_ECS_ROLE = "AWSServiceRoleForECS"
_CREDENTIALS = "Set AWS_PROFILE, or keys and AWS_REGION; `aws sts get-caller-identity` shows them."


def _bootstrap(account: CallersAccount) -> list[Finding]:
    if account.is_bootstrapped():
        return []
    text = "it is not bootstrapped for the CDK: run `make bootstrap` once, as an administrator"
    return [Finding(text, prevents=True)]


def _concurrency(settings: Settings, quota: int) -> list[Finding]:
    assumed, pools = settings.account_concurrency, _lambda_pools(settings)
    if assumed > quota:
        text = (
            f"accountConcurrency is {assumed}, and the quota is {quota}: executors could use up "
            f"what the watcher needs. Set accountConcurrency to {quota}, or request a higher quota "
            '"Concurrent executions" of Lambda (code L-B99A9384) first'
        )
        return [Finding(text, prevents=True)]
    if assumed < quota and pools:
        text = (
            f"accountConcurrency is {assumed}, and the quota is {quota}: each of the pools "
            f"{', '.join(pools)} executes at most {settings.concurrency.pool} messages at once. "
            f"Set accountConcurrency to {quota} if no other functions of the account need it"
        )
        return [Finding(text)]
    return []


def _shards(settings: Settings, deployed: int | None) -> list[Finding]:
    if deployed is None or settings.read_shards >= deployed:
        return []
    text = (
        f"readShards is {settings.read_shards}, and the stack reads {deployed} shards: entries in "
        f"the others would never be sent. Set readShards to {deployed} or more, in cdk.json"
    )
    return [Finding(text, prevents=True)]


def _adopted_shards(settings: Settings, account: CallersAccount) -> list[Finding]:
    """Shards of an adopted table `due` that the watchers of its earlier stack have read."""
    control, shards = settings.adopt.control, settings.read_shards
    if settings.adopt.due is None or control is None or not account.has_cursor(control, shards):
        return []
    read = next(shard for shard in count(shards + 1) if not account.has_cursor(control, shard))
    text = (
        f"readShards is {shards}, and the earlier stack of adopt.due read {read} shards: entries "
        f"in the others would never be sent. Set readShards to {read} or more, in cdk.json"
    )
    return [Finding(text, prevents=True)]


def _role_of_ecs(settings: Settings, account: CallersAccount) -> list[Finding]:
    """Whether ECS has its role. It creates the role with the first cluster, and may fail to use it
    at once.
    """
    on_fargate = [name for name, pool in settings.pools.items() if pool.fargate]
    if not on_fargate or account.has_role(_ECS_ROLE):
        return []
    text = (
        f"the account has no role {_ECS_ROLE}, which ECS needs for the pools "
        f'{", ".join(on_fargate)}: the deployment may fail with "Unable to assume the service '
        'linked role". Run first: aws iam create-service-linked-role --aws-service-name '
        "ecs.amazonaws.com"
    )
    return [Finding(text)]


def _adopted_tables(settings: Settings, account: CallersAccount) -> list[Finding]:
    """What adopted tables lack. The stack does not change them."""
    found: list[Finding] = []
    for name, table in settings.adopt.tables.items():
        state = account.table(table)
        if state is None:
            text = f"adopt.{name}: table {table} not found: check its name and the region"
            found.append(Finding(text, prevents=True))
        elif commands := [*_missing(settings, name, state)]:
            lines = [f"  aws dynamodb {each.format(table=table)}" for each in commands]
            text = "\n".join([f"adopt.{name}: a restored table lacks settings. Run:", *lines])
            found.append(Finding(text, prevents=True))
    return found


def _tables_left(settings: Settings, names: Sequence[str]) -> list[Finding]:
    unused = [name for name in names if name not in settings.adopt.tables.values()]
    if not unused:
        return []
    text = (
        "tables that the stack does not use: an earlier stack has left them, or an update that "
        "failed. Adopt them with adopt, or delete them (docs/operate/deploy.md#removing):"
    )
    return [Finding("\n".join([text, *(f"  {name}" for name in unused)]))]


def _missing(settings: Settings, name: str, state: Table) -> Iterator[str]:
    """The commands that add what the table *name* lacks."""
    attribute = EXPIRES_BY.get(name)
    if attribute is not None and state.expires_by != attribute:
        yield (
            "update-time-to-live --table-name {table} --time-to-live-specification "
            f"Enabled=true,AttributeName={attribute}"
        )
    if not state.recovery and (name != "runs" or settings.runs_recovery):
        yield (
            "update-continuous-backups --table-name {table} "
            "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"
        )
    if not state.protected and not settings.remove_data:
        yield "update-table --table-name {table} --deletion-protection-enabled"


def _lambda_pools(settings: Settings) -> list[str]:
    return [name for name, pool in settings.pools.items() if pool.executor == "lambda"]


def settings_of(arguments: Sequence[str], root: Path) -> Settings:
    """The settings of a CDK command with *arguments*: those of ``cdk.json`` in *root*, and ``-c``.

    Raises:
        pydantic.ValidationError: They are invalid.
        CdkJsonError: ``cdk.json`` cannot be read as JSON.
    """
    try:
        document: Any = json.loads(root.joinpath("cdk.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CdkJsonError(f"cdk.json is not valid JSON: {error}") from error
    context = document.get("context", {}) if isinstance(document, dict) else None
    if not isinstance(context, dict):
        raise CdkJsonError("cdk.json: `context` is not an object with settings")
    return Settings.from_context({**context, **given_context(arguments)})


def given_context(arguments: Sequence[str]) -> Mapping[str, str]:
    """The values of ``-c key=value`` and ``--context key=value`` in *arguments*."""
    found: list[str] = _CDK_OPTIONS.parse_known_args(arguments)[0].context
    return dict(each.split("=", 1) for each in found if "=" in each)


def profile_of(arguments: Sequence[str]) -> str | None:
    """The AWS profile that a CDK command with *arguments* uses; None: that of the environment."""
    profile: str | None = _CDK_OPTIONS.parse_known_args(arguments)[0].profile
    return profile
