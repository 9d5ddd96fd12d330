"""A tiny AWS for tests of the rules: one table, one queue, and a clock that only tests move."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from tests.strict.exchange import Answer, Call, Document, parsed
from tests.strict.proxy import StrictProxy
from tests.strict.strictness import RULES, Strictness

TABLE, INDEX = "runs", "dead"
QUEUE = "http://localhost/1/pool.fifo"
_SCOPE = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-central-1/{}/aws4_request, Signature=0"
_TARGETS = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}


@dataclass
class FakeUpstream:
    """`units`: what each call of DynamoDB consumes. `provisioned`: units of reads and of writes per
    second of the table; None: it is on demand. Time passes only where a rule sleeps.
    """

    units: float = 1.0
    provisioned: tuple[int, int] | None = None
    high_throughput: bool = True
    items: dict[str, Document] = field(default_factory=dict)
    sent: list[Call] = field(default_factory=list)
    at: float = 1000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)

    async def send(self, call: Call) -> Answer:
        await asyncio.sleep(0)  # calls overlap
        self.sent.append(call)
        document = self._do(call) if call.service in _TARGETS else {}
        if call.request.get("ReturnConsumedCapacity"):
            document["ConsumedCapacity"] = {"TableName": TABLE, "CapacityUnits": self.units}
        return Answer(200, (), json.dumps(document).encode())

    async def ask(self, call: Call, operation: str, request: Document) -> Document:
        if operation == "DescribeTable":
            schema = [{"AttributeName": "job", "KeyType": "HASH"}]
            index = [{"AttributeName": "attention", "KeyType": "HASH"}]
            indexes = [{"IndexName": INDEX, "KeySchema": index}]
            mode = "PAY_PER_REQUEST" if self.provisioned is None else "PROVISIONED"
            reads, writes = self.provisioned or (5, 5)  # as the emulator for tables on demand
            capacity = {"ReadCapacityUnits": reads, "WriteCapacityUnits": writes}
            return {
                "Table": {
                    "KeySchema": schema,
                    "GlobalSecondaryIndexes": indexes,
                    "ProvisionedThroughput": capacity,
                    "BillingModeSummary": {"BillingMode": mode},
                }
            }
        if operation == "GetItem":
            return self._get(request["Key"])
        assert operation == "GetQueueAttributes", call
        limit = "perMessageGroupId" if self.high_throughput else "perQueue"
        return {"Attributes": {"FifoThroughputLimit": limit, "VisibilityTimeout": "30"}}

    def _get(self, key: Document) -> Document:
        found = self.items.get(key["job"]["S"])
        return {} if found is None else {"Item": found}

    def _do(self, call: Call) -> Document:
        request = call.request
        match call.operation:
            case "PutItem":
                self.items[request["Item"]["job"]["S"]] = request["Item"]
            case "DeleteItem":
                self.items.pop(request["Key"]["job"]["S"], None)
            case "GetItem":
                return self._get(request["Key"])
            case "BatchWriteItem":
                for part in request["RequestItems"][TABLE]:
                    item = part["PutRequest"]["Item"]
                    self.items[item["job"]["S"]] = item
            case "BatchGetItem":
                keys = request["RequestItems"][TABLE]["Keys"]
                found = [each["Item"] for each in map(self._get, keys) if each]
                return {"Responses": {TABLE: found}, "UnprocessedKeys": {}}
            case "Query" | "Scan":
                return {"Items": list(self.items.values()), "Count": len(self.items)}
            case "SendMessageBatch":
                return {"Successful": [{"Id": each["Id"]} for each in request["Entries"]]}
            case "ReceiveMessage":
                count = request.get("MaxNumberOfMessages", 1)
                receipts = [f"{len(self.sent)}-{number}" for number in range(count)]
                return {"Messages": [{"ReceiptHandle": each} for each in receipts]}
        return {}


@dataclass
class Bench:
    """The stand-in with one rule, in front of the fake."""

    upstream: FakeUpstream
    proxy: StrictProxy

    def call(self, service: str, operation: str, /, **request: Any) -> Answer:
        return asyncio.run(self.proxy.answer(call_of(service, operation, request)))

    def calls(self, *calls: tuple[str, str, Document]) -> list[Answer]:
        """The answers of *calls* (service, operation, request), which overlap."""

        async def together() -> list[Answer]:
            return await asyncio.gather(*(self.proxy.answer(call_of(*each)) for each in calls))

        return asyncio.run(together())

    def acted(self, rule: str) -> int:
        return sum(times for (name, _), times in self.proxy.here.acted.items() if name == rule)


def bench(*rules: str, upstream: FakeUpstream | None = None, **strictness: Any) -> Bench:
    """The stand-in with only *rules* active."""
    behind = upstream or FakeUpstream()
    off = frozenset(RULES) - set(rules)
    clock = {"now": behind.now, "sleep": behind.sleep}
    return Bench(behind, StrictProxy(behind, Strictness(off=off, **strictness), **clock))


def call_of(service: str, operation: str, request: Document) -> Call:
    """The call as a client sends it. For Lambda *operation* is the type of the invocation."""
    headers = [(b"authorization", _SCOPE.format(service).encode())]
    target = b"/"
    if service in _TARGETS:
        headers.append((b"x-amz-target", f"{_TARGETS[service]}.{operation}".encode()))
    elif service == "lambda":
        headers.append((b"x-amz-invocation-type", operation.encode()))
        target = b"/2015-03-31/functions/watcher/invocations"
    return parsed("POST", target, tuple(headers), json.dumps(request).encode())


def code(answer: Answer) -> str:
    """The error code of *answer*; empty for a success."""
    return str(answer.document.get("__type", "")).rpartition("#")[2]


def key(job: str) -> Document:
    return {"job": {"S": job}}


def put(job: str, **more: Any) -> Document:
    return {"TableName": TABLE, "Item": key(job) | more}


def times_until(tested: Bench, refused: str, service: str, operation: str, **request: Any) -> int:
    """How many calls are accepted before one gets the error *refused*, without time passing."""
    for number in range(2_000):
        if (found := code(tested.call(service, operation, **request))) == refused:
            return number
        assert not found
    raise AssertionError("never refused")
