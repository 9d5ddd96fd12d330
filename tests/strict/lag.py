"""Eventually consistent reads that do not see the latest write.

Before some writes the previous images of the items are read; until `lag_seconds` after the write,
reads that are not consistent, and all reads of an index, get these. An item that was deleted does
not reappear in a query or a scan: that would need its key condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Answer, Call, Document, Proceed
from tests.strict.items import WRITES, touched
from tests.strict.rule import Circumstances
from tests.strict.tables import ItemId, Tables

_Image = Mapping[str, Any] | None


@dataclass
class Lag:
    here: Circumstances
    tables: Tables
    _images: dict[ItemId, tuple[_Image, float]] = field(default_factory=dict)
    name = "lag"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service != "dynamodb":
            return await proceed(call)
        if call.operation in WRITES:
            return await self._written(call, proceed)
        self._forget()
        answer = await proceed(call)
        if not answer.ok or not self._images:
            return answer
        match call.operation:
            case "GetItem" if not call.request.get("ConsistentRead"):
                return await self._single(call, answer)
            case "BatchGetItem":
                return await self._batch(call, answer)
            case "Query" | "Scan" if not call.request.get("ConsistentRead"):
                return await self._page(call, answer)
        return answer

    async def _written(self, call: Call, proceed: Proceed) -> Answer:
        dice = self.here.dice(self.name, call)
        if dice.random() >= self.here.strictness.lag_chance:
            return await proceed(call)
        before: dict[ItemId, _Image] = {}
        for item in touched(call):
            identity = await self.tables.identity(call, item.table, item.attributes)
            schema = await self.tables.schema(call, item.table)
            if identity is None or schema is None:
                continue
            key = {name: item.attributes[name] for name in schema.key}
            request = {"TableName": item.table, "Key": key, "ConsistentRead": True}
            found = await self.here.upstream.ask(call, "GetItem", request)
            before[identity] = found.get("Item")
        answer = await proceed(call)
        if answer.ok:
            self._forget()
            until = self.here.now() + self.here.strictness.lag_seconds
            for identity, image in before.items():
                self._images.setdefault(identity, (image, until))
        return answer

    def _forget(self) -> None:
        now = self.here.now()
        self._images = {key: image for key, image in self._images.items() if image[1] > now}

    async def _stale(
        self, call: Call, table: str, attributes: Mapping[str, Any]
    ) -> tuple[bool, _Image]:
        """Whether the item is read as it was before its last write, and how it was."""
        identity = await self.tables.identity(call, table, attributes)
        if identity is None or identity not in self._images:
            return False, None
        self.here.act(self.name, call)
        return True, self._images[identity][0]

    async def _single(self, call: Call, answer: Answer) -> Answer:
        request = call.request
        stale, image = await self._stale(call, request["TableName"], request["Key"])
        if not stale:
            return answer
        document = answer.document
        document.pop("Item", None)
        if image is not None:
            document["Item"] = _projected(image, request)
        return answer.with_document(document)

    async def _batch(self, call: Call, answer: Answer) -> Answer:
        document = answer.document
        responses: dict[str, list[Document]] = document.get("Responses", {})
        for table, asked in call.request["RequestItems"].items():
            if asked.get("ConsistentRead"):
                continue
            unread = document.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            for key in [key for key in asked["Keys"] if key not in unread]:
                stale, image = await self._stale(call, table, key)
                if stale:
                    kept = [item for item in responses.get(table, []) if not _has(item, key)]
                    old = [] if image is None else [_projected(image, asked)]
                    responses[table] = [*kept, *old]
        return answer.with_document(document)

    async def _page(self, call: Call, answer: Answer) -> Answer:
        document, request = answer.document, call.request
        if "Items" not in document:
            return answer
        schema = await self.tables.schema(call, request["TableName"])
        name = schema.indexes.get(request.get("IndexName", "")) if schema else None
        items = []
        for item in document["Items"]:
            stale, image = await self._stale(call, request["TableName"], item)
            if not stale:
                items.append(item)
            elif image is not None and (name is None or image.get(name) == item.get(name)):
                items.append({each: image[each] for each in item if each in image})
        return answer.with_document({**document, "Items": items, "Count": len(items)})


def _has(item: Document, key: Document) -> bool:
    return all(item.get(name) == value for name, value in key.items())


def _projected(image: Mapping[str, Any], request: Document) -> Document:
    """The attributes of *image* that the request asks for; of a nested one, the whole."""
    expression = request.get("ProjectionExpression")
    if not expression:
        return dict(image)
    names = request.get("ExpressionAttributeNames", {})
    paths = [path.strip().split(".")[0].split("[")[0] for path in expression.split(",")]
    wanted = {names.get(path, path) for path in paths}
    return {name: value for name, value in image.items() if name in wanted}
