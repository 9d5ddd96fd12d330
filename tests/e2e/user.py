"""A user of the deployed stack: creates jobs, waits for their runs, sends messages."""

import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from tests.e2e.conftest import Stack

Document = dict[str, Any]
LONG = 60.0
"""Seconds after which a test stops waiting for a state."""

COUNTING = """
import json, os, sys, time
payload = json.load(sys.stdin)
with open(payload["marks"], "a") as marks:
    marks.write(os.environ["NEXTFIRE_EXECUTION_ID"] + "\\n")
time.sleep(payload.get("sleep", 0))
print("ran with", payload.get("word"))
"""


def until(check: Callable[[], Any], what: str, *, within: float = LONG) -> Any:
    """Return the result of *check* soon after it is true. Between two checks it waits three times
    as long as a check takes: checks compete for the CPU with what they wait for.
    """
    deadline = time.monotonic() + within
    while (began := time.monotonic()) < deadline:
        if found := check():
            return found
        time.sleep(min(max(0.1, 3 * (time.monotonic() - began)), 2))
    raise AssertionError(f"{what} did not happen within {within:.0f} s")


class User:
    """A user of the deployed stack, with a file in which scripts leave marks."""

    def __init__(self, stack: Stack, http: httpx2.Client, folder: Path) -> None:
        self.stack = stack
        self.http = http
        self.marks = folder / "marks"
        self.marks.touch()
        self.marks.chmod(0o666)  # each script may have its own user

    def call(self, method: str, path: str, body: object = None, expect: int = 200) -> Document:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == expect, answer.text
        document: Document = answer.json()
        return document

    def create(self, **definition: object) -> Document:
        return self.call("POST", "/v1/jobs", definition, 201)

    def once(self, at: datetime, *, handler: str, pool: str = "default", **more: Any) -> Document:
        payload = {"marks": str(self.marks), **more.pop("payload", {})}
        target = more.pop("target", {"pool": pool, "handler": handler})
        schedule = at.isoformat()
        return self.create(type="ONCE", schedule=schedule, target=target, payload=payload, **more)

    def runs(self, job: Document) -> list[Document]:
        items: list[Document] = self.call("GET", f"/v1/jobs/{job['jobId']}/executions")["items"]
        return items

    def ended(self, job: Document, count: int = 1) -> list[Document]:
        """The job's runs, once *count* of them have ended."""

        def check() -> list[Document] | None:
            runs = self.runs(job)
            over = [run for run in runs if run["state"] in {"SUCCEEDED", "DEAD", "CANCELLED"}]
            return runs if len(over) >= count else None

        found: list[Document] = until(check, f"{count} ended runs of {job['jobId']}")
        return found

    def result(self, job: Document) -> Any:
        """The result of the job's only run, which succeeded."""
        [run] = self.ended(job)
        assert run["state"] == "SUCCEEDED", run
        return self.call("GET", f"/v1/executions/{run['executionId']}")["result"]

    def marked(self) -> list[str]:
        """The execution ids that scripts have written, one per start of a script."""
        return self.marks.read_text().split()

    def send(self, run: Document, *, dispatch: int = 1, queue: str | None = None) -> None:
        """Send another message for *run*, with its own deduplication id, to the pool `default` or
        to *queue*.
        """
        run_id = run["executionId"].partition(".")[2]
        body = {
            "v": 1,
            "tenant": self.stack.info.account_id,
            "jobId": run["jobId"],
            "runId": run_id,
            "dispatch": dispatch,
            "dispatchedAt": run.get("dispatchedAt", run["scheduledAt"]),
        }
        self.send_text(json.dumps(body), queue=queue)

    def send_text(self, text: str, *, pool: str = "default", queue: str | None = None) -> None:
        unique = hashlib.sha256(f"{text}{time.time_ns()}".encode()).hexdigest()
        self.stack.client("sqs").send_message(
            QueueUrl=queue or self.stack.info.pools[pool].queue_url,
            MessageBody=text,
            MessageGroupId=unique,
            MessageDeduplicationId=unique,
        )

    def queue_is_empty(self, pool: str = "default") -> bool:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.stack.client("sqs").get_queue_attributes(
            QueueUrl=self.stack.info.pools[pool].queue_url, AttributeNames=names
        )["Attributes"]
        return all(int(attributes[name]) == 0 for name in names)

    def dead_letter(self, pool: str, holds: str) -> Document:
        """Remove and return the message of the pool's dead-letter queue whose body contains
        *holds*.
        """
        sqs, url = self.stack.client("sqs"), self.stack.info.pools[pool].dlq_url

        def receive() -> list[Any]:
            # Hidden for a moment only: the same test may ask for another message next.
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=5,
                MessageAttributeNames=["All"],
            )
            messages: list[Any] = answer.get("Messages", [])
            return messages

        def check() -> Document | None:
            while messages := receive():  # other tests leave thousands
                for message in messages:
                    if holds in message["Body"]:
                        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                        found: Document = message
                        return found
            return None

        letter: Document = until(check, f"a dead letter with {holds}")
        return letter


def soon(seconds: float = 2) -> datetime:
    """An instant *seconds* from now, in whole milliseconds."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def worker_of(run: Document) -> int:
    """The process id of the worker that owns the run."""
    return int(run["worker"].rpartition("-")[2])
