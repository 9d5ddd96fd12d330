"""A synthesis warns of settings for tenants that no caller has."""

from __future__ import annotations

import json
from pathlib import Path

from tests.infra.conftest import synthesize


def test_a_mistyped_tenant_is_a_warning(tmp_path: Path) -> None:
    """Its quotas would be the default ones."""
    quotas = {"tenants": {"etll": {"jobs": 1}, "etl": {"jobs": 1}}}
    iam = {"auth": "iam", "iam": [{"role": "team", "tenant": "etl"}]}

    *_, template = synthesize(tmp_path, {"quotas": quotas} | iam)

    said = json.loads(template.with_name("Nextfire.metadata.json").read_text()).values()
    warnings = [each["data"] for one in said for each in one if each["type"] == "aws:cdk:warning"]
    assert any("No caller has these tenants" in each and ": etll. " in each for each in warnings)
