"""Signatures of callbacks, checked by the reference library and by an independent verifier."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http.signing import public_key, signature_headers

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
KEY = "whsk_" + base64.b64encode(bytes(range(32))).decode()
BODY = '{"name":"Jörg"}'.encode()


def signed(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    now = datetime.now(UTC)  # noqa: TID251 - the library compares with the machine's clock
    return signature_headers(secrets, execution_id="job.1-a", body=body, now=now)


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_both_secrets_of_a_rotation_verify(secret: str) -> None:
    Webhook(secret).verify(BODY, signed(OLD, NEW))


@pytest.mark.parametrize("secret", [NEW + "\n", NEW[:20] + "\n" + NEW[20:], NEW.rstrip("=")])
def test_line_breaks_and_missing_padding_of_a_secret_change_nothing(secret: str) -> None:
    Webhook(NEW).verify(BODY, signed(secret))


def test_another_secret_or_body_does_not_verify() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, signed(OLD))
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(b'{"name":"Jorg"}', signed(OLD))


def test_an_ed25519_signature_verifies_with_the_public_key() -> None:
    headers = signed(KEY, OLD)
    version, text = headers["webhook-signature"].split(" ")[0].split(",")
    message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + BODY
    public = Ed25519PublicKey.from_public_bytes(
        base64.b64decode(public_key(KEY).removeprefix("whpk_"))
    )

    assert version == "v1a"
    public.verify(base64.b64decode(text), message)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(text), message + b"x")
    Webhook(OLD).verify(BODY, headers)


@pytest.mark.parametrize(
    "secret",
    [
        *("hunter2-hunter2", "whsec_", "whsec_c2hvcnQ=", "whsk_c2hvcnQ=", "whsec_ü" * 9),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsec_" + base64.urlsafe_b64encode(b"\xfb\xff" * 16).decode(),
        "whsec_" + base64.urlsafe_b64encode(b"\xfb\xff" * 48).decode(),
        "whsk_" + base64.urlsafe_b64encode(b"\xfb\xff" * 16 + b"x" * 32).decode(),
        "whsec_" + base64.b64encode(b"x" * 32).decode() + "\u2028-",
    ],
)
def test_an_invalid_secret_is_an_error_without_its_value(secret: str) -> None:
    with pytest.raises(InvalidInputError) as invalid:
        signed(secret)

    assert "whsec_" in str(invalid.value)
    assert "hunter2" not in str(invalid.value)
