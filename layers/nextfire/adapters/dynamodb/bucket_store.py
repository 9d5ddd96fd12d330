"""Token buckets in DynamoDB: one item per bucket, changed by conditional updates."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.request_items import encode_key
from nextfire.domain.errors import UnavailableError
from nextfire.domain.request_limits import RequestLimit, Taken, take, to_us

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TRIES = 4
_MAX_CACHED = 10_000
_KEPT = timedelta(hours=1)
"""How long the item of a refilled bucket is kept. It is equivalent to an absent item."""


class DynamoDbBucketStore:
    """`BucketStore` on the table `requests`, whose items expire (TTL)."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table
        self._seen: dict[str, int | None] = {}

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        at = to_us(now)
        # Decide from the last known state. Other processes may have taken tokens since then, but
        # tokens are never put back: a bucket that was empty is still empty.
        seen = self._seen.get(name)
        for _ in range(_TRIES):
            wish = take(seen, at, limit, wanted)
            if wish.tokens == 0:
                return wish
            done, seen = self._update(name, seen, wish.tokens, at, limit)
            if len(self._seen) >= _MAX_CACHED:
                self._seen.clear()
            if done is not None:
                self._seen[name] = done
                return Taken(wish.tokens, timedelta(), done)
            self._seen[name] = seen
        raise UnavailableError(f"take tokens from {name}: too many concurrent writes. Try again.")

    def _update(
        self, name: str, known: int | None, tokens: int, now: int, limit: RequestLimit
    ) -> tuple[int | None, int | None]:
        """Take *tokens*, on condition that the bucket is still in the state *known*.

        Returns:
            On success, the new state and None; otherwise None and the current state.
        """
        cost, most = limit.cost(tokens), limit.most(now)
        values: dict[str, object] = {":cost": cost, ":expires": most // 1_000_000 + _KEPT.seconds}
        if known is None or limit.is_full(known, now):
            # The bucket was full. If others have taken tokens since, the retry uses the other form.
            change = "SET spent = :spent, expires_at = :expires"
            condition = "attribute_not_exists(spent) OR spent <= :now OR spent >= :unreachable"
            values = {":expires": values[":expires"], ":spent": now + cost, ":now": now}
            values[":unreachable"] = limit.unreachable(now)
        else:
            change = "SET spent = spent + :cost, expires_at = :expires"
            condition = "spent BETWEEN :now AND :most"
            values |= {":now": now, ":most": most - cost}
        with conditional("take tokens") as write:
            answer: Any = self._client.update_item(
                TableName=self._table,
                Key=encode_key(f"#{name}"),  # tenant names are never empty
                UpdateExpression=change,
                ConditionExpression=condition,
                ExpressionAttributeValues=to_item(values),
                ReturnValues="UPDATED_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        if not write.made:
            return None, int(write.found["spent"]["N"]) if "spent" in write.found else None
        return int(answer["Attributes"]["spent"]["N"]), None
