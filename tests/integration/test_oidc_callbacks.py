"""Web identity tokens: a receiver verifies them against the issuer's JWKS.

MiniStack has no GetWebIdentityToken. In its place a local server answers the SDK's request with a
token that it signs, and publishes its key as AWS does.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from nextfire.adapters.aws.calls import RoleClients, RoleIdentity
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from nextfire.domain.ports.targets import AttemptResult
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.http.transport import Transport
from nextfire.targets.role import Credentials
from tests.callbacks import LONGEST, Control, a_callback, a_running_run
from tests.e2e.callback_server import CallbackServer, Received, Reply, callback_server
from tests.fakes import MemorySecrets

AUDIENCE = "https://receiver.example.com"
_SIZE = 48
"""Bytes of each part of an ES384 signature."""


class Role:
    """`RoleCredentials`."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:  # noqa: ARG002
        return Credentials("AKID", "secret", "token")


class Issuer:
    """Issues tokens at `/`, with the query protocol of STS; its keys are at `/jwks`."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP384R1())
        self.claims: dict[str, object] = {}
        self.asked: dict[str, str] = {}

    def answer(self, one: Received) -> Reply:
        if one.path == "/jwks":
            numbers = self.key.public_key().public_numbers()
            point = {"x": numbers.x, "y": numbers.y}
            coordinates = {name: _text(part.to_bytes(_SIZE)) for name, part in point.items()}
            key = {"kty": "EC", "crv": "P-384", "kid": "1", "alg": "ES384", **coordinates}
            return Reply(body=json.dumps({"keys": [key]}).encode())
        self.asked = {name: values[0] for name, values in parse_qs(one.body.decode()).items()}
        body = (
            '<GetWebIdentityTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<GetWebIdentityTokenResult><WebIdentityToken>{self._token()}</WebIdentityToken>"
            "</GetWebIdentityTokenResult></GetWebIdentityTokenResponse>"
        )
        return Reply(body=body.encode(), headers={"Content-Type": "text/xml"})

    def _token(self) -> str:
        now = int(time.time())
        claims = {
            "aud": self.asked["Audience.member.1"],
            "sub": "arn:aws:iam::123456789012:role/nextfire-calls",
            "exp": now + int(self.asked["DurationSeconds"]),
            **self.claims,
        }
        header = {"alg": self.asked["SigningAlgorithm"], "kid": "1", "typ": "JWT"}
        text = ".".join(_text(json.dumps(part).encode()) for part in (header, claims))
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA384())))
        return f"{text}.{_text(r.to_bytes(_SIZE) + s.to_bytes(_SIZE))}"


class Receiver:
    """Verifies the bearer token of each request against the keys at *jwks*."""

    def __init__(self, jwks: str) -> None:
        self.jwks = jwks
        self.audience = AUDIENCE

    def answer(self, one: Received) -> Reply:
        token = one.headers["Authorization"].removeprefix("Bearer ")
        return Reply(200 if self._accepts(token) else 401)

    def _accepts(self, token: str) -> bool:
        with urllib.request.urlopen(self.jwks, timeout=10) as answer:  # noqa: S310 - a local server
            keys = {key["kid"]: key for key in json.load(answer)["keys"]}
        head, body, signature = token.split(".")
        header, claims, parts = (
            json.loads(_bytes(head)),
            json.loads(_bytes(body)),
            _bytes(signature),
        )
        key = keys[header["kid"]]
        x, y = (int.from_bytes(_bytes(key[name])) for name in ("x", "y"))
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP384R1()).public_key()
        r, s = int.from_bytes(parts[:_SIZE]), int.from_bytes(parts[_SIZE:])
        try:
            signed = f"{head}.{body}".encode()
            public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA384()))
        except InvalidSignature:
            return False
        return bool(header["alg"] == key["alg"]) and (
            claims["aud"] == self.audience and claims["exp"] > time.time()
        )


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@contextmanager
def serving(issuer: Issuer, folder: Path) -> Iterator[str]:
    with callback_server(folder, "http") as server:
        server.responses |= {"/": issuer.answer, "/jwks": issuer.answer}
        yield server.url


@pytest.fixture
def sts(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serving(issuer, tmp_path) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        yield url


@pytest.fixture
def receiver(sts: str) -> Receiver:
    return Receiver(f"{sts}/jwks")


@pytest.fixture
def server(receiver: Receiver, tmp_path: Path) -> Iterator[CallbackServer]:
    with callback_server(tmp_path) as server:
        server.responses["/hook"] = receiver.answer
        yield server


def attempt(server: CallbackServer) -> AttemptResult:
    """One attempt of a callback to *server*, with the real transport and the real SDK."""
    secrets = MemorySecrets()
    secrets.values["acme/ca"] = server.ca
    clients = RoleClients(Role(), "eu-central-1")
    target = HttpTarget(
        transport=Transport(AddressRules.of(["127.0.0.0/8"], [0], http=False)),
        secrets=secrets,
        authentication=Authentication(secrets, Role(), RoleIdentity(clients)),
        clock=SystemClock(),
    )
    auth = {"type": "oidc", "audience": AUDIENCE}
    job = a_callback(f"{server.url}/hook", auth=auth, tls={"ca": {"secret": "ca"}})
    return target.attempt(job, a_running_run(), Control(), min(LONGEST, timedelta(seconds=20)))


def test_a_receiver_accepts_the_token(server: CallbackServer, issuer: Issuer) -> None:
    found = attempt(server)

    assert (found.result.outcome, found.result.reason) == (AttemptOutcome.SUCCEEDED, "200 OK")
    assert issuer.asked["Action"] == "GetWebIdentityToken"
    token = server.received("/hook")[0].headers["Authorization"].removeprefix("Bearer ")
    assert token not in repr(found)


def test_a_token_for_another_audience_is_rejected(
    server: CallbackServer, receiver: Receiver
) -> None:
    receiver.audience = "https://another.example.com"

    assert attempt(server).result.reason == "401 Unauthorized"


def test_a_token_that_expired_is_rejected(server: CallbackServer, issuer: Issuer) -> None:
    issuer.claims["exp"] = int(time.time()) - 1

    assert attempt(server).result.reason == "401 Unauthorized"


def test_a_token_of_another_issuer_is_rejected(
    server: CallbackServer, receiver: Receiver, tmp_path: Path
) -> None:
    with serving(Issuer(), tmp_path) as url:
        receiver.jwks = f"{url}/jwks"

        assert attempt(server).result.reason == "401 Unauthorized"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
