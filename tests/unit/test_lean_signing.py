"""Request signatures, compared with AWS's published test vectors and with botocore."""

from __future__ import annotations

import pytest
from botocore.auth import SigV4Auth  # noqa: TID251 - the reference
from botocore.awsrequest import AWSRequest  # noqa: TID251 - the reference
from botocore.credentials import Credentials as Keys  # noqa: TID251 - the reference
from hypothesis import given
from hypothesis import strategies as st

from nextfire.adapters.aws.lean.signing import Credentials, Signer, derived_key

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOON = 1440938160.0  # 2015-08-30T12:36:00Z
HOST = {"host": "example.amazonaws.com"}
FORM = "application/x-www-form-urlencoded"
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPf"
    "IeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7W"
    "Z0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8F"
    "DrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


@pytest.mark.parametrize(
    ("more", "body", "token", "signature"),
    [
        pytest.param(
            {},
            b"",
            None,
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            id="post-vanilla",
        ),
        pytest.param(
            {"my-header1": "value1"},
            b"",
            None,
            "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            id="post-header-key-sort",
        ),
        pytest.param(
            {"my-header1": "VALUE1"},
            b"",
            None,
            "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
            id="post-header-value-case",
        ),
        pytest.param(
            {},
            b"",
            TOKEN,
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            id="post-sts-header-before",
        ),
        pytest.param(
            {"content-type": FORM},
            b"Param1=value1",
            None,
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            id="post-x-www-form-urlencoded",
        ),
        pytest.param(
            {"content-type": f"{FORM}; charset=utf8"},
            b"Param1=value1",
            None,
            "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe",
            id="post-x-www-form-urlencoded-parameters",
        ),
    ],
)
def test_published_vector(
    more: dict[str, str], body: bytes, token: str | None, signature: str
) -> None:
    """From the suite `aws-sig-v4-test-suite`: the POST requests without a query."""
    credentials = Credentials("AKIDEXAMPLE", SECRET, token)

    signed = Signer("us-east-1", "service").sign({**HOST, **more}, body, credentials, NOON)

    assert signed["authorization"].endswith(f"Signature={signature}")


def test_published_derived_key() -> None:
    key = derived_key(SECRET, "20150830", "us-east-1", "iam")

    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


text = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(
    body=st.binary(max_size=200),
    target=text,
    access_key=text,
    secret=text,
    token=st.none() | text,
    region=st.sampled_from(["eu-central-1", "cn-north-1"]),
)
def test_signature_is_that_of_botocore(
    body: bytes, target: str, access_key: str, secret: str, token: str | None, region: str
) -> None:
    headers = {
        "content-type": "application/x-amz-json-1.0",
        "host": f"dynamodb.{region}.amazonaws.com",
        "x-amz-target": target,
    }
    credentials = Credentials(access_key, secret, token)
    signed = Signer(region, "dynamodb").sign(headers, body, credentials, NOON)

    request = AWSRequest("POST", f"https://{headers['host']}/", headers, body)
    request.context["timestamp"] = signed["x-amz-date"]
    if token:
        request.headers["X-Amz-Security-Token"] = token
    request.headers["X-Amz-Date"] = signed["x-amz-date"]
    signer = SigV4Auth(Keys(access_key, secret, token), "dynamodb", region)
    canonical = signer.canonical_request(request)
    expected = signer.signature(signer.string_to_sign(request, canonical), request)

    assert signed["authorization"].endswith(f"Signature={expected}")


def test_key_follows_the_day_and_the_credentials() -> None:
    signer = Signer("us-east-1", "service")
    first, second = Credentials("A", "a", None), Credentials("A", "b", None)
    asked = [(first, NOON), (second, NOON), (first, NOON + 86_400), (first, NOON)]

    signatures = [signer.sign(HOST, b"", who, at)["authorization"] for who, at in asked]

    assert signatures == [
        Signer("us-east-1", "service").sign(HOST, b"", who, at)["authorization"]
        for who, at in asked
    ]
    assert len(set(signatures)) == 3


def test_credentials_are_not_shown() -> None:
    assert SECRET not in repr(Credentials("A", SECRET, TOKEN))
