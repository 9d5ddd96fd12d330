"""AWS simulated by moto, with callers that may die at any of their calls.

botocore's hooks see each call, so every call of the SDK counts, wherever it is made.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.awsrequest import (  # noqa: TID251 — what the hooks receive
    AWSPreparedRequest,
    AWSResponse,
)
from botocore.exceptions import ReadTimeoutError  # noqa: TID251 — what the SDK raises
from moto.backends import get_backend
from moto.core.botocore_stubber import MockRawResponse
from moto.core.model_instances import model_data
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.core.utils import unix_time

from nextfire.adapters.aws import clients
from nextfire.adapters.dynamodb.items import Item, from_item
from nextfire.domain.instants import from_ms
from tests.fakes import Killed
from tests.integration.conftest import REGION

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

C = TypeVar("C")

_COPIED = ("dynamodb", "sqs", "events")
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_THROTTLED = b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'
_THROTTLED_QUERY = b"""<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code>
<Message>Rate exceeded</Message></Error></ErrorResponse>"""
_PARTS = {
    "BatchWriteItem": "RequestItems",
    "SendMessageBatch": "Entries",
    "DeleteMessageBatch": "Entries",
    "ChangeMessageVisibilityBatch": "Entries",
    "PutEvents": "Entries",
}
"""The calls whose parts AWS handles one by one, with the key of the parts in the request."""
_ADAPTERS = str(Path(clients.__file__).parents[1])


class Fate(Enum):
    """What happens to a call."""

    BEFORE = "killed before it"
    AFTER = "killed after it"
    PART = "killed when all but one part of it was done"
    REPEATED = "done, its answer lost: the SDK retries it"
    LOST = "done, its answer lost at each retry of the SDK"
    REFUSED = "throttled at each retry of the SDK"


KILLS = (Fate.BEFORE, Fate.AFTER)
FAULTS = (Fate.REPEATED, Fate.LOST, Fate.REFUSED)


@dataclass(frozen=True, slots=True)
class Point:
    """The *call*-th call, from 0, since the last kill, and its fate. `part`: the part of a batch,
    from 0, that was not done.
    """

    call: int
    fate: Fate
    part: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The content of AWS and what the test remembers; `moment`: the time and the beats of leases,
    which are all that an idle system changes.
    """

    there: str
    moment: str


@dataclass(frozen=True, slots=True)
class Call:
    """A counted call. `process` made it; `before`, `after`: the state of AWS around it, if states
    were recorded; `parts`: number of parts of a batch, otherwise 1; `site`: the adapter's function
    that makes the call.
    """

    name: str
    process: str
    parts: int = 1
    site: str = ""
    before: State | None = None
    after: State | None = None


class Cloud:
    """moto's account, which a test may restore to a snapshot.

    `calls`: the calls counted since the last kill, or since `expect`; `records_states`: whether the
    states around each call are recorded, which takes time; `memory`: what the test remembers that
    is not in AWS, as part of the state; `died`: the processes that died since `expect`;
    `unanswered`: the sites of calls that had no answer, or a throttle, since then.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.died: Counter[str] = Counter()
        self.unanswered: set[str] = set()
        self.records_states = False
        self.memory: Callable[[], object] = tuple
        self._plan: deque[Point] = deque()
        self._taken: Counter[Callable[[], Any]] = Counter()

    def client(self, make: Callable[[], C], process: Process) -> C:
        """A client for *process*, made by *make* or reused."""
        pooled, number = _clients[make], self._taken[make]
        if number == len(pooled):
            pooled.append(_PooledClient(make()))
        self._taken[make] += 1
        pooled[number].process = process
        return cast("C", pooled[number].client)

    def expect(self, *points: Point) -> None:
        """Count from now on, and let each of *points* happen, one after the other."""
        self._plan = deque(points)
        self.died.clear()
        self.unanswered.clear()
        self.calls = []

    @property
    def left(self) -> int:
        """Number of expected points that have not happened."""
        return len(self._plan)

    def count(self, call: Call) -> Point | None:
        """Count *call*. Returns its point if it has a fate."""
        if self._plan and self._plan[0].call == len(self.calls):
            point = self._plan.popleft()
            if point.fate in (Fate.LOST, Fate.REFUSED):
                self.unanswered.add(call.site)
            return point
        self.calls.append(replace(call, before=self.state()) if self.records_states else call)
        return None

    def done(self) -> None:
        """The call that was counted last is complete."""
        if self.records_states and self.calls:
            self.calls[-1] = replace(self.calls[-1], after=self.state())

    def killed(self, process: str) -> None:
        """*process* died: count from 0 for what follows."""
        self.died[process] += 1
        self.calls = []

    # The content of AWS, without calls

    def items(self, table: str) -> list[dict[str, Any]]:
        """The items of *table* as plain values."""
        return [from_item(item) for item in self.raw(table)]

    def raw(self, table: str) -> list[Item]:
        rows = _backend("dynamodb").tables[table].items.values()
        found = [i for row in rows for i in (row.values() if isinstance(row, dict) else [row])]
        return [item.to_json()["Attributes"] for item in found]

    def messages(self, queue: str) -> list[Any]:
        """The messages in *queue* as moto stores them, including those in flight."""
        return list(_backend("sqs").queues[queue]._messages)  # noqa: SLF001 — without receiving them

    def sent(self, queue: str) -> list[datetime]:
        """The arrival time of each message that *queue* did not drop as a repetition."""
        seen = _backend("sqs").queues[queue].__dict__.get("seen", {})
        return [from_ms(since // timedelta(milliseconds=1)) for since in seen.values()]

    def purge(self, queue: str) -> None:
        """Delete all messages in *queue*."""
        there = _backend("sqs").queues[queue]
        there._messages.clear()  # noqa: SLF001 — without SQS's limit of one purge a minute
        there._pending_messages.clear()  # noqa: SLF001 — or moto keeps their groups forever

    def state(self) -> State:
        """The whole state: AWS without generated ids, `memory`, and the moment."""
        tables, queues = _backend("dynamodb"), _backend("sqs")
        items = [(name, dict(item)) for name in tables.tables for item in self.raw(name)]
        beats = sorted(str(item.pop("beat")) for _, item in items if "beat" in item)
        lines = [f"{name} {sorted(item.items())}" for name, item in items]
        buckets = _backend("s3", "aws").buckets
        lines += [f"{name} {key} {buckets[name].keys[key].etag}" for name, key in _files()]
        lines += [
            f"{name} {m.body} {m.visible_at} {m.approximate_receive_count} {m.deduplication_id}"
            for name in queues.queues
            for m in self.messages(name)
        ]
        text = "\n".join([repr(self.memory()), *sorted(lines)])
        there = hashlib.blake2s(text.encode()).hexdigest()
        return State(there, f"{unix_time()} {beats}")

    def snapshot(self) -> Callable[[], None]:
        """Returns a function that restores the present state of AWS, any number of times."""
        backends = [_backend(service) for service in _COPIED]
        kept = [copy.deepcopy(vars(b), _uncopied(backends)) for b in backends]
        files = set(_files())

        def restore() -> None:
            self._taken.clear()  # those processes have ended
            for backend, values in zip(backends, kept, strict=True):
                fresh = copy.deepcopy(values, _uncopied(backends, values))
                vars(backend).clear()
                vars(backend).update(fresh)
            for bucket, key in set(_files()) - files:
                keys = _backend("s3", "aws").buckets[bucket].keys
                keys[key].dispose()
                del keys[key]
            for models in model_data.values():
                for model in models.values():
                    model.instances_tracked.clear()  # type: ignore[attr-defined] # or they accumulate

        return restore


_clients: dict[Callable[[], Any], list[_PooledClient]] = defaultdict(list)
"""The clients of all tests: creating one takes longer than hundreds of calls."""


def _backend(service: Any, region: str = REGION) -> Any:
    return get_backend(service)[DEFAULT_ACCOUNT_ID][region]


def _files() -> Iterator[tuple[str, str]]:
    for name, bucket in _backend("s3", "aws").buckets.items():
        yield from ((name, key) for key in bucket.keys)


def _uncopied(backends: list[Any], *values: dict[str, Any]) -> dict[int, Any]:
    """The memo of a copy that keeps what cannot be copied or must keep its identity."""
    named = [each.get("queues", {}) for each in [*map(vars, backends), *values]]
    locks = [queue._messages_lock for queues in named for queue in queues.values()]  # noqa: SLF001
    return {id(thing): thing for thing in (*backends, *locks)}


class Process:
    """A process with its own SDK clients. Once it is dead, none of its calls reaches AWS from any
    `except`, `finally` or thread.

    *counted*: its calls count, so it may die.
    """

    def __init__(self, cloud: Cloud, what: str, *, counted: bool = True) -> None:
        self.dead = False
        self._what = what
        self._cloud = cloud
        self._counted = counted
        self._call = threading.local()  # a thread makes one call at a time

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        return self._cloud.client(clients.dynamodb, self)

    @cached_property
    def sqs(self) -> SQSClient:
        return self._cloud.client(clients.sqs, self)

    @cached_property
    def s3(self) -> S3Client:
        return self._cloud.client(clients.s3, self)

    @cached_property
    def events(self) -> EventBridgeClient:
        return self._cloud.client(clients.events, self)

    @cached_property
    def secrets(self) -> SecretsManagerClient:
        return self._cloud.client(clients.secretsmanager, self)

    @cached_property
    def parameters(self) -> SSMClient:
        return self._cloud.client(clients.ssm, self)

    @cached_property
    def sts(self) -> STSClient:
        return self._cloud.client(clients.sts, self)

    def begin(self, model: Any, params: Any, **_: object) -> None:
        """The SDK begins a call: a request, and possibly its retries."""
        if self.dead:
            raise Killed
        point = None
        if self._counted:
            parts = len(_parts(model.name, params["body"])[1]) if model.name in _PARTS else 1
            point = self._cloud.count(Call(model.name, self._what, parts, _site()))
        self._call.name = model.name
        self._call.point = point
        self._call.fate = None if point is None else point.fate
        self._call.sent = 0
        if self._call.fate is Fate.BEFORE:
            self._die()

    def send(self, event_name: str, request: AWSPreparedRequest, **_: object) -> Any:
        """The SDK sends a request. Returns the answer."""
        if self.dead:
            raise Killed
        self._call.sent += 1
        match self._call.fate:
            case Fate.AFTER:
                botocore_stubber(event_name, request)
                self._die()
            case Fate.PART:
                _leave_out(self._call.point.part, self._call.name, request)
                botocore_stubber(event_name, request)
                self._die()
            case Fate.LOST:
                botocore_stubber(event_name, request)
                raise ReadTimeoutError(endpoint_url=request.url)
            case Fate.REPEATED if self._call.sent == 1:
                botocore_stubber(event_name, request)
                raise ReadTimeoutError(endpoint_url=request.url)
            case Fate.REFUSED:
                return _refusal(request)
        return botocore_stubber(event_name, request)

    def end(self, **_: object) -> None:
        """The SDK has received the answer."""
        if self._counted and self._call.fate is None:
            self._cloud.done()

    def _die(self) -> None:
        self.dead = True
        self._cloud.killed(self._what)
        raise Killed


class _PooledClient:
    """An SDK client, used by one process after the other."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.process: Process | None = None
        hooks = client.meta.events
        hooks.register_first("before-call", self._begin)
        # The SDK calls all handlers, even after one has answered.
        hooks.unregister("before-send", botocore_stubber)
        hooks.register_first("before-send", self._send)
        hooks.register_last("after-call", self._end)

    def _begin(self, **call: Any) -> None:
        self._process.begin(**call)

    def _send(self, **call: Any) -> Any:
        return self._process.send(**call)

    def _end(self, **call: Any) -> None:
        self._process.end(**call)

    @property
    def _process(self) -> Process:
        assert self.process is not None
        return self.process


def _refusal(request: AWSPreparedRequest) -> AWSResponse:
    if ".s3." in str(request.url) or "//s3." in str(request.url):
        return _answer(request, 503, "application/xml", _SLOW_DOWN)
    if "//sts." in str(request.url):
        return _answer(request, 400, "text/xml", _THROTTLED_QUERY)
    return _answer(request, 400, "application/x-amz-json-1.0", _THROTTLED)


def _answer(request: AWSPreparedRequest, status: int, kind: str, body: bytes) -> AWSResponse:
    headers = {"content-type": kind}
    return AWSResponse(request.url, status, headers, MockRawResponse(body))  # type: ignore[arg-type]


def _parts(name: str, body: Any) -> tuple[dict[str, Any], list[tuple[list[Any], int]]]:
    """The batch in *body*, and the positions of its parts: lists with an index."""
    document = json.loads(body)
    batch = document[_PARTS[name]]
    lists = list(batch.values()) if isinstance(batch, dict) else [batch]
    return document, [(each, index) for each in lists for index in range(len(each))]


def _leave_out(part: int, name: str, request: AWSPreparedRequest) -> None:
    document, parts = _parts(name, request.body)
    there, index = parts[part]
    del there[index]
    if isinstance(batch := document[_PARTS[name]], dict):
        document[_PARTS[name]] = {table: writes for table, writes in batch.items() if writes}
    request.body = json.dumps(document).encode()
    request.headers["Content-Length"] = str(len(request.body))


def _site() -> str:
    """The adapter's innermost function that makes the call."""
    frame = sys._getframe()  # noqa: SLF001 — a traceback per call takes far longer
    while frame is not None:
        path, _, name = frame.f_code.co_filename.rpartition("/")
        if path.rpartition("/")[0] == _ADAPTERS:
            return f"{name.removesuffix('.py')}.{frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
