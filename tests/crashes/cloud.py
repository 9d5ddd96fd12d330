"""AWS simulated by moto: its content, snapshots of it, and the count of calls."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from moto.core.model_instances import model_data
from moto.core.utils import unix_time

from nextfire.adapters.dynamodb.items import Item, from_item
from nextfire.domain.instants import from_ms
from tests.crashes.fates import Call, Fate, Point, State
from tests.crashes.process import PooledClient, Process
from tests.integration import moto_content
from tests.integration.moto_content import backend

C = TypeVar("C")

_COPIED = ("dynamodb", "sqs", "events")


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
            pooled.append(PooledClient(make()))
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
        return moto_content.items(table)

    def messages(self, queue: str) -> list[Any]:
        """The messages in *queue* as moto stores them, including those in flight."""
        return list(backend("sqs").queues[queue]._messages)  # noqa: SLF001 — without receiving them

    def sent(self, queue: str) -> list[datetime]:
        """The arrival time of each message that *queue* did not drop as a repetition."""
        seen = backend("sqs").queues[queue].__dict__.get("seen", {})
        return [from_ms(since // timedelta(milliseconds=1)) for since in seen.values()]

    def purge(self, queue: str) -> None:
        """Delete all messages in *queue*."""
        purged = backend("sqs").queues[queue]
        purged._messages.clear()  # noqa: SLF001 — without SQS's limit of one purge a minute
        purged._pending_messages.clear()  # noqa: SLF001 — or moto keeps their groups forever

    def state(self) -> State:
        """The whole state: AWS without generated ids, `memory`, and the moment."""
        queues = backend("sqs")
        items = [(name, dict(item)) for name in moto_content.tables() for item in self.raw(name)]
        beats = sorted(str(item.pop("beat")) for _, item in items if "beat" in item)
        lines = [f"{name} {sorted(item.items())}" for name, item in items]
        lines += map(" ".join, moto_content.objects())
        lines += [
            f"{name} {m.body} {m.visible_at} {m.approximate_receive_count} {m.deduplication_id}"
            for name in queues.queues
            for m in self.messages(name)
        ]
        text = "\n".join([repr(self.memory()), *sorted(lines)])
        content = hashlib.blake2s(text.encode()).hexdigest()
        return State(content, f"{unix_time()} {beats}")

    def snapshot(self) -> Callable[[], None]:
        """Returns a function that restores the present state of AWS, any number of times."""
        backends = [backend(service) for service in _COPIED]
        kept = [copy.deepcopy(vars(b), _uncopied(backends)) for b in backends]
        files = _files()

        def restore() -> None:
            self._taken.clear()  # those processes have ended
            for each, values in zip(backends, kept, strict=True):
                fresh = copy.deepcopy(values, _uncopied(backends, values))
                vars(each).clear()
                vars(each).update(fresh)
            for bucket, key in _files() - files:
                keys = backend("s3", "aws").buckets[bucket].keys
                keys[key].dispose()
                del keys[key]
            for models in model_data.values():
                for model in models.values():
                    model.instances_tracked.clear()  # type: ignore[attr-defined] # or they accumulate

        return restore


_clients: dict[Callable[[], Any], list[PooledClient]] = defaultdict(list)
"""The clients of all tests: creating one takes longer than hundreds of calls."""


def _files() -> set[tuple[str, str]]:
    return {(bucket, key) for bucket, key, _ in moto_content.objects()}


def _uncopied(backends: list[Any], *values: dict[str, Any]) -> dict[int, Any]:
    """The memo of a copy that keeps what cannot be copied or must keep its identity."""
    named = [each.get("queues", {}) for each in [*map(vars, backends), *values]]
    locks = [queue._messages_lock for queues in named for queue in queues.values()]  # noqa: SLF001
    return {id(thing): thing for thing in (*backends, *locks)}
