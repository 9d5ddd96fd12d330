"""The pools' FIFO queues and dead-letter queues in SQS."""

from __future__ import annotations

import math
import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import chunks, concurrently, in_batch
from nextfire.adapters.aws.errors import (
    error_code,
    is_server_error,
    refused,
    translated,
    unanswered,
)
from nextfire.dataclass import dataclass, field
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.queues import MAX_FAILURE

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_BATCH_LIMIT = 10  # entries of one SendMessageBatch, a limit of SQS
_GONE = frozenset(
    {
        "InvalidParameterValue",
        "MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight",
        "ReceiptHandleIsInvalid",
    }
)
_MAX_HIDE = timedelta(hours=11, minutes=59)  # SQS counts its 12 h from the receive
_REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that SQS rejects in messages and attributes: all but those of XML 1.0."""


class SqsRunQueue:
    """`RunQueue` on SQS. *queues*: queue URLs by pool. Batches are sent concurrently."""

    def __init__(self, client: SQSClient, *, queues: Mapping[str, str], executor: Executor) -> None:
        self._client = client
        self._queues = queues
        self._executor = executor

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        by_queue: dict[str, list[int]] = defaultdict(list)
        for index, (pool, _) in enumerate(messages):
            if pool in self._queues:
                by_queue[self._queues[pool]].append(index)
        batches = [
            (url, chunk)
            for url, indexes in by_queue.items()
            for chunk in chunks(indexes, _BATCH_LIMIT)
        ]

        def send(batch: tuple[str, list[int]]) -> list[int]:
            url, indexes = batch

            def together(indexes: list[int]) -> list[int]:
                entries = [_parameters(messages[n][1]) | {"Id": str(n)} for n in indexes]
                answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
                return [int(entry["Id"]) for entry in answer.get("Successful", [])]

            def alone(index: int) -> None:
                self._client.send_message(QueueUrl=url, **_parameters(messages[index][1]))

            # The deduplication ids make it safe to send the entries again.
            return in_batch(indexes, together, alone)

        return {index for sent in concurrently(self._executor, send, batches) for index in sent}

    def backlog(self, pool: str) -> int:
        if pool not in self._queues:
            return 0
        with translated("read backlog"):
            attributes = self._client.get_queue_attributes(
                QueueUrl=self._queues[pool],
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                ],
            )["Attributes"]
        return int(attributes["ApproximateNumberOfMessages"]) + int(
            attributes["ApproximateNumberOfMessagesNotVisible"]
        )


def _text(text: str) -> str:
    """*text*, truncated and without the characters that SQS rejects."""
    return _REFUSED.sub("?", text[:MAX_FAILURE])


def _parameters(message: RunMessage) -> Any:
    return {
        "MessageBody": message.encode(),
        "MessageGroupId": message.group,
        "MessageDeduplicationId": message.dedup,
    }


@dataclass(slots=True)
class SqsDelivery:
    """`FifoDelivery` of a message received from *queue_url*."""

    client: SQSClient
    queue_url: str
    body: str
    receipt_handle: str
    message_id: str
    group: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    receives: int = 1

    def hide(self, duration: timedelta) -> None:
        # Rounded up: a message that reappears a moment too early would have to be hidden again.
        seconds = math.ceil(min(max(duration, timedelta()), _MAX_HIDE).total_seconds())
        try:
            with translated("change message visibility"):
                self.client.change_message_visibility(
                    QueueUrl=self.queue_url,
                    ReceiptHandle=self.receipt_handle,
                    VisibilityTimeout=seconds,
                )
        except refused() as error:
            if error_code(error) not in _GONE:
                raise


class SqsInbox:
    """Receives a pool's messages. `receive` is for one thread.

    *receiver*: the client of `receive`, if not *client*. Its timeout is longer than a poll, and it
    does not repeat requests: only `receive` knows which may be repeated under the same id.
    """

    def __init__(
        self, client: SQSClient, *, queue_url: str, receiver: SQSClient | None = None
    ) -> None:
        self._client = client
        self._receiver = receiver or client
        self._queue_url = queue_url
        self._unanswered: str | None = None  # id of the last receive, if its response was lost

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> list[SqsDelivery]:
        """Receive up to *most* (1 to 10) messages; wait at most *wait* (≤ 20 s) for the first.

        *hidden_for*: visibility timeout of the received messages.

        If the response is lost, its messages are hidden. The next call has the same id, and SQS
        returns the same messages. After any other failure SQS may reject the id.
        """
        attempt = self._unanswered or uuid.uuid4().hex
        self._unanswered = None
        with translated("receive messages"):
            try:
                answer = self._receiver.receive_message(
                    QueueUrl=self._queue_url,
                    MaxNumberOfMessages=most,
                    WaitTimeSeconds=int(wait.total_seconds()),
                    VisibilityTimeout=int(hidden_for.total_seconds()),
                    MessageSystemAttributeNames=["MessageGroupId", "ApproximateReceiveCount"],
                    ReceiveRequestAttemptId=attempt,
                )
            except refused() as error:
                self._unanswered = attempt if is_server_error(error) else None
                raise
            except unanswered():
                self._unanswered = attempt
                raise
        return [
            SqsDelivery(
                self._client,
                self._queue_url,
                message["Body"],
                message["ReceiptHandle"],
                message["MessageId"],
                message.get("Attributes", {}).get("MessageGroupId", ""),
                receives=int(message.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
            )
            for message in answer.get("Messages", [])
        ]

    def acknowledge(self, deliveries: Sequence[SqsDelivery]) -> list[str]:
        """Delete *deliveries*, at most 10. SQS redelivers messages that are not deleted.

        Returns:
            The failures: message id and error code.
        """
        entries: Any = [
            {"Id": str(index), "ReceiptHandle": delivery.receipt_handle}
            for index, delivery in enumerate(deliveries)
        ]
        with translated("acknowledge messages"):
            answer = self._client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)
        return _refusals(deliveries, answer.get("Failed", []))

    def show(self, deliveries: Sequence[SqsDelivery]) -> list[str]:
        """Make *deliveries*, at most 10, visible to other consumers immediately.

        Returns:
            The failures: message id and error code. These messages reappear when their visibility
            timeout ends.
        """
        entries: Any = [
            {"Id": str(index), "ReceiptHandle": delivery.receipt_handle, "VisibilityTimeout": 0}
            for index, delivery in enumerate(deliveries)
        ]
        with translated("make messages visible"):
            answer = self._client.change_message_visibility_batch(
                QueueUrl=self._queue_url, Entries=entries
            )
        return _refusals(deliveries, answer.get("Failed", []))


def _refusals(deliveries: Sequence[SqsDelivery], failed: Sequence[Any]) -> list[str]:
    return [f"{deliveries[int(each['Id'])].message_id}: {each['Code']}" for each in failed]


class SqsDeadLetters:
    """`DeadLetters` on a pool's dead-letter queue. The attribute ``failure`` holds the failure."""

    def __init__(self, client: SQSClient, *, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        with translated("put dead letter"):
            self._client.send_message(
                QueueUrl=self._queue_url,
                MessageBody=body,
                MessageGroupId=dedup,
                MessageDeduplicationId=dedup,
                MessageAttributes={
                    "failure": {"DataType": "String", "StringValue": _text(failure) or "-"}
                },
            )
