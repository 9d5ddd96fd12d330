"""The setting `tenants` of a pool, and where the template has it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.pool_settings import PoolSettings
from nextfire.settings import DeployedPool, ExecutorSettings
from tests.infra.conftest import synthesize


@pytest.mark.parametrize("tenants", [[], [""], ["a/b"], ["a#b"], ["x" * 65], ["a"] * 17])
def test_an_invalid_list_is_refused(tenants: list[str]) -> None:
    """With an empty list, it would be unclear whether the pool is closed."""
    with pytest.raises(ValidationError, match="tenants"):
        PoolSettings.model_validate({"executor": "worker", "tenants": tenants})


def test_the_api_and_the_executors_of_the_pool_have_the_list(tmp_path: Path) -> None:
    pools = {
        "default": {"executor": "lambda"},
        "acme": {"executor": "lambda", "tenants": ["acme", 'a"b']},
        "workers": {"executor": "worker", "tenants": ["acme"]},
        "calls": {"executor": "lambda", "targets": "calls", "tenants": ["acme"]},
    }
    _, _, template, _ = synthesize(tmp_path, {"pools": pools})

    environments = [
        resource["Properties"]["Environment"]["Variables"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function" and "Environment" in resource["Properties"]
    ]
    read = {each["NEXTFIRE_POOL"]: _tenants(each) for each in environments if _is_executor(each)}
    assert read == {"default": None, "acme": {"acme", 'a"b'}, "calls": {"acme"}}
    worker = json.loads(_text(template["Outputs"]["WorkerEnvironmentWorkers"]["Value"]))
    assert _tenants(worker) == frozenset({"acme"})
    [deployed] = [_text(each["NEXTFIRE_POOLS"]) for each in environments if _is_api(each)]
    known = {
        name: DeployedPool.model_validate(pool).tenants
        for name, pool in json.loads(deployed).items()
    }
    assert known == read | {"workers": {"acme"}}


def _is_executor(environment: dict[str, Any]) -> bool:
    return "NEXTFIRE_POOL" in environment


def _is_api(environment: dict[str, Any]) -> bool:
    return "NEXTFIRE_POOLS" in environment and "NEXTFIRE_KEYS_TABLE" in environment


def _tenants(environment: dict[str, Any]) -> frozenset[str] | None:
    """The tenants as the executor reads them from *environment*."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, _text(value))
        return ExecutorSettings.read().tenants


def _text(value: Any) -> str:
    """A value of the template, with each reference as a word."""
    if isinstance(value, str):
        return value
    if "Fn::Join" not in value:
        return "x"
    return "".join(part if isinstance(part, str) else "x" for part in value["Fn::Join"][1])
