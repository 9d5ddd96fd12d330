"""API keys in tests of the command: their texts, the API's answers, the file of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builders import key_text
from tests.unit.cli import answers

HOST = answers.ENDPOINT.removeprefix("https://")
REGION = "eu-west-1"
KEY = key_text()
OTHER = key_text("other", "B")
SHOWN = {
    "keyId": "3f9c0a77d1e2b456",
    "name": "ci",
    "scopes": ["write"],
    "state": "ACTIVE",
    "createdAt": "2026-05-24T12:00:00Z",
    "expiresAt": "2026-08-22T12:00:00Z",
}
MADE = SHOWN | {"key": KEY}
ROUTES: dict[str, Any] = {
    "GET /v1/jobs": {"items": []},
    "POST /v1/keys": MADE,
    "GET /v1/keys": {"items": [SHOWN | {"lastUsedOn": "2026-05-24"}]},
    "DELETE /v1/keys/3f9c0a77d1e2b456": SHOWN | {"state": "REVOKED"},
    "POST /v1/keys/3f9c0a77d1e2b456/rotate": {
        "new": MADE,
        "old": SHOWN | {"expiresAt": "2026-05-25T12:00:00Z"},
    },
}


def keep(config: Path, key: str = KEY, *, mode: int = 0o600, host: str = HOST) -> Path:
    file = config / "nextfire" / "keys" / host
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key + "\n")
    file.chmod(mode)
    return file


def create_table(client: Any) -> None:
    """Create the table of keys of a stack, as DynamoDB has it."""
    names = {"tenant": "HASH", "key_id": "RANGE"}
    client.create_table(
        TableName="the-keys",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        BillingMode="PAY_PER_REQUEST",
    )
