"""A server that imitates DynamoDB and SQS for a watcher, including their latency.

It runs in its own process, so the CPU of the watcher process is the watcher's alone. It serves due
entries that are generated in advance, and a job for each. It does not store what a watcher writes,
but it removes deleted entries: the successors of the entries are due on another day.

``python -m benchmarks.aws_double JSON`` prints its port. ``GET /figures`` returns its counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any, Literal

from pydantic import BaseModel

from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.job_items import decode_job
from nextfire.domain.due import fire
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import floor_minute, isoformat
from tests.builders import a_job

TENANT = "acme"
PAGE_BYTES = 1_000_000
"""The maximum page size of DynamoDB is 1 MB."""
_JOB_ID, _UID = "@job@", "@uid@"


class Figures(BaseModel):
    """Counts so far. `sent`: messages; `recorded`: skipped occurrences; `deleted`: due entries."""

    sent: int = 0
    recorded: int = 0
    deleted: int = 0
    calls: dict[str, int] = {}


class Serving(BaseModel):
    """What the server serves. `misfire`: policy of the jobs; `fastest`, `slowest`: range of the
    latency in seconds.
    """

    due_at: datetime
    misfire: Literal["RUN_LATEST", "SKIP"] = "RUN_LATEST"
    entries: int
    shards: int
    fastest: float = 0.02
    slowest: float = 0.06
    seed: int = 1


class Aws:
    """The tables and the queue."""

    def __init__(self, serving: Serving) -> None:
        self.calls: Counter[str] = Counter()
        self.sent = 0
        self.recorded = 0
        self.deleted = 0
        self._cursors: dict[str, str] = {}
        self._lease: dict[str, Any] | None = None
        job = a_job(
            _JOB_ID.strip("@"),
            uid=_UID.strip("@"),
            tenant=TENANT,
            since=serving.due_at,
            type="INTERVAL",
            schedule="P1D",
            misfire={"policy": serving.misfire},
        )
        self._job = json.dumps(
            {
                "tenant": {"S": TENANT},
                "job_id": {"S": _JOB_ID},
                "uid": {"S": _UID},
                "revision": {"N": "1"},
                "schedule_version": {"N": str(job.schedule_version)},
                "effective_from": {"S": isoformat(job.effective_from)},
                "state": {"S": job.state.value},
                "definition": {"S": json.dumps(job.definition.document())},
                "created_at": {"S": isoformat(job.created_at)},
                "updated_at": {"S": isoformat(job.updated_at)},
            }
        )
        decode_job(json.loads(self._job_item("job0")))  # fails here if it is not a job
        self._entries: dict[str, dict[str, str]] = {}
        for number in range(serving.entries):
            key = JobKey(TENANT, f"job{number}")
            entry = fire(key, _uid(key.job_id), job.schedule_version, serving.due_at)
            item = entry_item(entry, floor_minute(serving.due_at), serving.shards)
            bucket = self._entries.setdefault(item["bucket"]["S"], {})
            bucket[item["entry"]["S"]] = json.dumps(item, separators=(",", ":"))
        self._keys = {bucket: sorted(items) for bucket, items in self._entries.items()}

    @property
    def figures(self) -> Figures:
        return Figures(
            sent=self.sent, recorded=self.recorded, deleted=self.deleted, calls=dict(self.calls)
        )

    def answer(self, target: str, request: dict[str, Any]) -> tuple[int, str]:
        """Return the status and the body."""
        operation = target.partition(".")[2]
        self.calls[operation] += 1
        do: Callable[[dict[str, Any]], Any] | None = getattr(self, f"_do_{operation}", None)
        if do is None:
            return 400, json.dumps({"__type": "UnknownOperationException", "message": target})
        done = do(request)
        if done is None:
            return 400, json.dumps(
                {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}
            )
        return 200, done if isinstance(done, str) else json.dumps(done)

    # DynamoDB

    def _do_Query(self, request: dict[str, Any]) -> str:  # noqa: N802
        values = request.get("ExpressionAttributeValues", {})
        bucket = values.get(":bucket", {}).get("S", "")
        keys, items = self._keys.get(bucket, []), self._entries.get(bucket, {})
        start = bisect_left(keys, values.get(":since", {}).get("S", ""))
        end = bisect_left(keys, values[":before"]["S"]) if ":before" in values else len(keys)
        if after := request.get("ExclusiveStartKey"):
            start = max(start, bisect_left(keys, f"{after['entry']['S']}\0"))
        page: list[str] = []
        size, most = 0, request.get("Limit", len(keys))
        while start < end and len(page) < most and size < PAGE_BYTES:
            item = items.get(keys[start])
            start += 1
            if item is not None:
                page.append(item)
                size += len(item)
        last = ""
        if start < end:
            key = {"bucket": {"S": bucket}, "entry": {"S": keys[start - 1]}}
            last = f',"LastEvaluatedKey":{json.dumps(key)}'
        return f'{{"Items":[{",".join(page)}],"Count":{len(page)}{last}}}'

    def _do_BatchGetItem(self, request: dict[str, Any]) -> str:  # noqa: N802
        found: list[str] = []
        for table, asked in request["RequestItems"].items():
            if table == "jobs":
                items = [self._job_item(key["job_id"]["S"]) for key in asked["Keys"]]
            else:
                items = [self._cursor(key["id"]["S"]) for key in asked["Keys"]]
            found.append(f'"{table}":[{",".join(filter(None, items))}]')
        return f'{{"Responses":{{{",".join(found)}}},"UnprocessedKeys":{{}}}}'

    def _do_GetItem(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        if request["TableName"] == "jobs":
            return f'{{"Item":{self._job_item(request["Key"]["job_id"]["S"])}}}'
        lease = self._lease
        is_lease = request.get("Key", {}).get("id", {}).get("S", "").startswith("lease#")
        return {"Item": lease} if is_lease and lease is not None else {}

    def _do_PutItem(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        item = request["Item"]
        if request["TableName"] == "control":
            if item["id"]["S"].startswith("lease#"):
                self._lease = item
            else:
                self._cursors[item["id"]["S"]] = json.dumps(item)
        return {}

    def _do_UpdateItem(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        self.recorded += request["TableName"] == "runs"
        names = request.get("ExpressionAttributeNames", {})
        values = request.get("ExpressionAttributeValues", {})
        changed = {name: values[f":{name}"] for name in names.values() if f":{name}" in values}
        return {"Attributes": request["Key"] | changed}

    def _do_DeleteItem(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        self._delete(request["Key"])
        return {}

    def _do_TransactWriteItems(self, request: dict[str, Any]) -> Any:  # noqa: ARG002, N802, ANN401
        return {}

    def _do_BatchWriteItem(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        for writes in request["RequestItems"].values():
            for write in writes:
                if "DeleteRequest" in write:
                    self._delete(write["DeleteRequest"]["Key"])
        return '{"UnprocessedItems":{}}'

    def _delete(self, key: dict[str, Any]) -> None:
        items = self._entries.get(key["bucket"]["S"], {})
        self.deleted += items.pop(key["entry"]["S"], None) is not None

    def _job_item(self, job_id: str) -> str:
        return self._job.replace(_JOB_ID, job_id).replace(_UID, _uid(job_id))

    def _cursor(self, item_id: str) -> str:
        return self._cursors.get(item_id, "")

    # SQS

    def _do_SendMessageBatch(self, request: dict[str, Any]) -> Any:  # noqa: N802, ANN401
        self.sent += len(request["Entries"])
        done = [{"Id": each["Id"], "MessageId": each["Id"]} for each in request["Entries"]]
        return {"Successful": done, "Failed": []}

    def _do_GetQueueAttributes(self, request: dict[str, Any]) -> Any:  # noqa: ARG002, N802, ANN401
        names = ("", "NotVisible", "Delayed")
        return {"Attributes": {f"ApproximateNumberOfMessages{name}": "0" for name in names}}


def _uid(job_id: str) -> str:
    return f"u{job_id.removeprefix('job'):0>11}"


class Connection(asyncio.Protocol):
    """One connection: handles requests one at a time and answers each after its latency."""

    def __init__(self, aws: Aws, serving: Serving, dice: Random) -> None:
        self._aws, self._serving, self._dice = aws, serving, dice
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (at := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:at].decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            end = at + 4 + int(headers.get("content-length", 0))
            if headers.get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[at + 4 : end], self._buffer[end:]
            self._respond(first, headers, body)

    def _respond(self, first: str, headers: dict[str, str], body: bytes) -> None:
        if first.startswith("GET /figures"):
            self._write(200, self._aws.figures.model_dump_json(), "application/json")
            return
        target = headers.get("x-amz-target", "")
        status, text = self._aws.answer(target, json.loads(body or b"{}"))
        latency = self._dice.uniform(self._serving.fastest, self._serving.slowest)
        kind = headers.get("content-type", "application/x-amz-json-1.0")
        asyncio.get_running_loop().call_later(latency, self._write, status, text, kind)

    def _write(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        if not self._transport.is_closing():
            self._transport.write(head.encode() + body)


async def main(serving: Serving) -> None:
    aws, dice = Aws(serving), Random(serving.seed)  # noqa: S311 — no secret
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(aws, serving, dice), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Serving.model_validate_json(sys.argv[1])))
