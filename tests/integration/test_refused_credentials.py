"""Credentials of a process that STS refuses to renew: an outage, whichever client needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import boto3  # noqa: TID251 - its default session keeps credentials
import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.references import SecretReference
from nextfire.domain.script import ScriptSource
from tests.integration.faulty_server import Answer, FaultyServer
from tests.integration.one_read import get

DENIED = (
    b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>x</Message></Error></ErrorResponse>"
)
TARGETS: dict[str, Callable[[], object]] = {
    "script": lambda: S3ScriptStore(clients.s3()).fetch(ScriptSource("s3://b/a.py", "acme")),
    "secret": lambda: AwsSecrets(clients.secretsmanager(), clients.ssm(), pool="p").resolve(
        "acme", SecretReference(secret="s")
    ),
    "run": lambda: get(clients.dynamodb()),
}


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("read", TARGETS.values(), ids=TARGETS.keys())
def test_a_refusal_of_sts_is_no_refusal_of_the_request(
    server: FaultyServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    read: Callable[[], object],
) -> None:
    """As in EKS, where each pod has a token that STS exchanges for credentials of its role."""
    token = tmp_path / "token"
    token.write_text("token")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/worker")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    server.script = [Answer(DENIED, 403)]

    with pytest.raises(UnavailableError):
        read()

    assert {b"AssumeRoleWithWebIdentity" in each.body for each in server.requests} == {True}
