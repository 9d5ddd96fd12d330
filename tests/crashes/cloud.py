"""AWS as moto plays it, with callers that may die at any of their calls.

What a call is, botocore's own hooks say: so each one counts that the SDK makes, whoever wrote it.
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

from botocore.awsrequest import (  # noqa: TID251 — what passes the hooks
    AWSPreparedRequest,
    AWSResponse,
)
from botocore.exceptions import ReadTimeoutError  # noqa: TID251 — what the SDK raises
from moto.backends import get_backend
from moto.core.botocore_stubber import MockRawResponse
from moto.core.model_instances import model_data
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.core.utils import unix_time

from nextfire.adapters import aws as clients
from nextfire.adapters.items import Item, from_item
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
"""The calls whose parts AWS does one by one, and where they stand in the request."""
_ADAPTERS = str(Path(clients.__file__).parent)


class Fate(Enum):
    """What becomes of a call."""

    BEFORE = "killed before it"
    AFTER = "killed after it"
    PART = "killed when all but one part of it was done"
    REPEATED = "done, its answer lost: the SDK sends it again"
    LOST = "done, its answer lost each time the SDK sends it"
    REFUSED = "throttled each time the SDK sends it"


KILLS = (Fate.BEFORE, Fate.AFTER)
FAULTS = (Fate.REPEATED, Fate.LOST, Fate.REFUSED)


@dataclass(frozen=True, slots=True)
class Point:
    """The *call*-th of the calls (from 0) that are counted from the last kill on, and its fate.
    `part`: of a batch, the one (from 0) that was not done.
    """

    call: int
    fate: Fate
    part: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What there is in AWS, and what the world knows beside; and the `moment` at which it is so,
    with the beats of leases: an idle system changes but these.
    """

    there: str
    moment: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was counted. `process` made it; `before` and `after`: how it found AWS, and how
    it left it, if that was looked at. `parts`: how many there are of a batch, else 1. `site`: the
    adapter's function that makes the call.
    """

    name: str
    process: str
    parts: int = 1
    site: str = ""
    before: State | None = None
    after: State | None = None


class Cloud:
    """moto's one account, which a test may set back to where it was.

    `calls`: what was counted since the last kill, or since the plan was made. `looks`: whether it
    is looked at what a call changes; that takes a while. `memory`: what the world knows that is not
    in AWS, as it is looked at. `died`: which processes have, since the plan was made.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.died: Counter[str] = Counter()
        self.looks = False
        self.memory: Callable[[], object] = tuple
        self._plan: deque[Point] = deque()
        self._lines: dict[Callable[[], Any], list[_Line]] = defaultdict(list)
        self._taken: Counter[Callable[[], Any]] = Counter()

    def client(self, make: Callable[[], C], process: Process) -> C:
        """A client that *process* has for itself, of those that *make* makes."""
        lines, number = self._lines[make], self._taken[make]
        if number == len(lines):
            lines.append(_Line(make()))
        self._taken[make] += 1
        lines[number].process = process
        return cast("C", lines[number].client)

    def expect(self, *points: Point) -> None:
        """Count from now on, and let each of *points* happen, one after the other."""
        self._plan = deque(points)
        self.died.clear()
        self.calls = []

    @property
    def left(self) -> int:
        """How many of the expected points have not happened."""
        return len(self._plan)

    def count(self, call: Call) -> Point | None:
        """Count *call*. Returns what becomes of it, if that is something special."""
        if self._plan and self._plan[0].call == len(self.calls):
            return self._plan.popleft()
        self.calls.append(replace(call, before=self.state()) if self.looks else call)
        return None

    def done(self) -> None:
        """The call that was counted last has been done."""
        if self.looks and self.calls:
            self.calls[-1] = replace(self.calls[-1], after=self.state())

    def killed(self, process: str) -> None:
        """*process* died: what is counted from now on is what comes after."""
        self.died[process] += 1
        self.calls = []

    # What is in AWS, to look at without a call

    def items(self, table: str) -> list[dict[str, Any]]:
        """The items of *table* as plain values."""
        return [from_item(item) for item in self.raw(table)]

    def raw(self, table: str) -> list[Item]:
        rows = _backend("dynamodb").tables[table].items.values()
        found = [i for row in rows for i in (row.values() if isinstance(row, dict) else [row])]
        return [item.to_json()["Attributes"] for item in found]

    def messages(self, queue: str) -> list[Any]:
        """The messages in *queue* as moto has them, those in flight too."""
        return list(_backend("sqs").queues[queue]._messages)  # noqa: SLF001 — without receiving them

    def sent(self, queue: str) -> list[datetime]:
        """When each message came that *queue* did not drop as a repetition."""
        seen = _backend("sqs").queues[queue].__dict__.get("seen", {})
        return [from_ms(since // timedelta(milliseconds=1)) for since in seen.values()]

    def purge(self, queue: str) -> None:
        """Throw away what is in *queue*."""
        there = _backend("sqs").queues[queue]
        there._messages.clear()  # noqa: SLF001 — without SQS's minute of patience
        there._pending_messages.clear()  # noqa: SLF001 — or moto keeps their groups for ever

    def state(self) -> State:
        """All that there is, and `memory`, and when; ids that the service makes up left out."""
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
        """Returns what sets AWS back to the present state, any number of times."""
        backends = [_backend(service) for service in _COPIED]
        kept = [copy.deepcopy(vars(b), _uncopied(backends)) for b in backends]
        files = set(_files())

        def restore() -> None:
            self._taken.clear()  # those processes are no more
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
                    model.instances_tracked.clear()  # type: ignore[attr-defined] # or they pile up

        return restore


def _backend(service: Any, region: str = REGION) -> Any:
    return get_backend(service)[DEFAULT_ACCOUNT_ID][region]


def _files() -> Iterator[tuple[str, str]]:
    for name, bucket in _backend("s3", "aws").buckets.items():
        yield from ((name, key) for key in bucket.keys)


def _uncopied(backends: list[Any], *values: dict[str, Any]) -> dict[int, Any]:
    """The memo of a copy that leaves alone what cannot be copied or must stay what it is."""
    named = [each.get("queues", {}) for each in [*map(vars, backends), *values]]
    locks = [queue._messages_lock for queues in named for queue in queues.values()]  # noqa: SLF001
    return {id(thing): thing for thing in (*backends, *locks)}


class Process:
    """A process with SDK clients of its own. Once it is dead none of its calls reaches AWS, from
    no `except`, no `finally` and no thread.

    *counted*: its calls count, and so it may die.
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
        """The SDK begins a call: a request, and perhaps its repetitions."""
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

    def send(self, event_name: str, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        """The SDK sends a request. Without an answer from here moto answers."""
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
        return None

    def end(self, **_: object) -> None:
        """The SDK has its answer."""
        if self._counted and self._call.fate is None:
            self._cloud.done()

    def _die(self) -> None:
        self.dead = True
        self._cloud.killed(self._what)
        raise Killed


class _Line:
    """A client of the SDK, which is one process's after the other: to make one takes a while."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.process: Process | None = None
        hooks = client.meta.events
        hooks.register_first("before-call", self._begin)
        hooks.register_first("before-send", self._send)
        hooks.register_last("after-call", self._end)

    def _begin(self, **call: Any) -> None:
        self._process.begin(**call)

    def _send(self, **call: Any) -> AWSResponse | None:
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
    """The batch in *body*, and where its parts stand in it: lists with an index."""
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
    """The adapter's function that makes the call: the innermost one."""
    frame = sys._getframe()  # noqa: SLF001 — a traceback of each call would take far longer
    while frame is not None:
        path, _, name = frame.f_code.co_filename.rpartition("/")
        if path == _ADAPTERS:
            return f"{name.removesuffix('.py')}.{frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
