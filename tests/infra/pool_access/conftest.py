"""The template of a stack with two pools, and the roles of their executors."""

import pytest

from tests.infra.conftest import Template, synthesize

JOB_ROLE = "arn:aws:iam::123456789012:role/scripts"
POOLS = {
    "default": {"executor": "lambda", "jobRole": JOB_ROLE},
    "batch": {"executor": "worker", "jobRole": JOB_ROLE},
}
ROLES = {"default": "ExecutorRoleArnDefault", "batch": "WorkerRoleArnBatch"}


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return synthesize(tmp_path_factory.mktemp("pools"), {"pools": POOLS})[2]


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Template:
    context = {"pools": POOLS, "poolAccess": "all"}
    return synthesize(tmp_path_factory.mktemp("wide"), context)[2]


def arn(template: Template, output: str, path: str = "") -> str:
    return f"<{template['Outputs'][output]['Value']['Ref']}.Arn>{path}"
