"""Calls per second of FIFO queues, their messages in flight, and the ids of receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.strict.exchange import Answer, Call, Document, Proceed, Upstream, refusal
from tests.strict.limits import HIGH_THROUGHPUT, HIGH_THROUGHPUT_ELSEWHERE
from tests.strict.rule import Circumstances, TokenBucket

_BATCH = "Batch"
_RATED = frozenset({"SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"})
_DEFAULT_VISIBILITY = 30


async def queue_attributes(upstream: Upstream, call: Call) -> Mapping[str, str]:
    request = {"QueueUrl": call.request["QueueUrl"], "AttributeNames": ["All"]}
    found = await upstream.ask(call, "GetQueueAttributes", request)
    attributes: Mapping[str, str] = found.get("Attributes", {})
    return attributes


@dataclass
class FifoRate:
    """Counts calls, not messages: a batch of ten is one call. With high throughput the limit is per
    region, and 300 for each message group.
    """

    here: Circumstances
    _buckets: dict[tuple[str, ...], TokenBucket] = field(default_factory=dict)
    _high: dict[str, bool] = field(default_factory=dict)
    name = "fifo-rate"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        action = call.operation.removesuffix(_BATCH)
        url = str(call.request.get("QueueUrl", ""))
        if call.service != "sqs" or action not in _RATED or not url.endswith(".fifo"):
            return await proceed(call)
        if url not in self._high:
            attributes = await queue_attributes(self.here.upstream, call)
            self._high[url] = attributes.get("FifoThroughputLimit") == "perMessageGroupId"
        high = self._high[url]
        if not self._takes((url, action), self._rate(call, high=high)):
            self.here.act(self.name, call)
            return refusal(call, "ThrottlingException", "Rate exceeded")
        if not high or action != "SendMessage":
            return await proceed(call)
        if call.operation == "SendMessage":
            return await self._single(call, proceed)
        return await self._batch(call, proceed)

    async def _single(self, call: Call, proceed: Proceed) -> Answer:
        if self._group_takes(call, str(call.request.get("MessageGroupId"))):
            return await proceed(call)
        self.here.act(self.name, call)
        return refusal(call, "ThrottlingException", "Rate exceeded")

    async def _batch(self, call: Call, proceed: Proceed) -> Answer:
        entries = call.request["Entries"]
        groups = {str(entry.get("MessageGroupId")) for entry in entries}
        full = {group for group in sorted(groups) if not self._group_takes(call, group)}
        rejected = [entry for entry in entries if str(entry.get("MessageGroupId")) in full]
        admitted = [entry for entry in entries if str(entry.get("MessageGroupId")) not in full]
        if not rejected:
            return await proceed(call)
        self.here.act(self.name, call, len(rejected))
        if not admitted:
            return refusal(call, "ThrottlingException", "Rate exceeded")
        answer = await proceed(call.with_request({**call.request, "Entries": admitted}))
        return _failed(answer, rejected)

    def _group_takes(self, call: Call, group: str) -> bool:
        place = (call.request["QueueUrl"], "SendMessage", group)
        return self._takes(place, self.here.strictness.rate("fifo-group-calls"))

    def _rate(self, call: Call, *, high: bool) -> float:
        if not high:
            return self.here.strictness.rate("fifo-calls")
        rate = HIGH_THROUGHPUT.get(call.region, HIGH_THROUGHPUT_ELSEWHERE)
        return max(rate * self.here.strictness.scale, 1.0)

    def _takes(self, place: tuple[str, ...], rate: float) -> bool:
        now = self.here.now()
        bucket = self._buckets.setdefault(place, TokenBucket(rate, now))
        if not bucket.has(now):
            return False
        bucket.take(1)
        return True


def _failed(answer: Answer, rejected: list[Document]) -> Answer:
    if not answer.ok:
        return answer
    document = answer.document
    document.setdefault("Failed", []).extend(
        {"Id": each["Id"], "Code": "ThrottlingException", "SenderFault": False,
         "Message": "Rate exceeded"}
        for each in rejected
    )  # fmt: skip
    return answer.with_document(document)


@dataclass
class InFlight:
    """A FIFO queue with too many messages in flight delivers none, without an error. Messages that
    the emulator's event source mappings receive are not seen.
    """

    here: Circumstances
    _until: dict[str, dict[str, float]] = field(default_factory=dict)
    _visibility: dict[str, float] = field(default_factory=dict)
    name = "in-flight"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        url = str(call.request.get("QueueUrl", ""))
        if call.service != "sqs" or not url.endswith(".fifo"):
            return await proceed(call)
        if call.operation == "ReceiveMessage":
            return await self._receive(call, proceed)
        answer = await proceed(call)
        if answer.ok:
            self._changed(call, self._until.setdefault(url, {}))
        return answer

    async def _receive(self, call: Call, proceed: Proceed) -> Answer:
        url, now = call.request["QueueUrl"], self.here.now()
        held = {key: until for key, until in self._until.get(url, {}).items() if until > now}
        self._until[url] = held
        if len(held) >= self.here.strictness.rate("fifo-in-flight"):
            self.here.act(self.name, call)
            await self.here.sleep(min(float(call.request.get("WaitTimeSeconds", 0)), 1.0))
            return Answer(200, ((b"content-type", b"application/x-amz-json-1.0"),), b"{}")
        if url not in self._visibility:
            attributes = await queue_attributes(self.here.upstream, call)
            found = attributes.get("VisibilityTimeout", _DEFAULT_VISIBILITY)
            self._visibility[url] = float(found)
        answer = await proceed(call)
        if answer.ok:
            hidden = float(call.request.get("VisibilityTimeout", self._visibility[url]))
            for message in answer.document.get("Messages", []):
                held[message["ReceiptHandle"]] = self.here.now() + hidden
        return answer

    def _changed(self, call: Call, held: dict[str, float]) -> None:
        """Follow what deletes a message or changes its visibility."""
        action = call.operation.removesuffix(_BATCH)
        for entry in call.request.get("Entries", [call.request]):
            receipt = entry.get("ReceiptHandle", "")
            if action == "DeleteMessage":
                held.pop(receipt, None)
            elif action == "ChangeMessageVisibility" and receipt in held:
                held[receipt] = self.here.now() + float(entry["VisibilityTimeout"])


@dataclass
class ReceiveIds:
    """A receive that repeats the id of an earlier one gets the same messages, while these are
    hidden. After a throttle, and after that time, the id is not valid any more. What deletes or
    shows a message does not end that time here, as it does on AWS.
    """

    here: Circumstances
    _answers: dict[str, tuple[Answer, float]] = field(default_factory=dict)
    name = "receive-ids"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        attempt = call.request.get("ReceiveRequestAttemptId")
        if call.operation != "ReceiveMessage" or attempt is None:
            return await proceed(call)
        if attempt not in self._answers:
            answer = await proceed(call)
            hidden = float(call.request.get("VisibilityTimeout", _DEFAULT_VISIBILITY))
            self._answers[attempt] = answer, self.here.now() + hidden
            return answer
        self.here.act(self.name, call)
        answer, until = self._answers[attempt]
        if answer.ok and self.here.now() < until:
            return answer
        return refusal(call, "InvalidParameterValue", "The receive call is not retryable.")
