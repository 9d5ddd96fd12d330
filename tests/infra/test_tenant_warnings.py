"""A synthesis warns of settings for tenants that no caller has."""

from __future__ import annotations

from pathlib import Path

from aws_cdk.assertions import Annotations, Match

from tests.infra.conftest import synthesize


def test_a_mistyped_tenant_is_a_warning(tmp_path: Path) -> None:
    """Its quotas would be the default ones."""
    quotas = {"tenants": {"etll": {"jobs": 1}, "etl": {"jobs": 1}}}
    iam = {"auth": "iam", "iam": [{"role": "team", "tenant": "etl"}]}

    _, stack, _, _ = synthesize(tmp_path, {"quotas": quotas} | iam)

    said = Match.string_like_regexp("No caller has these tenants of .*: etll[.]")
    assert Annotations.from_stack(stack).find_warning("*", said)
