"""`nextfire worker` finds its pool and reports what is missing. tests/e2e runs actual workers."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from functions.worker import supervisor
from nextfire_cli.aws import Account
from nextfire_cli.errors import CliError
from nextfire_cli.main import app
from nextfire_cli.worker import environment as worker_environment
from tests.local_stack import pretend_stack

ROOT = Path(__file__).resolve().parents[3]
OUTPUTS = {
    "Pools": json.dumps({"default": "lambda", "batch-etl": "worker"}),
    "WorkerRoleArnBatchEtl": "arn:aws:iam::123456789012:role/worker",
    "WorkerEnvironmentBatchEtl": json.dumps(
        {"NEXTFIRE_POOL": "batch-etl", "NEXTFIRE_SLOTS": "4", "NEXTFIRE_QUEUE_URL": "https://q"}
    ),
}

Call = Callable[..., Result]


class Deployment:
    """An account with a deployed stack, reduced to what the command needs."""

    def __init__(self) -> None:
        self.stack: str | None = None
        self.role: tuple[str, str] | None = None

    def outputs(self, stack: str) -> dict[str, str]:
        self.stack = stack
        return OUTPUTS

    def environment(self) -> dict[str, str]:
        return {"AWS_REGION": "eu-central-1"}

    def act_as(self, role: str, session_name: str) -> None:
        self.role = (role, session_name)


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    found = Deployment()
    monkeypatch.setattr(Account, "of_caller", lambda *_: found)
    return found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments of the workers that ran."""
    environments: list[dict[str, str]] = []
    environment: Any = {}
    monkeypatch.setattr(os, "environ", environment)

    def serve() -> int:
        environments.append(dict(environment))
        return 0

    monkeypatch.setattr(supervisor, "main", serve)
    return environments


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["worker", *arguments])


def test_worker_gets_the_environment_of_its_stack_and_assumes_its_role(
    deployment: Deployment, served: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    result = call("--stack", "Nextfire", "--pool", "batch-etl", "--concurrency", "7")

    assert result.exit_code == 0, result.output
    [environment] = served
    assert environment["NEXTFIRE_POOL"] == "batch-etl"
    assert environment["NEXTFIRE_SLOTS"] == "7"
    assert environment["AWS_REGION"] == "eu-central-1"
    assert environment["POWERTOOLS_SERVICE_NAME"] == "worker"
    assert deployment.stack == "Nextfire"
    assert deployment.role == ("arn:aws:iam::123456789012:role/worker", "worker-batch-etl")


def test_concurrency_is_the_pools_by_default(
    deployment: Deployment, served: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    call("--stack", "Other", "--pool", "batch-etl")

    assert [environment["NEXTFIRE_SLOTS"] for environment in served] == ["4"]
    assert deployment.stack == "Other"


@pytest.mark.parametrize(
    ("pool", "problem"),
    [("default", "'default' is served by Lambda"), ("betch-etl", "no pool 'betch-etl'")],
)
@pytest.mark.usefixtures("deployment")
def test_pool_without_workers_is_refused_with_those_that_have_some(
    pool: str, problem: str, served: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    result = call("--stack", "Nextfire", "--pool", pool)

    assert result.exit_code == 1
    assert problem in result.stderr
    assert "pools of workers: batch-etl" in result.stderr
    assert served == []


@pytest.mark.usefixtures("deployment", "served")
def test_worker_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise SystemExit("This machine's clock is 9 s ahead")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(supervisor, "main", fail)

    result = call("--stack", "Nextfire", "--pool", "batch-etl")

    assert result.exit_code == 1
    assert "Error: This machine's clock is 9 s ahead" in result.stderr


def test_without_local_stack_a_deployed_one_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "app.py").touch()
    monkeypatch.chdir(tmp_path)

    result = call()

    assert result.exit_code == 1
    assert "--stack Nextfire" in result.stderr


def test_outside_of_a_checkout_there_is_no_worker_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = call("--stack", "Nextfire")

    assert result.exit_code == 1
    assert "not in a checkout" in result.stderr
    assert "docs/operate/deploy.md" in result.stderr


def test_pool_whose_runs_have_a_task_each_is_not_served_from_here() -> None:
    outputs = {
        "Pools": json.dumps({"sealed": "worker"}),
        "WorkerEnvironmentSealed": json.dumps({"NEXTFIRE_ISOLATION": "task"}),
    }

    with pytest.raises(CliError, match='"isolation": "task"'):
        worker_environment(outputs, "sealed", None)


def test_another_stack_has_no_pools() -> None:
    """Such as one whose name was typed wrong."""
    with pytest.raises(CliError, match="no pool 'default'"):
        worker_environment({"BucketName": "cdk"}, "default", None)


def test_the_embedded_stack_has_its_own_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_stack(tmp_path)
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "app.py").touch()
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(app, ["worker"], env={"NEXTFIRE_ENDPOINT": None})

    assert result.exit_code == 1
    assert "The embedded stack serves its pools itself." in result.stderr
    assert "nextfire up --workers 4" in result.stderr
