"""The tables of a deployment, in any emulator of DynamoDB."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tests.integration import resources

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Tables:
    """The names of the tables. Each table is created on first use, with the keys of
    `infra/constructs/stores.py`.
    """

    def __init__(self, client: DynamoDBClient, suffix: str = "", *, on_moto: bool = False) -> None:
        self._client, self._suffix, self._on_moto = client, suffix, on_moto

    @cached_property
    def jobs(self) -> str:
        return self._create("jobs", "tenant", "job_id")

    @cached_property
    def due(self) -> str:
        return self._create("due", "bucket", "entry")

    @cached_property
    def runs(self) -> str:
        return self._create("runs", "job", "run_id", index=("dead", "attention", "attention_at"))

    @cached_property
    def control(self) -> str:
        return self._create("control", "id")

    @cached_property
    def keys(self) -> str:
        return self._create("keys", "tenant", "key_id")

    @cached_property
    def requests(self) -> str:
        return self._create("requests", "request")

    @cached_property
    def endpoints(self) -> str:
        return self._create("endpoints", "owner", "destination")

    @cached_property
    def overview(self) -> str:
        return self._create("overview", "log", "place")

    def _create(self, name: str, *key: str, index: tuple[str, str, str] | None = None) -> str:
        def schema(names: tuple[str, ...]) -> Any:
            roles = ("HASH", "RANGE")
            return [{"AttributeName": n, "KeyType": r} for n, r in zip(names, roles, strict=False)]

        request: dict[str, Any] = {}
        if index is not None:
            request["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": index[0],
                    "KeySchema": schema(index[1:]),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ]
        create = partial(
            self._client.create_table,
            TableName=name + self._suffix,
            KeySchema=schema(key),
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in (*key, *(index or ())[1:])
            ],
            BillingMode="PAY_PER_REQUEST",
            **request,
        )
        if self._on_moto:
            resources.table(name, self._client.meta.region_name, create)
        else:
            create()
        return name + self._suffix
