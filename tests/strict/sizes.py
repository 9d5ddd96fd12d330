"""Items, messages, batches and payloads that AWS rejects as too large."""

from __future__ import annotations

from dataclasses import dataclass

from tests.strict.exchange import Answer, Call, Proceed, refusal
from tests.strict.items import WRITES, item_bytes, touched
from tests.strict.limits import limit
from tests.strict.rule import Circumstances

_TOO_LARGE = 413


@dataclass
class Sizes:
    here: Circumstances
    name = "sizes"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        judged = {"dynamodb": _dynamodb, "sqs": _sqs, "lambda": _lambda}.get(call.service)
        refused = judged(call) if judged else None
        if refused is None:
            return await proceed(call)
        self.here.act(self.name, call)
        return refused


def _dynamodb(call: Call) -> Answer | None:
    if call.operation not in {*WRITES, "BatchGetItem"}:
        return None
    items = touched(call)
    allowed = {
        "BatchWriteItem": limit("batch-write-items"),
        "BatchGetItem": limit("batch-get-items"),
        "TransactWriteItems": limit("transaction-items"),
    }.get(call.operation, 1)
    sizes = [item_bytes(item.attributes) for item in items]
    if len(items) > allowed:
        return refusal(call, "ValidationException", f"Too many items: {len(items)}")
    if max(sizes, default=0) > limit("item"):
        text = "Item size has exceeded the maximum allowed size"
        return refusal(call, "ValidationException", text)
    if call.operation == "TransactWriteItems" and sum(sizes) > limit("transaction-bytes"):
        return refusal(call, "ValidationException", "Transaction exceeds 4 MB")
    return None


def _sqs(call: Call) -> Answer | None:
    entries = call.request.get("Entries", [])
    if len(entries) > limit("batch-messages"):
        code = "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
        return refusal(call, code, f"{len(entries)} entries")
    bodies = [each["MessageBody"] for each in (*entries, call.request) if "MessageBody" in each]
    size = sum(len(body.encode()) for body in bodies)
    if size <= limit("message"):
        return None
    if entries:
        code = "AWS.SimpleQueueService.BatchRequestTooLong"
        return refusal(call, code, f"Batch requests cannot be longer than 1048576 bytes: {size}")
    text = "One or more parameters are invalid. Message must be shorter than 1048576 bytes."
    return refusal(call, "InvalidParameterValue", text)


def _lambda(call: Call) -> Answer | None:
    is_event = call.header(b"x-amz-invocation-type") == b"Event"
    allowed = limit("event" if is_event else "payload")
    if call.operation != "Invoke" or len(call.body) <= allowed:
        return None
    text = f"{len(call.body)} byte payload is too large"
    return refusal(call, "RequestTooLargeException", text, status=_TOO_LARGE)
