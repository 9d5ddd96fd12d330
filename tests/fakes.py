"""In-memory fakes of all ports. Each passes the contract suite of its adapter (tests/integration).

Attributes and methods that the port does not have simulate faults: `freeze` (stale reads),
`refuses` (partial failures), `spoil` (undecodable items). `Faults` makes whole calls fail and kills
the process between two calls.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

from nextfire.domain import run_writes
from nextfire.domain.audit import Audit
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.chain import Batch
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.events import Event
from nextfire.domain.ids import JOB_ID, JobKey, RunFolder, RunKey, dedup_id, first_run_id
from nextfire.domain.instants import cut, from_ms, parse_instant, to_ms
from nextfire.domain.job import Job
from nextfire.domain.keys import ApiKey, ending, revoked
from nextfire.domain.masking import Masker
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.pages import Page, Scan, Unreadable
from nextfire.domain.ports.requests import REQUESTS_KEPT, KeptRequest
from nextfire.domain.ports.runs import Claim, Written
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.domain.quotas import too_many_jobs
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire.domain.request_limits import RequestLimit, Taken, take, to_us
from nextfire.domain.run import Run, RunState, Value
from nextfire.domain.script import (
    FetchedScript,
    ScriptKey,
    ScriptSource,
    ScriptVersion,
    StoredScript,
    Upload,
)
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.handled import Handled

P = TypeVar("P")
T = TypeVar("T")

DEDUP_WINDOW = timedelta(minutes=5)
_NO_WAIT = timedelta()
_CLOCKS_DIFFER = timedelta(minutes=1)
_STAMP = 13
_CURSOR = "after:"
_MAX_FAILURE = 1000


class Clock:
    """`Clock` that moves only when a test moves it."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, by: timedelta = _NO_WAIT, /, **units: float) -> datetime:
        """Advance by *by* plus *units* (``seconds=2``)."""
        return self.move_to(self._at + by + timedelta(**units))

    def move_to(self, at: datetime) -> datetime:
        self._at = at
        return at

    def sleep(self, duration: timedelta) -> None:
        self.advance(duration)


class MovingClock(Protocol):
    """The clock on which a script's time passes."""

    def now(self) -> datetime: ...

    def advance(self, by: timedelta = ..., /, **units: float) -> object: ...


class Killed(BaseException):
    """The process died here, as by SIGKILL. `except Exception` does not catch it."""


class InlineExecutor(Executor):
    """Runs each call immediately."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 — as an executor does
            future.set_exception(error)
        return future


class _LateFuture(Future[T]):
    def __init__(self, do: Callable[[], T]) -> None:
        super().__init__()
        self._do = do

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            try:
                self.set_result(self._do())
            except Exception as error:  # noqa: BLE001 — as an executor does
                self.set_exception(error)
        return super().result(timeout)


class LateExecutor(Executor):
    """Runs each call only when its result is requested: the reverse order of concurrent calls."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return _LateFuture(lambda: fn(*args, **kwargs))


class Faults:
    """A proxy between a use case and its ports: logs the calls and makes chosen ones fail.

    A call is named by its port and method: ``due.put``.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._kill_after: int | None = None
        self._refused: dict[str, int] = {}
        self._unanswered: dict[str, int] = {}
        self._hooks: dict[str, Callable[[], object]] = {}
        self._before: dict[str, Callable[[], object]] = {}

    def kill_after(self, calls: int) -> None:
        """Raise `Killed` after *calls* more calls; 0: instead of the next call."""
        self._kill_after = len(self.calls) + calls

    def refuse(self, call: str, times: int = 1) -> None:
        """Make the next *times* calls of *call* raise `UnavailableError` without effect."""
        self._refused[call] = times

    def lose_answer(self, call: str, times: int = 1) -> None:
        """Make the next *times* calls of *call* take effect and raise `UnavailableError`."""
        self._unanswered[call] = times

    def call_before_next(self, call: str, do: Callable[[], object]) -> None:
        """Run *do* once, before the next *call*."""
        self._hooks[call] = do

    def call_before_each(self, call: str, do: Callable[[], object]) -> None:
        """Run *do* before every *call*, for example to let time pass."""
        self._before[call] = do

    def clear(self) -> None:
        self._kill_after = None
        self._refused.clear()
        self._unanswered.clear()
        self._hooks.clear()
        self._before.clear()

    def through(self, port: P, name: str) -> P:
        """Wrap *port* so that its calls pass through this proxy."""
        return cast("P", _Port(port, name, self))

    def call(self, name: str, do: Callable[[], T]) -> T:
        if self._kill_after is not None and len(self.calls) >= self._kill_after:
            raise Killed
        if name in self._hooks:
            self._hooks.pop(name)()
        self._before.get(name, lambda: None)()
        self.calls.append(name)
        if self._refused.get(name, 0) > 0:
            self._refused[name] -= 1
            raise UnavailableError(f"{name}: refused. Try again.")
        done = do()
        if self._kill_after is not None and len(self.calls) >= self._kill_after:
            raise Killed
        if self._unanswered.get(name, 0) > 0:
            self._unanswered[name] -= 1
            raise UnavailableError(f"{name}: no answer. Try again.")
        return done


class _Port:
    def __init__(self, port: Any, name: str, faults: Faults) -> None:
        self._port, self._name, self._faults = port, name, faults

    def __getattr__(self, method: str) -> Any:
        do = getattr(self._port, method)
        name = f"{self._name}.{method}"
        return lambda *args, **kwargs: self._faults.call(name, lambda: do(*args, **kwargs))


Junk = Mapping[str, str]
"""An item that does not decode."""


class MemoryDueStore:
    """`DueStore`."""

    def __init__(self, *, shards: int = 1) -> None:
        self.shards = shards
        self.items: dict[Slot, DueEntry | Junk] = {}
        self.page = 1_000
        self.quarantined: list[BrokenEntry] = []
        self.refuses: Callable[[DueEntry], bool] = lambda _: False
        self.deletes = True
        self._frozen: dict[Slot, DueEntry | Junk] | None = None
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[DueEntry]:
        """The decodable entries, by due instant."""
        found = (item for item in self.items.values() if isinstance(item, DueEntry))
        return sorted(found, key=lambda entry: entry.sort_key)

    def freeze(self) -> None:
        """From now on, eventually consistent reads see the current state."""
        self._frozen = dict(self.items)

    def thaw(self) -> None:
        self._frozen = None

    def spoil(self, slot: Slot, **values: str) -> None:
        """Put an item into *slot* that does not decode as an entry."""
        self.items[slot] = values

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        most = min(self.page, page or self.page)
        seen = self.items if consistent or self._frozen is None else self._frozen
        bucket = bucket_name(minute, shard)
        first = "" if since is None else f"{to_ms(since):013d}"
        first = first if after is None else f"{after.sort_key}\0"
        limit = None if before is None else f"{to_ms(before):013d}"

        def page_from(first: str) -> list[StoredEntry | BrokenEntry]:
            with self._lock:
                keys = sorted(
                    slot.sort_key
                    for slot in seen
                    if slot.bucket == bucket
                    and slot.sort_key >= first
                    and (limit is None or slot.sort_key < limit)
                )[:most]
                return [_read(slot, seen[slot]) for slot in (Slot(bucket, key) for key in keys)]

        while found := page_from(first):
            yield from found
            first = f"{found[-1].slot.sort_key}\0"

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        with self._lock:
            return {slot for slot in slots if slot in self.items}

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        stored = {entry for entry in entries if not self.refuses(entry)}
        with self._lock:
            for entry in stored:
                self.items[Slot(entry.bucket(now, self.shards), entry.sort_key)] = entry
        return stored

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        with self._lock:
            for each in entries:
                if not self.refuses(each.entry):
                    self.items[each.slot] = replace(each.entry, held=True)

    def delete(self, slots: Collection[Slot]) -> None:
        with self._lock:
            for slot in slots:
                if self.deletes:
                    self.items.pop(slot, None)

    def keep(self, entry: BrokenEntry, now: datetime) -> None:  # noqa: ARG002
        if not any(kept.raw is entry.raw for kept in self.quarantined):
            self.quarantined.append(entry)

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        with self._lock:
            self.keep(entry, now)
            if self.items.get(entry.slot) is entry.raw:
                del self.items[entry.slot]


def _read(slot: Slot, item: DueEntry | Junk) -> StoredEntry | BrokenEntry:
    return StoredEntry(slot, item) if isinstance(item, DueEntry) else _broken(slot, item)


def _broken(slot: Slot, item: Junk) -> BrokenEntry:
    stamp, hash_sign, _ = slot.sort_key.partition("#")
    whole = bool(hash_sign) and len(stamp) == _STAMP and stamp.isdigit()
    tenant, job_id = item.get("tenant", ""), item.get("job_id", "")
    owned = tenant and JOB_ID.fullmatch(job_id)
    return BrokenEntry(
        slot,
        item,
        "does not decode",
        from_ms(int(stamp)) if whole else None,
        JobKey(tenant, job_id) if owned else None,
    )


class MemoryJobStore:
    """`JobStore` that puts the first entries into *due*."""

    def __init__(self, due: MemoryDueStore) -> None:
        self._due = due
        self.items: dict[JobKey, Job] = {}
        self.counts: Counter[str] = Counter()
        """Number of counted jobs by tenant."""
        self.ever: list[Job] = []
        """All stored versions, in order."""
        self._frozen: dict[JobKey, Job] | None = None
        self._broken: set[JobKey] = set()
        self._lock = threading.Lock()

    def freeze(self) -> None:
        """From now on, eventually consistent `get_many` sees the current state."""
        self._frozen = dict(self.items)

    def thaw(self) -> None:
        self._frozen = None

    def spoil(self, key: JobKey) -> None:
        """Make the item of *key* undecodable; `repair` restores it."""
        self._broken.add(key)

    def repair(self, key: JobKey) -> None:
        self._broken.discard(key)

    def put(self, job: Job) -> None:
        """Store *job* unconditionally."""
        self._keep(_cut_job(job))

    def forget(self, key: JobKey) -> None:
        del self.items[key]

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        with self._lock:
            there = self.get(job.key)
            gone = former is not None and there is not None and there.uid == former.uid
            if there is not None and not (gone and there.state is JobState.CANCELLED):
                return there
            self._count(job, int(job.counted), most)
            self._write(job, first, now)
            self.counts[job.key.tenant] += int(job.counted)
            return None

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        with self._lock:
            there = self.items.get(job.key)
            if there is None or (there.uid, there.revision) != (job.uid, job.revision - 1):
                return there == _cut_job(job)
            self._count(job, counts, most)
            self._write(job, entry, now)
            self.counts[job.key.tenant] += counts
            return True

    def counted(self, tenant: str) -> int:
        return self.counts[tenant]

    def _count(self, job: Job, counts: int, most: int | None) -> None:
        if counts > 0 and most is not None and self.counts[job.key.tenant] >= most:
            raise too_many_jobs(most)

    def get(self, key: JobKey) -> Job | None:
        if key in self._broken:
            raise UndecodableError("job does not decode")
        return self.items.get(key)

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        seen = self.items if consistent or self._frozen is None else self._frozen
        found: dict[JobKey, Job | Exception] = {
            key: _without_payload(seen[key]) for key in keys if key in seen
        }
        return found | {
            key: UndecodableError("job does not decode") for key in keys if key in self._broken
        }

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        with self._lock:
            jobs = {key.job_id: job for key, job in self.items.items() if key.tenant == tenant}
        ids = sorted(jobs)
        if cursor is not None:
            after = _after(cursor)
            ids = [job_id for job_id in ids if job_id > after]
        page = ids[:limit]
        return Page([jobs[i] for i in page], _CURSOR + page[-1] if len(ids) > limit else None)

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        with self._lock:
            ids = sorted(key.job_id for key in self.items if key.tenant == tenant)
        return [job_id for job_id in ids if after is None or job_id > after][:limit]

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        def order(key: JobKey) -> tuple[str, str]:
            return key.tenant, key.job_id

        with self._lock:
            keys = sorted({*self.items, *self._broken}, key=order)
        keys = [key for key in keys if after is None or order(key) > order(after)]
        page = keys[:limit]
        return Scan(
            [self.items[key] for key in page if key not in self._broken],
            [(key, "job does not decode") for key in page if key in self._broken],
            page[-1] if len(keys) > limit else None,
        )

    def pause(self, job: Job, reason: str, now: datetime) -> bool:
        with self._lock:
            there = self.items.get(job.key)
            if there is None or (there.uid, there.revision) != (job.uid, job.revision):
                return False
            if there.state is not JobState.ACTIVE:
                return False
            paused = there.paused(now, reason)
            self._keep(
                replace(
                    paused,
                    revision=there.revision + 1,
                    updated_at=max(cut(now), there.updated_at),
                )
            )
            return True

    def complete(self, job: Job, now: datetime) -> bool:
        with self._lock:
            there = self.items.get(job.key)
            same = there is not None and (there.uid, there.schedule_version, there.state) == (
                job.uid,
                job.schedule_version,
                JobState.ACTIVE,
            )
            if there is None or not same:
                return False
            self.counts[job.key.tenant] -= int(there.counted)
            self._keep(
                replace(
                    there,
                    state=JobState.COMPLETED,
                    counted=False,
                    revision=there.revision + 1,
                    updated_at=cut(now),
                )
            )
            return True

    def _write(self, job: Job, entry: DueEntry | None, now: datetime) -> None:
        if entry is not None and not self._due.put([entry], now):
            raise UnavailableError("transaction cancelled. Try again.")
        self._keep(_cut_job(job))

    def _keep(self, job: Job) -> None:
        self.items[job.key] = job
        self.ever.append(job)


def _without_payload(job: Job) -> Job:
    return replace(job, definition=job.definition.model_copy(update={"payload": {}}))


def _cut_job(job: Job) -> Job:
    return replace(
        job,
        effective_from=cut(job.effective_from),
        created_at=cut(job.created_at),
        updated_at=cut(job.updated_at),
    )


def _after(cursor: str) -> str:
    if not cursor.startswith(_CURSOR):
        raise InvalidInputError("cursor", cursor, "not a cursor of this listing", "Use one of it.")
    return cursor.removeprefix(_CURSOR)


class MemoryControlStore:
    """`ControlStore`."""

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}
        self.moved: dict[int, tuple[datetime, int]] = {}
        self.audited: Audit | None = None
        self.taken: dict[str, tuple[datetime, int]] = {}
        self._lost: set[int] = set()
        self._spoilt = 0
        self._lock = threading.Lock()

    def spoil_lease(self, group: int) -> None:
        """Make the item of *group* undecodable; each call stores a different broken item."""
        self._spoilt += 1
        self.leases[group] = Lease("", 0, self._spoilt)

    def spoil_cursor(self, shard: int) -> None:
        """Make the item of *shard* undecodable."""
        self.moved.setdefault(shard, (from_ms(0), 0))
        self._lost.add(shard)

    def lease(self, group: int) -> Lease | None:
        return self.leases.get(group)

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        with self._lock:
            there = self.leases.get(group)
            same = (there and (there.epoch, there.beat)) == (was and (was.epoch, was.beat))
            if not same:
                return there == to
            self.leases[group] = to
            return True

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        with self._lock:
            there = {shard: self.moved[shard][0] for shard in range(shards) if shard in self.moved}
            sound = {
                shard: cursor
                for shard, cursor in there.items()
                if shard not in self._lost and cursor <= minute + timedelta(hours=1)
            }
            back = min([minute, *sound.values()]) - timedelta(days=1)
            for shard in set(range(shards)) - sound.keys():
                self.moved[shard] = (back if shard in there else minute, 0)
                self._lost.discard(shard)

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        return {
            shard: self.moved[shard][0]
            for shard in shards
            if shard in self.moved and shard not in self._lost
        }

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        with self._lock:
            _, by = self.moved.get(shard, (minute, 0))
            if by > epoch and shard not in self._lost:
                return False
            self.moved[shard] = (minute, epoch)
            self._lost.discard(shard)
            return True

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        with self._lock:
            there, taken = self.taken.get(tenant, (minute, 0))
            if not minute <= there <= minute + _CLOCKS_DIFFER:
                there, taken = minute, 0
            granted = max(min(wanted, most - taken), 0)
            self.taken[tenant] = (there, taken + granted)
            return granted

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        there, taken = self.taken.get(tenant, (minute, 0))
        return taken if minute <= there <= minute + _CLOCKS_DIFFER else 0

    def spoil_taken(self, tenant: str) -> None:
        """Make the item of *tenant* undecodable."""
        self.taken.pop(tenant, None)

    def audit(self) -> Audit | None:
        return self.audited

    def replace_audit(self, was: Audit | None, to: Audit) -> bool:
        with self._lock:
            if self.audited != was:
                return self.audited == to
            self.audited = to
            return True


@dataclass(slots=True)
class _Message:
    body: str
    group: str
    message_id: str
    visible_at: datetime
    receipt: int = 0
    receives: int = 0


class MemoryFifo:
    """A FIFO queue: deduplication within message groups, order within groups, visibility timeouts.
    A receipt expires as soon as its message becomes visible again.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._messages: list[_Message] = []
        self._sent: dict[tuple[str, str], datetime] = {}
        self._receipts = self._ids = 0
        self._lock = threading.Lock()
        self.order: Callable[[str], float] = lambda _: 0
        """Rank of a group: lower ranks are delivered first. Within a group, messages keep their
        order.
        """

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def bodies(self) -> list[str]:
        """The messages in the queue, visible or not, oldest first."""
        return [message.body for message in self._messages]

    def send(self, body: str, *, group: str, dedup: str) -> None:
        with self._lock:
            now = self._clock.now()
            if now - self._sent.get((group, dedup), now - DEDUP_WINDOW) >= DEDUP_WINDOW:
                self._sent[group, dedup] = now
                self._ids += 1
                self._messages.append(_Message(body, group, f"message-{self._ids}", now))

    def purge(self) -> None:
        """Delete all messages, as an operator may do by hand."""
        with self._lock:
            self._messages.clear()

    def receive(self, most: int, *, hidden_for: timedelta) -> list[MemoryDelivery]:
        """Receive up to *most* messages; none of a group with a message in flight."""
        with self._lock:
            now = self._clock.now()
            busy = {m.group for m in self._messages if m.visible_at > now}
            free = [m for m in self._messages if m.group not in busy]
            ranks = {group: self.order(group) for group in dict.fromkeys(m.group for m in free)}
            # in sending order within a group
            taken = sorted(free, key=lambda m: ranks[m.group])[:most]
            return [self._deliver(message, now + hidden_for) for message in taken]

    def hide(self, message: _Message, receipt: int, duration: timedelta) -> None:
        with self._lock:
            now = self._clock.now()
            if message.receipt == receipt and message.visible_at > now:
                message.visible_at = now + max(duration, timedelta())

    def delete(self, message: _Message, receipt: int) -> None:
        with self._lock:
            ours = message.receipt == receipt and message.visible_at > self._clock.now()
            if ours and message in self._messages:
                self._messages.remove(message)
                message.receipt = -1

    def _deliver(self, message: _Message, visible_at: datetime) -> MemoryDelivery:
        self._receipts += 1
        message.receipt, message.visible_at = self._receipts, visible_at
        message.receives += 1
        return MemoryDelivery(
            message.body,
            self,
            message,
            self._receipts,
            message.message_id,
            message.group,
            message.receives,
        )


@dataclass(slots=True)
class MemoryDelivery:
    """`Delivery`, with the id and the group of a `FifoDelivery`."""

    body: str
    queue: MemoryFifo
    message: _Message
    receipt: int
    message_id: str
    group: str
    receives: int = 1

    @property
    def token(self) -> str:
        return f"{self.queue.name}-{self.message_id}-{self.receipt}"

    def hide(self, duration: timedelta) -> None:
        self.queue.hide(self.message, self.receipt, duration)

    def acknowledge(self) -> None:
        self.queue.delete(self.message, self.receipt)


def show(deliveries: Sequence[MemoryDelivery]) -> list[str]:
    """Make *deliveries* visible, as `SqsInbox.show` does."""
    for delivery in deliveries:
        delivery.hide(timedelta())
    return []


class MemoryJournal:
    """`Journal`. `held`: the listed messages, in the order of reception."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def hold(self, deliveries: Sequence[Any]) -> None:
        self.held += deliveries

    def release(self, deliveries: Sequence[Any]) -> None:
        self.held = [held for held in self.held if all(held is not each for each in deliveries)]


class MemoryRunQueue:
    """`RunQueue` with one queue for each of *pools*. `log`: the accepted messages, in order."""

    def __init__(self, clock: Clock, pools: Collection[str] = ("default",)) -> None:
        self.queues = {pool: MemoryFifo(pool, clock) for pool in pools}
        self.log: list[RunMessage] = []
        self.refuses: Callable[[RunMessage], bool] = lambda _: False

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        sent = set()
        for index, (pool, message) in enumerate(messages):
            if pool not in self.queues or self.refuses(message):
                continue
            self.queues[pool].send(
                message.encode(),
                group=message.group,
                dedup=dedup_id(message.key, message.dispatch),
            )
            self.log.append(message)
            sent.add(index)
        return sent

    def of(self, pool: str) -> MemoryRunQueue:
        """The sending side of the queue of *pool* alone, as executors have it."""
        alone = copy(self)
        alone.queues = {pool: self.queues[pool]}
        return alone

    def backlog(self, pool: str) -> int:
        return len(self.queues[pool]) if pool in self.queues else 0


class MemoryNotices:
    """`Notices` of all loops. `defects`: errors other than outages."""

    def __init__(self) -> None:
        self.defects: list[Exception | str] = []
        self.outcomes: list[Handled] = []

    def warn(self, what: str, why: Exception | str) -> None:  # noqa: ARG002
        if isinstance(why, Exception) and not isinstance(why, UnavailableError):
            self.defects.append(why)

    def fail(self, what: str, why: Exception | str) -> None:  # noqa: ARG002
        self.defects.append(why)

    def assert_no_defect(self) -> None:
        if self.defects:
            why = self.defects[0]
            raise why if isinstance(why, Exception) else AssertionError(why)

    def handled(self, handled: Handled) -> None:
        self.outcomes.append(handled)

    def took_lease(self, group: int, epoch: int) -> None:
        pass

    def tick(self, report: TickReport) -> None:
        pass

    def flush(self) -> None:
        pass


class MemoryDeadLetters:
    """`DeadLetters`. `letters` are pairs of body and failure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, datetime] = {}
        self.letters: list[tuple[str, str]] = []

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        now = self._clock.now()
        if now - self._sent.get(dedup, now - DEDUP_WINDOW) >= DEDUP_WINDOW:
            self._sent[dedup] = now
            self.letters.append((body, failure[:_MAX_FAILURE] or "-"))


_by_run_id = attrgetter("run_id")


class MemoryRunStore:
    """`RunStore`."""

    def __init__(
        self, due: MemoryDueStore | None = None, jobs: MemoryJobStore | None = None
    ) -> None:
        self.items: dict[RunKey, Run] = {}
        self._due = due
        self._jobs = jobs
        self._broken: set[RunKey] = set()
        self._sorted: dict[JobKey, list[RunKey]] = {}
        self._indexed = 0
        self._lock = threading.Lock()

    @property
    def all(self) -> dict[RunKey, Run]:
        return dict(self.items)

    def _keys(self, job: JobKey) -> list[RunKey]:
        """The keys of *job*'s records, in order. New keys come last in `items`, so the length shows
        how many to insert; keys are removed only by `forget`.
        """
        for key in islice(reversed(self.items), len(self.items) - self._indexed):
            insort(self._sorted.setdefault(key.job, []), key, key=_by_run_id)
        self._indexed = len(self.items)
        return self._sorted.get(job, [])

    def forget(self, key: RunKey) -> None:
        """Delete the record of *key*."""
        del self.items[key]
        self._sorted, self._indexed = {}, 0

    def spoil(self, key: RunKey) -> None:
        """Make the item of *key* undecodable."""
        self._broken.add(key)

    def request_cancel(self, key: RunKey) -> None:
        self.items[key] = replace(self.items[key], cancel_requested=True)

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        with self._lock:
            there = self.get(message.key)
            run = run_writes.claimed(
                there,
                message,
                token=token,
                worker=worker,
                pool=pool,
                job_revision=job_revision,
                now=now,
                lease_until=lease_until,
            )
            if run is not None:
                return Claim(self._store(run), taken=True)
            assert there is not None, "an absent run is free"
            ours = there.state is RunState.RUNNING and there.claim_token == token
            return Claim(there, taken=ours)

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        with self._lock:
            there = self.get(was.key)
            if there is None:
                raise UnavailableError("advance run: the record is gone. Try again.")
            kept = run_writes.advanced(there, was, to, lapsed=lapsed)
            if kept is not None:
                return Claim(self._store(kept), taken=True)
            written = run_writes.as_stored(to)
            ours = (there.state, there.attempts) == (written.state, written.attempts)
            return Claim(there, taken=ours)

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        with self._lock:
            there = self.get(message.key)
            run = run_writes.cancelled(there, message, reason, now)
            if run is not None:
                return self._store(run)
            assert there is not None, "an absent run can be cancelled"
            return there

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        assert self._due is not None, "a store without a due store takes no requests"
        with self._lock:
            there = self.get(run.key)
            if there is not None:
                return Claim(there, taken=there.on_request and there.request == run.request)
            self._due.put([entry], now)
            return Claim(self._store(run), taken=True)

    def skip(self, run: Run) -> Run:
        with self._lock:
            there = self.get(run.key)
            if there is None and run.on_request:
                raise UnavailableError("skip run: the record is gone. Try again.")
            to = run_writes.skipped(there, run)
            if to is not None:
                return self._store(to)
            assert there is not None, "an absent run can be skipped"
            return there

    def reopen(self, run: Run) -> Claim:
        with self._lock:
            there = self.get(run.key)
            if there is None:
                return Claim(Run(run.key, RunState.CANCELLED), taken=False)
            if run_writes.may_reopen(there, run):
                return Claim(self._store(run), taken=True)
            ours = (there.state, there.dispatch) == (run.state, run.dispatch)
            return Claim(there, taken=ours)

    def await_parents(self, was: Run, to: Run) -> Claim:
        with self._lock:
            there = self.get(was.key)
            if there is None:
                return Claim(Run(to.key, RunState.CANCELLED), taken=False)
            if run_writes.may_await_parents(there, was):
                return Claim(self._store(to), taken=True)
            return Claim(there, taken=there.skipped_by_parents and there.dispatch == to.dispatch)

    def skip_next(self, run: Run, job: Job) -> Written:
        assert self._jobs is not None, "a store without a job store skips no occurrence"
        with self._lock:
            there = self._jobs.items.get(job.key)
            if there == _cut_job(job):
                return Written.DONE
            if there is None or (there.uid, there.revision) != (job.uid, job.revision - 1):
                return Written.CHANGED
            if self.get(run.key) is not None:
                return Written.REFUSED
            self._jobs.update(job, None, job.updated_at)
            self._store(run)
            return Written.DONE

    def unskip(self, run: RunKey, job: Job) -> Written:
        assert self._jobs is not None, "a store without a job store skips no occurrence"
        with self._lock:
            there = self._jobs.items.get(job.key)
            if there == _cut_job(job):
                return Written.DONE
            if there is None or (there.uid, there.revision) != (job.uid, job.revision - 1):
                return Written.CHANGED
            record = self.get(run)
            if record is None or not record.skip_requested:
                return Written.REFUSED
            self._jobs.update(job, None, job.updated_at)
            self.forget(run)
            return Written.DONE

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        with self._lock:
            there = self.get(run.key)
            if there is None:
                return replace(run, state=RunState.CANCELLED)
            to = run_writes.stopped(there, reason, now)
            return there if to is None else self._store(to)

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        def some(first: str, last: str) -> list[Run]:
            with self._lock:
                keys = self._keys(job)
                start = bisect_left(keys, first, key=_by_run_id)
                end = bisect_right(keys, last, key=_by_run_id)
                found = keys[start:end]
                found = found[-page:][::-1] if newest_first else found[:page]
                read = [(key, self.items[key]) for key in found]
            return [self._read(key, run, lenient=lenient) for key, run in read]

        while found := some(first, last):
            yield from found
            reached = found[-1].key.run_id
            first, last = (first, _before(reached)) if newest_first else (f"{reached}\0", last)

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        with self._lock:
            there = self.get(run.key)
            if there is None or not run_writes.is_held(there, run):
                return None
            return self._store(replace(there, lease_until=lease_until))

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        with self._lock:
            there = self.get(run.key)
            if there is None or not run_writes.is_held(there, run):
                return None
            return self._store(replace(there, checkpoint=checkpoint))

    def mark_death_published(self, run: Run) -> None:
        with self._lock:
            there = self.get(run.key)
            if there and (there.state, there.dispatch) == (RunState.DEAD, run.dispatch):
                self._store(replace(there, buried=run.dispatch))

    def redrive(
        self, run: Run, entry: DueEntry, now: datetime, *, was: RunState = RunState.DEAD
    ) -> Claim:
        assert self._due is not None, "a store without a due store does not redrive"
        with self._lock:
            there = self.get(run.key)
            if there is None:
                return Claim(replace(run, state=RunState.CANCELLED), taken=False)
            if run_writes.may_redrive(there, run, was):
                self._due.put([entry], now)
                return Claim(self._store(run), taken=True)
            ours = (there.dispatch, there.attempt_base) == (run.dispatch, run.attempt_base)
            return Claim(there, taken=ours)

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        with self._lock:
            dead = {
                f"{to_ms(run.finished_at):013d}#{key.execution_id}": run
                for key, run in self.items.items()
                if run.state is RunState.DEAD
                and key.job.tenant == tenant
                and run.finished_at is not None
                and first <= run.finished_at <= last
            }
        ids = sorted(dead, reverse=True)
        if cursor is not None:
            after = _after(cursor)
            ids = [each for each in ids if each < after]
        page = ids[:limit]
        return Page([dead[i] for i in page], _CURSOR + page[-1] if len(ids) > limit else None)

    def peek(self, key: RunKey) -> Run | None:
        return self.get(key)

    def get(self, key: RunKey) -> Run | None:
        if key in self._broken:
            raise UndecodableError("run does not decode")
        return self.items.get(key)

    def _read(self, key: RunKey, run: Run, *, lenient: bool) -> Run:
        if key not in self._broken:
            return run
        if not lenient:
            raise UndecodableError("run does not decode")
        return Run(key, RunState.DEAD)

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        with self._lock:
            runs = {key.run_id: run for key, run in self.items.items() if key.job == job}
        ids = sorted(runs, reverse=True)
        if first is not None and before is not None:
            ids = [each for each in ids if first_run_id(first) < each < first_run_id(before)]
        if cursor is not None:
            after = _after(cursor)
            ids = [run_id for run_id in ids if run_id < after]
        page = ids[:limit]
        return Page([runs[i] for i in page], _CURSOR + page[-1] if len(ids) > limit else None)

    def _store(self, run: Run) -> Run:
        self.items[run.key] = run_writes.as_stored(run)
        return self.items[run.key]


def _before(run_id: str) -> str:
    """A string that sorts before *run_id* and after all smaller run ids."""
    return f"{run_id[:-1]}{chr(ord(run_id[-1]) - 1)}\uffff"


class MemoryJoinStore:
    """`JoinStore`. `writes`: the number of additions to each item."""

    def __init__(self) -> None:
        self.items: dict[tuple[RunKey, int], set[str]] = {}
        self.writes: Counter[tuple[RunKey, int]] = Counter()
        self._lock = threading.Lock()

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:  # noqa: ARG002
        with self._lock:
            self.writes[run, group] += 1
            self.items.setdefault((run, group), set()).add(mark)
            return sorted(self.items[run, group])

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        with self._lock:
            return [mark for each in groups for mark in sorted(self.items.get((run, each), ()))]


class MemoryRunFiles:
    """`RunFiles`. `puts`: number of writes; while `broken`, writes fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[RunFolder, str], bytes] = {}
        self.puts = 0
        self.broken = False

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        if self.broken:
            raise UnavailableError("put run file: SlowDown. Try again.")
        self.puts += 1
        self.stored[folder, name] = data

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        return self.stored.get((folder, name))


class MemoryEvents:
    """`Events` that keeps the published events."""

    def __init__(self) -> None:
        self.published: list[Event] = []

    def put(self, event: Event) -> None:
        self.published.append(event)


NEVER = datetime.max.replace(tzinfo=UTC)


class MemoryBucketStore:
    """`BucketStore`. `asked`: number of calls."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
        self._lock = threading.Lock()
        self.asked = 0

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        with self._lock:
            self.asked += 1
            taken = take(self._spent.get(name), to_us(now), limit, wanted)
            if taken.tokens:
                self._spent[name] = taken.spent
            return taken


class MemoryRequestStore:
    """`RequestStore`."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], KeptRequest] = {}
        self._lock = threading.Lock()

    def spoil(self, tenant: str, key: str) -> None:
        """Make the item of a request undecodable."""
        self.items[tenant, key] = KeptRequest("", NEVER, None)

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is not None and kept.at == NEVER:
                raise UndecodableError("request does not decode")
            if kept is not None and now < kept.at + REQUESTS_KEPT:
                return kept
            self.items[tenant, key] = KeptRequest(fingerprint, now, None)
            return None

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is None or kept.at != began_at:
                return answer
            if kept.answer is None:
                self.items[tenant, key] = replace(kept, answer=answer)
            return kept.answer or answer

    def refuse(self, tenant: str, key: str, began_at: datetime) -> None:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is not None and kept.at == began_at:
                self.items[tenant, key] = replace(kept, refused=True)


class MemoryAuditLog:
    """`AuditLog`. `batches`: the appended batches."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._lock = threading.Lock()

    def last(self) -> Batch | None:
        return self.batches[-1] if self.batches else None

    def ids_since(self, last: Batch | None, since: datetime) -> set[str]:
        number = last.number if last else 0
        return {
            event["id"]
            for batch in self.batches[:number]
            if parse_instant(batch.recorded_at) >= since
            for event in batch.events
        }

    def append(self, batch: Batch) -> bool:
        with self._lock:
            if batch.number != len(self.batches) + 1:
                return False
            self.batches.append(batch)
            return True


class MemoryKeyStore:
    """`KeyStore`."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], ApiKey] = {}
        self._broken: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def spoil(self, tenant: str, key_id: str) -> None:
        """Make the item of a key undecodable."""
        self._broken.add((tenant, key_id))

    def create(self, key: ApiKey) -> bool:
        with self._lock:
            return self.items.setdefault((key.tenant, key.key_id), key) == key

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        if (tenant, key_id) in self._broken:
            raise UndecodableError("key does not decode")
        return self.items.get((tenant, key_id))

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        with self._lock:
            ids = sorted(key_id for of, key_id in self.items if of == tenant)
        if cursor is not None:
            after = _after(cursor)
            ids = [key_id for key_id in ids if key_id > after]
        page, broken = ids[:limit], {key_id for of, key_id in self._broken if of == tenant}
        return Page(
            [self.items[tenant, key_id] for key_id in page if key_id not in broken],
            _CURSOR + page[-1] if len(ids) > limit else None,
            [Unreadable(key_id, "key does not decode") for key_id in page if key_id in broken],
        )

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        return self._change(tenant, key_id, lambda key: revoked(key, now))

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        return self._change(tenant, key_id, lambda key: ending(key, at))

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        def noted(key: ApiKey) -> ApiKey:
            there = key.last_used_on
            return key if there and there >= day else replace(key, last_used_on=day)

        self._change(tenant, key_id, noted)

    def _change(self, tenant: str, key_id: str, do: Callable[[ApiKey], ApiKey]) -> ApiKey | None:
        with self._lock:
            key = self.items.get((tenant, key_id))
            if key is not None:
                key = self.items[tenant, key_id] = do(key)
            return key


class MemoryEndpointStore:
    """`EndpointStore`. `reads` and `writes`: the number of calls, refused writes included."""

    def __init__(self) -> None:
        self.items: dict[EndpointKey, Endpoint] = {}
        self.flows: dict[EndpointKey, CallFlow] = {}
        self.reads = 0
        self.writes = 0
        self._broken: set[EndpointKey] = set()
        self._lock = threading.Lock()

    def spoil(self, key: EndpointKey) -> None:
        """Make the item of an endpoint undecodable."""
        self._broken.add(key)

    def get(self, key: EndpointKey, *, consistent: bool = False) -> Endpoint | None:
        del consistent
        with self._lock:
            self.reads += 1
            if key in self._broken:
                raise UndecodableError("endpoint does not decode")
            return self.items.get(key)

    def replace(self, was: Endpoint, to: Endpoint) -> bool:
        with self._lock:
            self.writes += 1
            there = self.items.get(to.key)
            if (there.version if there else 0) != was.version:
                return False
            self.items[to.key] = to
            return True

    def flow(self, key: EndpointKey) -> CallFlow | None:
        with self._lock:
            self.reads += 1
            return self.flows.get(key)

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        with self._lock:
            self.writes += 1
            there = self.flows.get(to.key)
            if (there.version if there else 0) != was.version:
                return False
            self.flows[to.key] = to
            return True

    def list(self, tenant: str, pool: str, *, cursor: str | None, limit: int) -> Page[Endpoint]:
        after = "" if cursor is None else _after(cursor)
        with self._lock:
            keys = sorted(
                key
                for key in self.items
                if (key.pool, key.tenant) == (pool, tenant) and key.destination > after
            )
        page = keys[:limit]
        return Page(
            [self.items[key] for key in page if key not in self._broken],
            _CURSOR + page[-1].destination if len(keys) > limit else None,
            [
                Unreadable(key.destination, "endpoint does not decode")
                for key in page
                if key in self._broken
            ],
        )


class MemorySecrets:
    """`Secrets`. Values by full name: ``<tenant>/<name>``, followed by ``#<key>`` for one key of a
    secret.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def resolve(self, tenant: str, reference: SecretReference | ParameterReference) -> str:
        if isinstance(reference, SecretReference):
            noun, whole = "secret", f"{tenant}/{reference.secret}"
            name = f"{whole}#{reference.key}" if reference.key else whole
            if whole in self.values and name not in self.values:
                raise InvalidInputError(noun, whole, f"it has no key {reference.key!r}", "Add it.")
        else:
            noun, name = "parameter", f"{tenant}/{reference.parameter}"
        if name not in self.values:
            raise NotFoundError(noun, name, "Create it.")
        return self.values[name]


class MemoryScriptStore:
    """`ScriptStore`. Any URL holds a one-line script by default."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.forbidden: set[str] = set()
        self.versions: dict[str, list[FetchedScript]] = {}

    def upload(self, url: str, content: bytes, signature: str | None = None) -> FetchedScript:
        """Upload a script; it becomes the latest version."""
        script = FetchedScript.of(content, signature)
        self.versions.setdefault(url, []).append(script)
        return script

    def fetch(self, source: ScriptSource) -> FetchedScript:
        url = source.url
        if url in self.missing:
            raise NotFoundError("script", url)
        if url in self.forbidden:
            raise InvalidInputError("script", url, "this pool may not read it", "Upload it.")
        versions = self.versions.get(url) or [FetchedScript.of(f"# {url}\n".encode())]
        for script in reversed(versions):
            if source.sha256 in {None, script.sha256}:
                return script
        problem = (
            f"no version has the digest sha256:{source.sha256} to which the job is pinned; "
            f"the latest version has sha256:{versions[-1].sha256}"
        )
        raise InvalidInputError("script", url, problem, "Upload that version again.")


class MemoryScriptShelf:
    """`ScriptShelf`. `put` plays the uploading client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[ScriptKey, list[ScriptVersion]] = {}
        self._open: dict[str, tuple[Upload, int, bytes]] = {}

    def put(self, url: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the upload was accepted."""
        if url not in self._open:
            return False
        upload, size, sha256 = self._open[url]
        as_signed = dict(headers) == dict(upload.headers) and len(body) == size
        if not as_signed or hashlib.sha256(body).digest() != sha256:
            return False
        if self._clock.now() > upload.expires_at:
            return False
        versions = self._kept.setdefault(upload.key, [])
        versions[:] = [replace(each, latest=False) for each in versions]
        number = str(len(versions) + 1)
        versions.insert(0, ScriptVersion(number, self._clock.now(), True, size))
        return True

    def delete(self, key: ScriptKey) -> None:
        versions = self._kept[key]
        versions[:] = [replace(each, latest=False) for each in versions]
        versions.insert(0, ScriptVersion(str(len(versions) + 1), self._clock.now(), True, None))

    def upload(
        self,
        key: ScriptKey,
        *,
        size: int,
        sha256: bytes,
        signature: str | None,
        now: datetime,
        life: timedelta,
    ) -> Upload:
        url = f"memory://{key.path}?{len(self._open)}"
        headers = {"Content-Length": str(size)}
        if signature is not None:
            headers["x-amz-meta-nextfire-signature"] = signature
        upload = Upload(key, url, headers, cut(now + life))
        self._open[url] = upload, size, sha256
        return upload

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        found = {
            f"{key.pool}/{key.name}": StoredScript(key, latest.size, latest.modified_at)
            for key, (latest, *_) in self._kept.items()
            if key.tenant == tenant and pool in {None, key.pool} and latest.size is not None
        }
        after = None if cursor is None else _after(cursor)
        names = sorted(name for name in found if after is None or name > after)
        page = names[:limit]
        return Page([found[n] for n in page], _CURSOR + page[-1] if len(names) > limit else None)

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        found = self._kept.get(key, [])
        if cursor is not None:
            after = int(_after(cursor))
            found = [each for each in found if int(each.version_id) < after]
        page = found[:limit]
        end = _CURSOR + page[-1].version_id if len(found) > limit else None
        return Page(page, end)


@dataclass(slots=True)
class Script:
    """How a script behaves: it runs for `lasts`, calls `meanwhile`, then exits.

    `frozen`: the supervisor is suspended together with the script, as in a paused machine, and asks
    for verdicts only when the script has ended.
    """

    exit_code: int = 0
    lasts: timedelta = _NO_WAIT
    meanwhile: Callable[[], object] = lambda: None
    frozen: bool = False
    stdout: str = ""
    error: str | None = None
    permanent: bool = False
    saves: bytes | None = None
    result: bytes | None = None

    def ended(
        self, exit_code: int, *, timed_out: bool = False, stopped: Directive = Directive.CONTINUE
    ) -> ScriptExit:
        """The exit of the script for any cause, with what it printed and its result."""
        return ScriptExit(exit_code, self.stdout, "", timed_out, stopped, self.result)

    def masked(self, masker: Masker) -> Script:
        """The script with its output and result masked, as a runner shows them."""
        result = None if self.result is None else masker.json(self.result)
        return replace(self, stdout=masker.text(self.stdout), result=result)


@dataclass(slots=True)
class MemoryScriptRunner:
    """`ScriptRunner` that plays the next of `scripts`, or a successful one. It asks for a verdict
    every second.

    `found`: the checkpoint that each script found; `refused`: the answer to each saved checkpoint.
    """

    clock: MovingClock
    scripts: deque[Script] = field(default_factory=deque)
    calls: list[ScriptCall] = field(default_factory=list)
    found: list[bytes | None] = field(default_factory=list)
    refused: list[str | None] = field(default_factory=list)

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        script = (self.scripts.popleft() if self.scripts else Script()).masked(call.masker)
        ask = supervisor.ask
        self.calls.append(call)
        self.found.append(supervisor.checkpoint())
        if script.error is not None:
            return ScriptExit(None, "", "", error=script.error, permanent=script.permanent)
        if script.stdout:
            supervisor.output("stdout", script.stdout.encode())
        if script.saves is not None:
            self.refused.append(supervisor.save(script.saves))
        started_at = self.clock.now()
        if script.frozen:
            self.clock.advance(script.lasts)
        while (worked := self.clock.now() - started_at) < script.lasts:
            if (verdict := ask()) is not Directive.CONTINUE:
                return script.ended(-15, stopped=verdict)
            if worked >= call.timeout:
                return script.ended(-9, timed_out=True)
            self.clock.advance(seconds=1)
        script.meanwhile()
        if (verdict := ask()) is not Directive.CONTINUE:
            return script.ended(-15, stopped=verdict)
        return script.ended(script.exit_code)


@dataclass
class Stores:
    """Everything that survives a process."""

    due: MemoryDueStore
    jobs: MemoryJobStore
    control: MemoryControlStore
    queue: MemoryRunQueue
    dead_letters: MemoryDeadLetters
    runs: MemoryRunStore
    files: MemoryRunFiles = field(default_factory=MemoryRunFiles)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    secrets: MemorySecrets = field(default_factory=MemorySecrets)
    scripts: MemoryScriptStore = field(default_factory=MemoryScriptStore)
    requests: MemoryRequestStore = field(default_factory=MemoryRequestStore)
    endpoints: MemoryEndpointStore = field(default_factory=MemoryEndpointStore)
    joins: MemoryJoinStore = field(default_factory=MemoryJoinStore)


def memory_stores(clock: Clock, pools: Collection[str], *, shards: int = 1) -> Stores:
    due = MemoryDueStore(shards=shards)
    jobs = MemoryJobStore(due)
    return Stores(
        due,
        jobs,
        MemoryControlStore(),
        MemoryRunQueue(clock, pools),
        MemoryDeadLetters(clock),
        MemoryRunStore(due, jobs),
    )
