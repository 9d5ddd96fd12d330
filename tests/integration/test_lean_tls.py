"""TLS and proxies: what both clients accept and reject, and the errors of the lean client."""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.lean.environment import tls_context
from nextfire.domain.errors import UnavailableError
from tests.integration.certificates import Authority
from tests.integration.faulty_server import LOST, Answer, FaultyServer, faulty_server
from tests.integration.one_read import FOUND, ITEM, get
from tests.integration.tunnel import Tunnel, tunnel

LAST = Answer(FOUND.body, headers=FOUND.headers, keep=False)
ANNOUNCED = Answer(FOUND.body, headers={**FOUND.headers, "Connection": "close"})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(
    server: FaultyServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> FaultyServer:
    """Serves https://localhost with a valid certificate that is not trusted yet."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.tls = authority.server_context("localhost")
    server.script = [FOUND]
    monkeypatch.setenv("AWS_ENDPOINT_URL", at("localhost", server))
    return server


@pytest.fixture
def trusted(
    secure: FaultyServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> FaultyServer:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    return secure


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tunnel]:
    with tunnel() as found:
        monkeypatch.setenv("HTTPS_PROXY", found.address)
        yield found


def at(host: str, server: FaultyServer) -> str:
    return f"https://{host}:{server.address.rpartition(':')[2]}"


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_of_the_bundle_is_accepted(
    secure: FaultyServer, authority: Authority, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(authority.bundle))

    assert get(clients.dynamodb()) == ITEM
    assert len(secure.requests) == 1


@pytest.mark.usefixtures("client", "secure")
def test_the_bundle_of_the_profile_is_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f"[default]\nca_bundle = {authority.bundle}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    assert get(clients.dynamodb()) == ITEM


@pytest.mark.usefixtures("client")
def test_the_bundle_of_aws_goes_before_that_of_requests(
    trusted: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent.pem")

    assert get(clients.dynamodb()) == ITEM
    assert len(trusted.requests) == 1


REFUSALS = {
    "another host's": "localhost",
    "expired": "has expired",
    "of an unknown authority": "unable to get local issuer",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_certificate_that_is_not_valid_ends_the_call_before_its_request(
    trusted: FaultyServer,
    client: str,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    if case == "another host's":
        trusted.tls = authority.server_context("other.example")
    elif case == "expired":
        trusted.tls = authority.server_context("localhost", valid_for=timedelta(days=-1))
    else:
        monkeypatch.delenv("AWS_CA_BUNDLE")

    with caplog.at_level(logging.WARNING), pytest.raises(UnavailableError) as raised:
        get(clients.dynamodb())

    assert trusted.requests == []
    assert REFUSALS[case] in caplog.text
    if client == "lean":
        assert "UntrustedCertificateError" in str(raised.value)
        assert "AWS_CA_BUNDLE" in caplog.text
        assert len(trusted.connections) == 1, "the client does not retry"


@pytest.mark.usefixtures("client")
def test_an_address_in_the_certificate_is_accepted(
    trusted: FaultyServer, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted.tls = authority.server_context("127.0.0.1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", at("127.0.0.1", trusted))

    assert get(clients.dynamodb()) == ITEM


@pytest.mark.usefixtures("client")
def test_a_server_of_tls_1_1_is_refused(trusted: FaultyServer) -> None:
    assert trusted.tls
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        trusted.tls.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        trusted.tls.maximum_version = ssl.TLSVersion.TLSv1_1
    trusted.tls.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises(UnavailableError):
        get(clients.dynamodb())

    assert trusted.requests == []


@pytest.mark.usefixtures("trusted")
def test_the_minimum_is_tls_1_2() -> None:
    assert tls_context().minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize(
    ("script", "connections"),
    [([LAST, FOUND], [1, 2]), ([FOUND, LOST, FOUND], [1, 1, 2]), ([ANNOUNCED, FOUND], [1, 2])],
    ids=["after the response", "after the next request", "as it announces"],
)
def test_a_kept_connection_that_the_server_ends_costs_no_attempt(
    trusted: FaultyServer, script: list[Answer | None], connections: list[int]
) -> None:
    trusted.script = list(script)
    database = clients.dynamodb_fail_fast()  # one attempt

    assert get(database) == ITEM
    assert get(database) == ITEM
    assert [request.connection for request in trusted.requests] == connections


@pytest.mark.usefixtures("lean")
def test_a_new_connection_that_is_lost_is_an_attempt(trusted: FaultyServer) -> None:
    trusted.script = [LOST, FOUND]

    with pytest.raises(UnavailableError):
        get(clients.dynamodb_fail_fast())

    assert len(trusted.requests) == 1


@pytest.mark.usefixtures("client")
def test_a_proxy_gives_a_tunnel_in_which_the_certificate_is_checked(
    trusted: FaultyServer, proxy: Tunnel, authority: Authority
) -> None:
    assert get(clients.dynamodb()) == ITEM
    assert proxy.heads[0].startswith(f"CONNECT {at('localhost', trusted)[8:]} HTTP/1.")

    trusted.tls = authority.server_context("other.example")
    with pytest.raises(UnavailableError):
        get(clients.dynamodb())
    assert len(trusted.requests) == 1


@pytest.mark.usefixtures("client")
def test_the_user_of_the_proxy_url_is_sent_to_the_proxy_alone(
    trusted: FaultyServer, proxy: Tunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.address.replace("//", "//me:p%40ss@"))

    assert get(clients.dynamodb()) == ITEM

    expected = f"proxy-authorization: basic {b64encode(b'me:p@ss').decode()}"
    assert expected.lower() in proxy.heads[0].lower()
    assert "proxy-authorization" not in trusted.requests[0].headers


@pytest.mark.usefixtures("client")
def test_no_proxy_goes_around_the_proxy(
    trusted: FaultyServer, proxy: Tunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")

    assert get(clients.dynamodb()) == ITEM
    assert len(trusted.requests) == 1
    assert proxy.heads == []


@pytest.mark.usefixtures("client", "trusted")
def test_a_password_of_the_proxy_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_server() as refusing:
        refusing.script = [Answer(b"", 407, keep=False)]
        monkeypatch.setenv("HTTPS_PROXY", refusing.address.replace("//", "//me:hidden@"))

        with caplog.at_level(logging.WARNING), pytest.raises(UnavailableError) as raised:
            get(clients.dynamodb())

    assert "hidden" not in caplog.text + str(raised.value)
