"""How the lean client finds AWS endpoints, proxies and certificates, compared with botocore."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from botocore.httpsession import ProxyConfiguration  # noqa: TID251 - the reference
from botocore.session import Session  # noqa: TID251 - the reference
from botocore.utils import get_environ_proxies  # noqa: TID251 - the reference

from nextfire.adapters.aws.lean import environment
from nextfire.adapters.aws.lean.credentials import BotocoreCredentials, credentials_source
from nextfire.adapters.aws.lean.environment import Place, proxy_for, service_endpoint, tls_context
from nextfire.adapters.aws.lean.signing import Credentials

LOCAL = "http://127.0.0.1:4566"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):  # noqa: TID251 - to clear it
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")


@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
@pytest.mark.parametrize(
    "region", ["eu-central-1", "us-gov-west-1", "cn-north-1", "us-iso-east-1", "eusc-de-east-1"]
)
def test_endpoint_is_that_of_botocore(
    monkeypatch: pytest.MonkeyPatch, service: str, region: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    client = Session().create_client(service)

    assert service_endpoint(service) == Place(region, client.meta.endpoint_url)


@pytest.mark.parametrize("region", ["eu-central-1", "us-gov-west-1", "cn-north-1"])
def test_usual_partitions_need_no_botocore(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    monkeypatch.setenv("AWS_REGION", region)
    monkeypatch.setitem(sys.modules, "botocore.session", None)

    assert service_endpoint("sqs").endpoint.startswith(f"https://sqs.{region}.amazonaws.com")


def test_endpoints_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", LOCAL + "/")
    assert service_endpoint("sqs").endpoint == LOCAL

    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1")
    assert service_endpoint("sqs").endpoint == "http://127.0.0.1:1"
    assert service_endpoint("dynamodb").endpoint == LOCAL

    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert service_endpoint("sqs").endpoint == "https://sqs.eu-central-1.amazonaws.com"


@pytest.mark.parametrize("service", ["dynamodb", "sqs"])
@pytest.mark.parametrize(
    "settings",
    [
        "use_fips_endpoint = true",
        "use_dualstack_endpoint = true",
        f"endpoint_url = {LOCAL}",
        f"services = s\n[services s]\nsqs =\n  endpoint_url = {LOCAL}",
        f"ignore_configured_endpoint_urls = true\nendpoint_url = {LOCAL}",
    ],
)
def test_endpoint_of_the_profile_is_that_of_botocore(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str, service: str
) -> None:
    config = tmp_path / "config"
    config.write_text(f"[default]\nregion = us-east-1\n{settings}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    client = Session().create_client(service)

    assert service_endpoint(service) == Place("us-east-1", client.meta.endpoint_url)


def test_a_configuration_that_may_not_be_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for botocore: such as root's, for a worker that another user runs with root's HOME."""
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    def denied(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)
    monkeypatch.setattr(Path, "read_bytes", denied)

    assert service_endpoint("sqs").endpoint == "https://sqs.eu-central-1.amazonaws.com"


def test_an_endpoint_of_the_environment_goes_before_that_of_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_ENDPOINT_URL", LOCAL)

    assert Session().create_client("sqs").meta.endpoint_url == LOCAL
    assert service_endpoint("sqs").endpoint == LOCAL


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4566", "ftp://127.0.0.1", "http://host/path"])
def test_an_endpoint_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    with pytest.raises(ValueError, match="Invalid endpoint"):
        service_endpoint("sqs")


def test_no_region_is_refused() -> None:
    with pytest.raises(ValueError, match="AWS_REGION=eu-central-1"):
        service_endpoint("sqs")


def test_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = "https://sqs.eu-central-1.amazonaws.com"
    assert proxy_for(endpoint) is None

    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert proxy_for(endpoint) == "http://proxy:3128"
    assert proxy_for(LOCAL) is None

    monkeypatch.setenv("NO_PROXY", ".amazonaws.com")
    assert proxy_for(endpoint) is None


@pytest.mark.parametrize("endpoint", ["https://sqs.eu-central-1.amazonaws.com", LOCAL])
@pytest.mark.parametrize(
    "settings",
    [
        {"HTTPS_PROXY": "proxy:3128"},
        {"https_proxy": "http://one:1", "HTTPS_PROXY": "http://two:2"},
        {"ALL_PROXY": "http://proxy:3128"},
        {"HTTP_PROXY": "//proxy:3128"},
        *(
            {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1", "NO_PROXY": without}
            for without in ("*", "amazonaws.com", "sqs.eu-central-1", "127.0.0.1", "127.0.0.1:4566")
        ),
    ],
    ids=str,
)
def test_proxy_is_that_of_botocore(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], endpoint: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    found = ProxyConfiguration(get_environ_proxies(endpoint)).proxy_url_for(endpoint)
    assert proxy_for(endpoint) == found


def test_certificates_are_those_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls_context() is tls_context(), "the context is created once"
    assert tls_context().get_ca_certs()

    monkeypatch.setenv("AWS_CA_BUNDLE", "/nonexistent.pem")
    with pytest.raises(FileNotFoundError):
        tls_context()


def test_a_bundle_is_found_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)

    assert environment._bundle() is None  # noqa: SLF001


def test_credentials_of_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(credentials_source(), BotocoreCredentials)

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert credentials_source().get() == Credentials("a", "s", "t")
