"""Region, endpoint, proxy and trusted certificates, from the same environment variables as boto3.

botocore resolves values that the environment does not set, and is imported only then.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nextfire.dataclass import dataclass

if TYPE_CHECKING:
    from ssl import SSLContext

_PARTITIONS = (
    (re.compile(r"us-gov-\w+-\d+"), "amazonaws.com"),
    (re.compile(r"cn-\w+-\d+"), "amazonaws.com.cn"),
    (re.compile(r"(us|eu|ap|sa|ca|me|af|il|mx)-\w+-\d+"), "amazonaws.com"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """The region and the endpoint of a service. `endpoint`: a URL without a path."""

    region: str
    endpoint: str


def service_endpoint(service: str) -> Place:
    """The region and endpoint of *service* (``dynamodb`` or ``sqs``).

    Raises:
        ValueError: The region is unknown, or the endpoint is not the URL of a host.
    """
    region = configured_region() or _region_of_botocore()
    endpoint = _configured(service) or _of_partition(service, region)
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise ValueError(
            f"Invalid endpoint {endpoint!r} of {service}: use a URL without a path, for example "
            "AWS_ENDPOINT_URL=https://dynamodb.eu-central-1.amazonaws.com"
        )
    return Place(region, f"{parts.scheme}://{parts.netloc}")


def configured_region() -> str | None:
    """The region that the environment sets. boto3 alone reads only AWS_DEFAULT_REGION, so it takes
    precedence.
    """
    return os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or None


def _configured(service: str) -> str | None:
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    names = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _of_partition(service: str, region: str) -> str:
    variants = ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT")
    chosen = any(os.environ.get(name, "").lower() == "true" for name in variants)
    # A profile can set endpoint_url, use_fips_endpoint and use_dualstack_endpoint.
    if not chosen and not _profiles_mention(b"endpoint"):
        for pattern, suffix in _PARTITIONS:
            if pattern.fullmatch(region):
                return f"https://{service}.{region}.{suffix}"
    return _endpoint_of_botocore(service, region)


def _endpoint_of_botocore(service: str, region: str) -> str:
    from botocore.session import Session  # noqa: PLC0415 - the import takes a second

    return str(Session().create_client(service, region_name=region).meta.endpoint_url)


def _region_of_botocore() -> str:
    """The region of the profile, from botocore."""
    from botocore.session import Session  # noqa: PLC0415 - the import takes a second

    region = Session().get_config_variable("region")
    if not region:
        raise ValueError("No AWS region: set AWS_REGION, for example AWS_REGION=eu-central-1")
    return str(region)


def proxy_for(endpoint: str) -> str | None:
    """The URL of the proxy for *endpoint*; None for a direct connection."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - the import takes 20 ms

    parts = urlsplit(endpoint)
    found = getproxies().get(parts.scheme)  # boto3 ignores ALL_PROXY, too
    if not found or proxy_bypass(parts.netloc):
        return None
    return found if "://" in found else f"http://{found.removeprefix('//')}"


def tls_context() -> SSLContext:
    """The TLS context with the certificates that boto3 trusts.

    The first that exists of: AWS_CA_BUNDLE, the profile's `ca_bundle`, REQUESTS_CA_BUNDLE,
    certifi's bundle, botocore's copy of it.
    """
    bundle = os.environ.get("AWS_CA_BUNDLE") or _bundle_of_profile()
    return _tls_context(bundle or os.environ.get("REQUESTS_CA_BUNDLE") or _bundle())


@cache
def _tls_context(bundle: str | None) -> SSLContext:
    """Cached, shared by all clients: reading the certificates takes 20 ms."""
    import ssl  # noqa: PLC0415 - not for plain HTTP

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if bundle is None:
        context.load_default_certs()
    elif Path(bundle).is_dir():
        context.load_verify_locations(capath=bundle)
    else:
        context.load_verify_locations(cafile=bundle)
    return context


def _bundle_of_profile() -> str | None:
    if not _profiles_mention(b"ca_bundle"):
        return None
    from botocore.session import Session  # noqa: PLC0415 - the import takes a second

    found = Session().get_config_variable("ca_bundle")
    return str(found) if found else None


def _profiles_mention(setting: bytes) -> bool:
    config = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    try:
        return setting in config.read_bytes()
    except OSError:  # absent, or the file of another user, which botocore ignores too
        return False


def _bundle() -> str | None:
    for package in ("certifi", "botocore"):
        # The package is located, not imported.
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (bundle := Path(folder, "cacert.pem")).is_file():
                return str(bundle)
    return None
