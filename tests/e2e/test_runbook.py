"""The commands of the runbook, carried out on the deployed stack as far as the emulator allows.

Each command gets what its capital words name: a new job, a run of the state that it needs, a key.
`aws` is `tests/infra/aws_cli.py`.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.keys import Minted, Scope
from nextfire.usecases.manage_keys import ManageKeys, new_key_id
from tests.e2e.conftest import ROOT, Stack
from tests.e2e.user import User

RUNBOOK = (ROOT / "docs" / "operate" / "runbook.md").read_text()
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`((?:aws|nextfire) [^`]+)`")
NOT_HERE = {
    "aws logs tail": "only AWS's command line has it",
    "aws lambda get-account-settings": "the emulator does not have it",
    "aws service-quotas request-service-quota-increase": "the emulator has no quotas",
    "aws dynamodb restore-table-to-point-in-time": "named without its options",
    "aws ecs describe-services": "the emulator has no Fargate",
    "aws lambda update-event-source-mapping": "named without a mapping",
    "aws cloudtrail lookup-events": "the emulator records no events",
    "filter ispresent": "a query for Logs Insights, which the emulator does not have",
    "aws iam put-role-policy": "named without its options",
    "aws kms enable-key": "the stack has no key",
    "nextfire scripts push": "named without its options",
    "nextfire apply": "named without its options",
    "nextfire audit verify": "tests/e2e/test_audit_chain.py",
    "aws cloudformation continue-update-rollback": "no update has failed",
    "make synth": "tests/infra",
    "make deploy": "tests/infra/test_account_check.py",
}
"""Commands that are not carried out, each with the reason."""
_ONCE = {"nextfire status", "aws events enable-rule --name RULE"}
"""Commands that the runbook names often."""
_ASK = re.compile(r"^nextfire (?:dlq purge|jobs delete) .*", re.MULTILINE)
"""Commands that ask in a terminal."""


def _commands() -> Iterator[str]:
    """The blocks of the runbook, and the commands of its sentences, in their order, each once."""
    known: set[str] = set()
    text = re.sub(r"\\\n\s*", " ", RUNBOOK)
    found = [(each.start(), each[0].partition("\n")[2]) for each in _FENCED.finditer(text)]
    blanked = _FENCED.sub(lambda block: " " * len(block[0]), text)
    found += [(each.start(), re.sub(r"\s+", " ", each[1])) for each in _CODE.finditer(blanked)]
    for _, block in sorted(found):
        lines = [line for line in block.removesuffix("```").splitlines() if line.strip()]
        kept = [line for line in lines if not line.startswith((*NOT_HERE, *known))]
        known |= {line for line in kept if line in _ONCE}
        if kept:
            yield "\n".join(kept)


class Operator:
    """Carries out commands on *stack* as an admin of *tenant*, in which *user* creates jobs."""

    def __init__(self, stack: Stack, user: User, tenant: str, key: Minted, tools: Path) -> None:
        self._stack = stack
        self._tenant = tenant
        self._user = user
        self._key = key
        self._tools = tools

    def carry_out(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run *script* by the shell, with a value for each capital word in it."""
        words = {
            word: self._value(word, script)
            for word in re.findall(r"(?<![A-Z$_=\"'])\b[A-Z_]{3,}\b(?!=)", script)
            if word in _WORDS
        }
        for word, value in words.items():
            script = re.sub(rf"(?<![$\w]){word}\b(?!=)", shlex.quote(value), script)
        script = _ASK.sub(r"\g<0> --yes", script)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join(
                [str(self._tools), str(Path(sys.executable).parent), os.defpath]
            ),
            "AWS_ACCESS_KEY_ID": self._stack.info.access_key,
            "AWS_SECRET_ACCESS_KEY": self._stack.info.secret_key,
            "AWS_REGION": self._stack.info.region,
            "AWS_DEFAULT_REGION": self._stack.info.region,
            "AWS_ENDPOINT_URL": self._stack.info.aws_endpoint,
            "NEXTFIRE_ENDPOINT": self._stack.info.endpoint,
            "NEXTFIRE_API_KEY": self._key.text,
            "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in ("layers", "cli", ".")),
        }
        return subprocess.run(
            ["bash", "-e", "-c", script],
            env=environment, cwd=self._stack.state, check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def _value(self, word: str, script: str) -> str:
        info = self._stack.info
        match word:
            case "JOB_ID":
                return self._job()
            case "EXECUTION_ID" if "cancel" in script:
                return self._running_run()
            case "EXECUTION_ID":
                return self._dead_run()
            case "KEY_ID":
                made = self._user.call("POST", "/v1/keys", {"name": "old", "scopes": ["read"]}, 201)
                return str(made["keyId"])
            case "POOL":
                return "lambda"
            case "NEW":
                return "lambda"
            case "WATCHER" | "FUNCTION":
                return info.functions["watcher"]
            case "QUEUE":
                return info.pools["default"].queue_url
            case "TABLE":
                return self._table()
            case "RULE":
                rules = self._stack.client("events").list_rules()["Rules"]
                return str(rules[0]["Name"])
            case "ARN":
                return str(self._queue_arn())
        raise AssertionError(word)

    def _job(self) -> str:
        later = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0).isoformat()
        return str(
            self._user.create(
                type="INTERVAL", schedule="P1D", startAt=later, labels={"team": "etl"},
                target={"handler": "hello"},
            )["jobId"]
        )  # fmt: skip

    def _dead_run(self) -> str:
        """A run whose script does not exist."""
        job = self._user.create(type="MANUAL", target={"handler": secrets.token_hex(4)})
        self._user.call("POST", f"/v1/jobs/{job['jobId']}/run", {}, 201)
        [run] = self._user.ended(job)
        assert run["state"] == "DEAD", run
        return str(run["executionId"])

    def _running_run(self) -> str:
        sleep = "import time; time.sleep(20)"
        self._stack.put_script("default", "sleeps", sleep, tenant=self._tenant)
        job = self._user.create(type="MANUAL", target={"handler": "sleeps"})
        run = self._user.call("POST", f"/v1/jobs/{job['jobId']}/run", {}, 201)
        return str(run["executionId"])

    def _table(self) -> str:
        name = f"restored-{secrets.token_hex(4)}"
        self._stack.client("dynamodb").create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        return name

    def _queue_arn(self) -> object:
        return self._stack.client("sqs").get_queue_attributes(
            QueueUrl=self._stack.info.pools["lambda"].queue_url, AttributeNames=["QueueArn"]
        )["Attributes"]["QueueArn"]


_WORDS = frozenset(
    {"JOB_ID", "EXECUTION_ID", "KEY_ID", "POOL", "NEW", "WATCHER", "FUNCTION", "QUEUE", "TABLE"}
    | {"RULE", "ARN"}
)


@pytest.fixture
def operator(stack: Stack, scratch: Path, tmp_path: Path) -> Iterator[Operator]:
    tenant = f"runbook-{secrets.token_hex(4)}"
    store = DynamoDbKeyStore(stack.client("dynamodb"), table=stack.outputs()["KeysTable"])
    key = ManageKeys(store).create(
        tenant, key_id=new_key_id(), name="e2e", scopes=[Scope.ADMIN], now=datetime.now(UTC),
        life=timedelta(hours=1),
    )  # fmt: skip
    assert isinstance(key, Minted)
    aws = tmp_path / "aws"
    aws.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.infra.aws_cli "$@"\n')
    aws.chmod(0o755)
    with stack.api_with(key.text) as http:
        try:
            yield Operator(stack, User(stack, http, scratch), tenant, key, tmp_path)
        finally:
            watcher = stack.info.functions["watcher"]
            stack.client("lambda").delete_function_concurrency(FunctionName=watcher)


def test_the_commands_of_the_runbook_work(operator: Operator) -> None:
    failed = []
    for command in _commands():
        done = operator.carry_out(command)
        if done.returncode != 0:
            failed.append(f"{command}\n  {done.stdout[-300:]}{done.stderr[-600:]}")

    assert not failed, "\n".join(failed)
