"""A read of one item by a client of DynamoDB, and its answer."""

from __future__ import annotations

from typing import Any

from nextfire.adapters.aws.errors import translated
from tests.integration.faulty_server import answer

ITEM = {"id": {"S": "x"}}
FOUND = answer({"Item": ITEM})


def get(database: Any) -> Any:
    with translated("get item"):
        return database.get_item(TableName="t", Key=ITEM).get("Item")
