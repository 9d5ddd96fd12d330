"""Reads items by key in batches. DynamoDB throttles single items of a batch (`UnprocessedKeys`)."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import chunks
from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB
_TRIES = 5  # requests in a row that return nothing
_FIRST_WAIT = 0.05  # maximum seconds before the second request; doubled before each further one


def read_batches(
    client: DynamoDBClient, table: str, keys: Sequence[Item], request: Mapping[str, Any], what: str
) -> tuple[list[Item], list[Item]]:
    """Read the items with *keys*, all different, from *table*. *request*: the parameters of the
    read, for example ``{"ConsistentRead": True}``. *what*: name of the operation, for errors.

    Throttled keys are requested again, after a random wait that doubles while nothing is returned.

    Returns:
        The items found, in any order, and the keys that were still throttled after 5 requests in a
        row returned nothing.

    Raises:
        UnavailableError: A request failed.
    """
    found: list[Item] = []
    unread: list[Item] = []
    for chunk in chunks([*keys], _LIMIT):
        left: list[Any] = [*chunk]
        failures = 0
        while left and failures < _TRIES:
            if failures:
                time.sleep(random.uniform(0, _FIRST_WAIT * 2 ** (failures - 1)))  # noqa: S311 — not a secret
            asked: Any = {**request, "Keys": left}
            with translated(what):
                answer = client.batch_get_item(RequestItems={table: asked})
            found += answer["Responses"].get(table, [])
            again = answer.get("UnprocessedKeys", {}).get(table)
            rest = list(again["Keys"]) if again else []
            failures = 1 if len(rest) < len(left) else failures + 1
            left = rest
        unread += left
    return found, unread


def read_all(
    client: DynamoDBClient, table: str, keys: Sequence[Item], request: Mapping[str, Any], what: str
) -> list[Item]:
    """As `read_batches`, for reads of which each item counts.

    Raises:
        UnavailableError: A request failed, or some keys stayed throttled.
    """
    found, unread = read_batches(client, table, keys, request, what)
    if unread:
        raise throttled(what)
    return found


def throttled(what: str) -> UnavailableError:
    """The error of a key that stayed throttled."""
    return UnavailableError(f"{what}: throttled. Try again.")
