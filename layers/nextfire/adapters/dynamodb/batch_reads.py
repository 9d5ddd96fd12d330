"""Reads items by key, and the pages of queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import chunks
from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.batch_retries import retried
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB


def read_one(
    client: DynamoDBClient, table: str, key: Item, what: str, *, consistent: bool
) -> Item | None:
    """Read the item with *key* from *table*. *what*: name of the operation, for errors.

    Raises:
        UnavailableError: The request failed.
    """
    with translated(what):
        answer = client.get_item(TableName=table, Key=key, ConsistentRead=consistent)
    return answer.get("Item")


def query_pages(client: DynamoDBClient, request: dict[str, Any], what: str) -> Iterator[list[Any]]:
    """The items that *request* finds, page by page. The caller may change its limit in between.

    Raises:
        UnavailableError: A request failed.
    """
    while True:
        with translated(what):
            answer = client.query(**request)
        yield answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def read_batches(
    client: DynamoDBClient, table: str, keys: Sequence[Item], request: Mapping[str, Any], what: str
) -> tuple[list[Item], list[Item]]:
    """Read the items with *keys*, all different, from *table*. *request*: the parameters of the
    read, for example ``{"ConsistentRead": True}``. *what*: name of the operation, for errors.

    Throttled keys are requested again, as of `retried`.

    Returns:
        The items found, in any order, and the keys that stayed throttled.

    Raises:
        UnavailableError: A request failed.
    """
    found: list[Item] = []

    def read(keys: list[Any]) -> list[Any]:
        asked: Any = {**request, "Keys": keys}
        answer = client.batch_get_item(RequestItems={table: asked})
        found.extend(answer["Responses"].get(table, []))
        again = answer.get("UnprocessedKeys", {}).get(table)
        return list(again["Keys"]) if again else []

    with translated(what):
        unread = [key for chunk in chunks([*keys], _LIMIT) for key in retried(read, chunk)]
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
