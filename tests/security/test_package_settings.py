"""Where the credentials of a package index are stored, and where they must not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from pydantic import ValidationError

from infra.pool_settings import PoolSettings
from infra.settings import Settings
from nextfire.adapters.aws.clients import secretsmanager, ssm
from nextfire.adapters.packages.index_secret import IndexSecret
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.settings import ExecutorSettings
from tests.infra.conftest import synthesize

PASSWORD = "pa55-of-the-index-b41c"
INDEX = "https://packages.example.com/simple"
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:packages/reader-AbCd12"
PARAMETER = "arn:aws:ssm:eu-central-1:123456789012:parameter/packages/reader"
SIGNER = "ed25519:" + "A" * 43 + "="


def pool(**more: object) -> dict[str, object]:
    return {"executor": "worker", "packageIndex": INDEX, **more}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"packageIndex": f"https://reader:{PASSWORD}@packages.example.com/simple"}, "credentials"),
        ({"packageIndex": f"https://packages.example.com/simple?key={PASSWORD}"}, "credentials"),
        ({"packageIndex": "http://packages.example.com/simple"}, "https://"),
        ({"packageIndexSecret": PASSWORD}, "full ARN of a secret"),
        ({"packageIndexSecret": SECRET.removesuffix("-AbCd12")}, "suffix of six characters"),
        (
            {"packageIndexSecret": SECRET.replace("packages/", "nextfire/acme/")},
            "jobs could read it",
        ),
        ({"packageIndexSecret": PARAMETER.replace("packages/", "nextfire/")}, "jobs could read it"),
        ({"packageIndexSecret": SECRET + "*"}, "full ARN"),
        ({"packageIndex": None, "packageIndexSecret": SECRET}, "requires packageIndex"),
        ({"trustedSigners": ["ed25519:abc"]}, "should match pattern"),
        ({"packagePolicy": {"allow": ["a b"]}}, "should match pattern"),
        ({"packagePolicy": {"allow": ["-r x"]}}, "should match pattern"),
    ],
)
def test_settings_that_would_leak_or_weaken_are_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem) as refusal:
        Settings.from_context({"pools": {"p": pool(**settings)}})

    assert PASSWORD not in str(refusal.value)


def test_an_executor_refuses_an_index_with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"https://reader:{PASSWORD}@packages.example.com/simple"
    monkeypatch.setenv("NEXTFIRE_PACKAGE_INDEX", url)

    with pytest.raises(ValidationError, match="packageIndexSecret to its ARN") as refusal:
        ExecutorSettings.read()

    assert PASSWORD not in str(refusal.value)


def test_the_template_names_the_secret_and_grants_it_to_the_executor_of_that_pool_alone(
    tmp_path: Path,
) -> None:
    fargate = {"image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/worker:1"}
    policy = {"requireHashes": True, "allow": ["httpx"]}
    pools = {
        "default": {"executor": "lambda"},
        "private": pool(
            packageIndexSecret=SECRET,
            packagePolicy=policy,
            trustedSigners=[SIGNER],
            fargate=fargate,
        ),
    }
    _, _, template, _ = synthesize(tmp_path, {"pools": pools})

    granted = {
        name: statement
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::IAM::Policy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        if SECRET in json.dumps(statement)
    }
    [(name, statement)] = granted.items()
    assert name.startswith("WorkerPrivate")
    # The other resource is the prefix of scripts' own secrets.
    resources = [each for each in statement["Resource"] if isinstance(each, str)]
    assert (statement["Action"], resources) == ("secretsmanager:GetSecretValue", [SECRET])
    [variables] = [
        {each["Name"]: each["Value"] for each in container["Environment"]}
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::ECS::TaskDefinition"
        for container in resource["Properties"]["ContainerDefinitions"]
    ]
    assert variables["NEXTFIRE_PACKAGE_INDEX"] == INDEX
    assert variables["NEXTFIRE_PACKAGE_INDEX_SECRET"] == SECRET, "a reference, not a credential"
    assert json.loads(variables["NEXTFIRE_PACKAGE_POLICY"]) == policy | {
        "builds": False,
        "urls": False,
    }
    assert json.loads(variables["NEXTFIRE_TRUSTED_SIGNERS"]) == [SIGNER]
    for name, known in _known_pools(template):
        assert known.get("signed", False) is (name == "private")


def _known_pools(template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the functions know of each pool."""
    for resource in template["Resources"].values():
        environment = resource.get("Properties", {}).get("Environment", {})
        if resource["Type"] == "AWS::Lambda::Function" and "NEXTFIRE_POOLS" in str(environment):
            parts = environment["Variables"]["NEXTFIRE_POOLS"]["Fn::Join"][1]
            yield from json.loads(
                "".join(filter(lambda part: isinstance(part, str), parts))
            ).items()


def test_a_pool_without_signatures_has_no_library_for_them_in_its_layer() -> None:
    plain = Settings.from_context({"pools": {"p": pool()}})
    signed = Settings.from_context({"pools": {"p": pool(trustedSigners=[SIGNER])}})

    assert (plain.signatures, signed.signatures) == (False, True)


def test_the_policy_of_a_pool_is_what_its_executor_reads() -> None:
    given = PoolSettings(
        executor="worker", packagePolicy={"allow": ["a"], "requireHashes": True}
    ).package_policy_json
    read = ExecutorSettings.model_validate(
        {**dict.fromkeys(ExecutorSettings.model_fields, "1"), "package_policy": given}
        | {"lease": "PT1M", "packages": "inline", "package_index": INDEX, "trusted_signers": "[]"}
        | {"output_cap": "1024", "log_cap": "2048", "script_memory": "64"}
        | {"egress": "open", "metadata": "closed", "visible_folders": "/srv"}
        | {"isolation": "process", "targets": "scripts", "quotas": "{}"}
        | {"run_retention": "{}", "script_start": "fork", "tenants": '["acme"]'}
    ).package_policy

    assert (read.allow, read.require_hashes, read.builds) == (("a",), True, False)


# Reading credentials


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield secretsmanager()


@pytest.mark.parametrize(
    "text",
    [
        f"reader:{PASSWORD}",
        f"reader:{PASSWORD}\n",
        json.dumps({"username": "reader", "password": PASSWORD}),
    ],
)
def test_both_forms_of_a_secret_are_read(secrets: Any, text: str) -> None:
    arn = secrets.create_secret(Name="packages/reader", SecretString=text)["ARN"]

    assert IndexSecret(arn, secrets, ssm())() == f"reader:{PASSWORD}"


def test_a_parameter_is_read_decrypted(secrets: Any) -> None:
    client = ssm()
    client.put_parameter(Name="/packages/reader", Value=f"reader:{PASSWORD}", Type="SecureString")

    assert IndexSecret(PARAMETER, secrets, client)() == f"reader:{PASSWORD}"


@pytest.mark.parametrize("text", [PASSWORD, f'{{"password": "{PASSWORD}"}}', f"a:{PASSWORD}\x00"])
def test_a_secret_that_holds_no_credentials_is_not_quoted(secrets: Any, text: str) -> None:
    arn = secrets.create_secret(Name="packages/reader", SecretString=text)["ARN"]

    with pytest.raises(InvalidInputError, match="does not hold credentials") as refusal:
        IndexSecret(arn, secrets, ssm())()

    assert PASSWORD not in str(refusal.value)


def test_a_secret_that_is_not_there_is_not_found(secrets: Any) -> None:
    with pytest.raises(NotFoundError, match="Secret of the package index"):
        IndexSecret(SECRET, secrets, ssm())()


def test_a_rotated_secret_is_read_again_after_a_minute(
    secrets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("nextfire.adapters.packages.index_secret.time.monotonic", lambda: now)
    arn = secrets.create_secret(Name="packages/reader", SecretString="a:old")["ARN"]
    read = IndexSecret(arn, secrets, ssm())
    assert read() == "a:old"
    secrets.put_secret_value(SecretId=arn, SecretString="a:new")

    now += 59
    assert read() == "a:old", "read at most once a minute"
    now += 1
    assert read() == "a:new"
