"""The adapter of the authorizer."""

from __future__ import annotations

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.ports.access import KeyStore
from nextfire.settings import AuthorizerSettings, EmbeddedSettings


def key_store(settings: AuthorizerSettings) -> KeyStore:
    """The store of the API keys."""
    if (local := EmbeddedSettings.find()) is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - functions do without SQLite

        return embedded.key_store(local)
    return DynamoDbKeyStore(dynamodb(), table=settings.keys_table)
