"""Which scripts, outputs, secrets and job roles executors reach by the policy of their pool."""

import pytest

from nextfire.adapters.scripts.job_role import SESSION_TAGS
from tests.infra.conftest import Template
from tests.infra.policies import Policies
from tests.infra.pool_access.conftest import JOB_ROLE, POOLS, ROLES, arn

ACCOUNT = "<AWS::Region>:<AWS::AccountId>"
REACHES = {
    "s3:GetObject": ("ScriptsBucket", "/{}acme/report.py"),
    "s3:GetObjectVersion": ("ScriptsBucket", "/{}acme/report.py"),
    "s3:PutObject": ("OutputsBucket", "/{}acme/report/run/log"),
    "secretsmanager:GetSecretValue": (
        None,
        f"arn:<AWS::Partition>:secretsmanager:{ACCOUNT}:secret:nextfire/{{}}acme/db-AbCdEf",
    ),
    "ssm:GetParameter": (
        None,
        f"arn:<AWS::Partition>:ssm:{ACCOUNT}:parameter/nextfire/{{}}acme/db/url",
    ),
}


def reaches(template: Template, pool: str, action: str, place: str) -> bool:
    output, form = REACHES[action]
    text = form.format(place)
    resource = text if output is None else arn(template, output, text)
    return Policies(template, ROLES[pool]).allow(action, resource, {})


@pytest.mark.parametrize("action", REACHES)
@pytest.mark.parametrize("pool", POOLS)
def test_executors_reach_their_own_pool_only(pools: Template, pool: str, action: str) -> None:
    [other] = {*POOLS} - {pool}

    assert reaches(pools, pool, action, f"pools/{pool}/")
    for place in (
        f"pools/{other}/",
        f"pools/{other}/pools/{pool}/",
        "",
        f"{pool}/",
        f"acme/{pool}/",
        f"acme/pools/{pool}/",
    ):
        assert not reaches(pools, pool, action, place), place


@pytest.mark.parametrize("output", ["ScriptsBucket", "OutputsBucket"])
@pytest.mark.parametrize("pool", POOLS)
def test_executors_list_their_own_pool_only(pools: Template, pool: str, output: str) -> None:
    [other] = {*POOLS} - {pool}
    policies = Policies(pools, ROLES[pool])

    def lists(**keys: str) -> bool:
        context = {"s3:prefix": keys["prefix"]} if keys else {}
        return policies.allow("s3:ListBucket", arn(pools, output), context)

    assert lists(prefix=f"pools/{pool}/acme/")
    assert not lists(prefix=f"pools/{other}/acme/")
    assert not lists(prefix="")
    assert not lists()


TAGS: dict[str, str | list[str]] = {
    "aws:RequestTag/pool": "default",
    "aws:TagKeys": [*SESSION_TAGS],
    "sts:TransitiveTagKeys": [*SESSION_TAGS],
}


@pytest.mark.parametrize("action", ["sts:AssumeRole", "sts:TagSession"])
def test_a_session_in_the_job_role_has_the_tag_of_its_pool(pools: Template, action: str) -> None:
    def may(pool: str, **tags: str | list[str]) -> bool:
        context = TAGS | {name.replace("_", ":", 1): value for name, value in tags.items()}
        return Policies(pools, ROLES[pool]).allow(action, JOB_ROLE, context)

    assert may("default")
    assert not may("batch")  # two pools share a job role
    assert not may("default", aws_TagKeys=[*SESSION_TAGS, "admin"])
    assert not may("default", sts_TransitiveTagKeys=["admin"])
    assert not Policies(pools, ROLES["default"]).allow(action, JOB_ROLE, {})


@pytest.mark.parametrize("action", ["sts:AssumeRole", "sts:TagSession"])
def test_other_roles_are_denied_even_if_they_trust_the_executor(
    pools: Template, action: str
) -> None:
    other = "arn:aws:iam::123456789012:role/former"

    for role in ROLES.values():
        assert Policies(pools, role).deny(action, other, TAGS), role


@pytest.mark.parametrize("action", REACHES)
@pytest.mark.parametrize("pool", POOLS)
def test_during_the_update_executors_have_what_they_had(
    wide: Template, pool: str, action: str
) -> None:
    for place in ("", "pools/default/", "pools/batch/"):
        assert reaches(wide, pool, action, place)
    assert Policies(wide, ROLES[pool]).allow("sts:AssumeRole", JOB_ROLE, {})
    assert Policies(wide, ROLES[pool]).allow(
        "dynamodb:PutItem",
        arn(wide, "RunsTable"),
        {"dynamodb:Attributes": ["payload"], "dynamodb:LeadingKeys": ["acme/report"]},
    )
