"""TLS of callbacks: which certificates are accepted and shown."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.targets.http.messages import Failure, Request
from nextfire.targets.http.tls import TlsSettings
from nextfire.targets.http.transport import Transport
from tests.integration.certificates import Authority
from tests.unit.callback_transport.conftest import OK, RULES, answering, failure, send, server


def test_a_stopped_handshake_leaves_no_thread_behind() -> None:
    with server(lambda wire: time.sleep(20) if wire.recv(1) else None) as place:
        failed = failure(place, scheme="https", timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Failure.STOPPED, False)
    assert not [each for each in threading.enumerate() if each.name == "call"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_certificates_of_the_given_authority_are_trusted(authority: Authority) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(answering(OK), authority.server_context("127.0.0.1")) as place:
        found = send(place, scheme="https", tls=tls)

        assert found.status == 200
        assert found.timings.tls is not None
        failed = failure(place, scheme="https")
        assert (failed.problem, failed.sent) == (Failure.TLS, False)
        assert "certificate" in failed.text


def test_comments_between_certificates_may_have_any_characters(authority: Authority) -> None:
    """As in bundles of distributions, which name the holder of each certificate."""
    tls = TlsSettings(ca=f"# Autorité de certification é\n{authority.bundle.read_text()}")
    with server(answering(OK), authority.server_context("127.0.0.1")) as place:
        assert send(place, scheme="https", tls=tls).status == 200


def test_a_bundle_without_ascii_is_a_problem_of_tls() -> None:
    with server(answering(OK)) as place:
        assert failure(place, scheme="https", tls=TlsSettings(ca="é")).problem is Failure.TLS


@pytest.mark.parametrize(
    ("host", "valid_for"),
    [("localhost", timedelta(days=1)), ("127.0.0.1", timedelta(days=-1))],
)
def test_a_certificate_of_another_name_or_an_expired_one_is_rejected(
    authority: Authority, host: str, valid_for: timedelta
) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    context = authority.server_context(host, valid_for=valid_for)
    with server(answering(OK), context) as place:
        failed = failure(place, scheme="https", tls=tls)

    assert (failed.problem, failed.sent) == (Failure.TLS, False)


def test_a_balancer_that_ends_the_handshake_counts_as_no_connection(authority: Authority) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(lambda wire: wire.close()) as place:
        failed = failure(place, scheme="https")
        with_settings = failure(place, scheme="https", tls=tls)

    assert (failed.problem, failed.sent) == (Failure.CONNECT, False)
    assert with_settings.problem is Failure.TLS, "the settings of one job do not stop the others"


def test_a_server_without_tls_is_a_problem_of_tls() -> None:
    with server(lambda wire: wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as place:
        failed = failure(place, scheme="https")

    assert (failed.problem, failed.sent) == (Failure.TLS, False)


def test_an_invalid_certificate_setting_is_a_problem_of_tls() -> None:
    with server(answering(OK)) as place:
        assert failure(place, scheme="https", tls=TlsSettings(ca="x")).problem is Failure.TLS
        tls = TlsSettings(certificate="x", key="hunter2")
        assert failure(place, scheme="https", tls=tls).problem is Failure.TLS


def test_keys_of_calls_are_not_logged(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(answering(OK), authority.server_context("127.0.0.1")) as place:
        assert send(place, scheme="https", tls=tls).status == 200

    assert not log.exists()


def test_a_client_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    context = authority.server_context("127.0.0.1")
    pem = (tmp_path / "server.pem").read_text()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.bundle)
    ca, key_end = authority.bundle.read_text(), pem.index("-----BEGIN CERTIFICATE")
    with server(answering(OK), context) as place:
        mutual = TlsSettings(ca=ca, certificate=pem[key_end:], key=pem[:key_end])
        assert send(place, scheme="https", tls=mutual).status == 200
        failed = failure(place, scheme="https", tls=TlsSettings(ca=ca))

    assert failed.problem in {Failure.TLS, Failure.PROTOCOL}


def test_a_response_to_a_part_of_the_request_is_returned(authority: Authority) -> None:
    def reject(wire: socket.socket) -> None:
        wire.recv(1000)
        wire.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        time.sleep(0.5)  # the client fills the buffers meanwhile

    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(reject, authority.server_context("127.0.0.1")) as place:
        request = Request("POST", f"https://{place}/", {}, b"x" * 20_000_000)
        found = Transport(RULES).send(request, tls=tls, timeout=30, ask=lambda: False)

    assert found.status == 413


@pytest.mark.parametrize(
    ("port", "host"), [(":443", "a.example"), (":80", "a.example:80"), (":81", "a.example:81")]
)
def test_the_header_host_has_no_port_that_the_scheme_implies(
    authority: Authority, port: str, host: str
) -> None:
    """As in signatures of AWS, which cover the header."""
    tls, kept = TlsSettings(ca=authority.bundle.read_text()), list[bytes]()
    with server(answering(OK, kept), authority.server_context("a.example")) as place:
        address, _, number = place.partition(":")
        found = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, int(number)))
        send(f"a.example{port}", scheme="https", tls=tls, resolve=lambda _host, _port: [found])

    assert f"\r\nHost: {host}\r\n".encode() in kept[0]
