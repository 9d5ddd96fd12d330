"""The conditional update of one run record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional
from nextfire.adapters.dynamodb.fields import Field, names
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.run_items import decode_run, encode_key
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class RunUpdates:
    """Conditional updates in the table `runs`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def change(
        self,
        key: RunKey,
        *,
        what: str,
        update: str,
        condition: str,
        values: Mapping[str, object],
        fields: Item | None = None,
        ours: Callable[[Run], bool] = lambda _: False,
        absent_ok: bool = False,
    ) -> Claim:
        """Make one conditional write.

        Args:
            key: The run.
            what: What the write does, for error messages.
            update: The update expression. Any name may be written with a hash: some are reserved.
            condition: The condition expression.
            values: The values in the expressions.
            fields: Encoded attributes, each in *update* as ``#name = :name``.
            ours: If the condition fails, whether the stored record is the result of this same
                write: the SDK may have sent it twice.
            absent_ok: Return a CANCELLED run if the record is gone.

        Raises:
            UnavailableError: The record is gone.
        """
        with conditional(what) as write:
            answer = self._client.update_item(
                TableName=self._table,
                Key=encode_key(key),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeNames={
                    name: name[1:] for name in re.findall(r"#\w+", f"{update} {condition}")
                },
                ExpressionAttributeValues=to_item(values) | _values(fields or {}),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        if write.made:
            return Claim(decode_run(answer["Attributes"]), taken=True)
        if write.found:
            run = decode_run(write.found)
            return Claim(run, taken=ours(run))
        # The record expired (TTL).
        if absent_ok:
            return Claim(Run(key, RunState.CANCELLED), taken=False)
        raise UnavailableError(f"{what}: the record is gone. Try again.")


def set_all(fields: Item) -> str:
    """The update expression that sets *fields*."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in fields)


def set_or_remove(group: Iterable[Field[Any]], fields: Item) -> str:
    """The update expression that sets *fields* and removes the rest of *group*."""
    absent = ", ".join(f"#{name}" for name in names(group) if name not in fields)
    return set_all(fields) + (f" REMOVE {absent}" if absent else "")


def _values(fields: Item) -> dict[str, Any]:
    return {f":{name}": value for name, value in fields.items()}
