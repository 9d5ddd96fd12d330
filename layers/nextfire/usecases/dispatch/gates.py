"""Gates: admission by room in the pool's queue, the job's overlap policy and the tenant's quota.

A gate admits some entries and postpones the rest. Several threads use the gates.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.decisions import OverlapDecision, decide_overlap
from nextfire.domain.due import BrokenEntry, DispatchEntry, DueEntry, FireEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import Cover, Fire, Resend
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey, first_run_id
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.usecases.dispatch.holding import BATCH
from nextfire.usecases.dispatch.report import DecidedEntry, TickReport
from nextfire.usecases.dispatch.waiting import Postponer, WaitReason

_ROOM_AFTER = timedelta(seconds=1)
_ANSWERS_WITHIN = timedelta(seconds=0.3)  # usual maximum duration of a read of a job's runs
_PARTS = 10
_KEEPS_ROOM = 100  # queues with a smaller bound are first come, first served


@dataclass(frozen=True, slots=True)
class Shares:
    """How resources are shared. `backlogs`: by pool, the maximum number of messages in its queue;
    a pool that is not listed has no bound. `weights`: by tenant, its share of the turns under
    contention (default 1). `quotas`: each tenant's maximums.
    """

    backlogs: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    quotas: TenantQuotas = NO_QUOTAS


@dataclass(slots=True)
class _Room:
    """Remaining capacity of a queue: its backlog at `asked_at`, less what was sent since.

    The last tenth of a larger queue (`kept`) is reserved for tenants that have nothing waiting for
    room, so that one tenant that fills the queue does not lock out the others. Each such tenant
    gets an equal part of it for each reading of the backlog. `refused`: the tenants with a refused
    entry; `before`: those of the previous reading.
    """

    left: int
    asked_at: datetime
    kept: int
    before: Collection[str] = ()
    refused: set[str] = field(default_factory=set)
    granted: Counter[str] = field(default_factory=Counter)

    def admits(self, entry: DueEntry) -> bool:
        """Whether there is room for *entry*. If so, the room is taken."""
        tenant = entry.job.tenant
        if self.left <= self.kept:
            waits = entry.held or tenant in self.refused or tenant in self.before
            part = 0 if waits else self.kept // _PARTS
            if self.left <= 0 or self.granted[tenant] >= part:
                self.refused.add(tenant)
                return False
            self.granted[tenant] += 1
        self.left -= 1
        return True


class QueueRoomGate:
    """Admits runs that their pools' queues have room for. The misfire policy decides on the
    occurrences that the others miss while they wait.
    """

    def __init__(self, queue: RunQueue, bounds: Mapping[str, int], waiting: Postponer) -> None:
        self._queue = queue
        self._bounds = bounds
        self._waiting = waiting
        self._rooms: dict[str, _Room] = {}
        self._lock = threading.Lock()

    def admit(
        self, wanted: list[DecidedEntry], now: datetime, report: TickReport
    ) -> list[DecidedEntry]:
        admitted: list[DecidedEntry] = []
        held_back: list[StoredEntry] = []
        for pool in dict.fromkeys(p for due in wanted if (p := self._bounded(due)) is not None):
            self._refresh_room(pool, now, report)
        with self._lock:
            for due in wanted:
                if self._has_room(due):
                    admitted.append(due)
                else:
                    held_back.append(due.stored)
        if held_back:
            report.notes.append(f"{len(held_back)} runs wait for room in their pools' queues")
            report.held_back += len(held_back)
            self._waiting.postpone(held_back, WaitReason.NO_ROOM)
        return admitted

    def _bounded(self, due: DecidedEntry) -> str | None:
        """The pool of *due* if its queue has a bound and *due* needs room in it."""
        if isinstance(due.decision, Fire | Resend | Cover) and due.decision.pool in self._bounds:
            return due.decision.pool
        return None

    def _has_room(self, due: DecidedEntry) -> bool:
        pool = self._bounded(due)
        if pool is None:
            return True
        room = self._rooms[pool]
        # A skipped occurrence takes no room but waits for it: others may be sent before it.
        return room.left > 0 if isinstance(due.decision, Cover) else room.admits(due.entry)

    def _refresh_room(self, pool: str, now: datetime, report: TickReport) -> None:
        """Read the backlog once, and again when the runs sent since may have filled the queue."""
        room, bound = self._rooms.get(pool), self._bounds[pool]
        if room is not None and (room.left > room.kept or now - room.asked_at < _ROOM_AFTER):
            return
        try:
            left = bound - self._queue.backlog(pool)
        except Exception as error:  # noqa: BLE001 — one pool's queue must not stop the others
            left = BATCH  # exceeding the bound is harmless; blocking runs may not be
            report.notes.append(f"the backlog of pool {pool} is unknown: {error}")
        kept = bound // _PARTS if bound >= _KEEPS_ROOM else 0
        before = () if room is None else room.refused
        with self._lock:
            self._rooms[pool] = _Room(left, now, kept, before)


class OverlapGate:
    """Admits runs that may be queued while earlier runs of their job exist, and determines which
    of those runs they replace. Only jobs with an overlap policy that needs it cost a query.
    """

    def __init__(
        self, runs: RunStore, executor: Executor, clock: Clock, waiting: Postponer
    ) -> None:
        self._runs = runs
        self._executor = executor
        self._clock = clock
        self._waiting = waiting

    def admit(self, wanted: list[DecidedEntry], report: TickReport) -> Iterator[list[DecidedEntry]]:
        """Those of *wanted* that are admitted, in up to two parts: first those for which nothing
        has to be waited for. The others are postponed.
        """
        asked = {
            due.stored.slot: self._executor.submit(self._overlap, due, *question)
            for due in wanted
            if (question := _overlap_check(due)) is not None
        }
        if not asked:
            yield wanted
            return
        if late := _unanswered(asked, self._clock):
            ready = [due for due in wanted if due.stored.slot not in late]
            yield self._answered(ready, asked, report)
            wanted = [due for due in wanted if due.stored.slot in late]
        yield self._answered(wanted, asked, report)

    def _answered(
        self,
        wanted: list[DecidedEntry],
        asked: Mapping[Slot, Future[OverlapDecision]],
        report: TickReport,
    ) -> list[DecidedEntry]:
        admitted: list[DecidedEntry] = []
        held_back: list[StoredEntry] = []
        unknown: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for due in wanted:
            try:
                overlap = _answer(asked.get(due.stored.slot))
            except UnavailableError as error:
                unknown.append(due.stored)
                report.not_answered(due.stored, error)
                continue
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                undecided.append(due.stored)
                report.cannot_decide(due.stored, error)
                continue
            if overlap.joins:
                admitted.append(_with_stop(due, overlap))
            else:
                held_back.append(due.stored)
                report.notes.append(f"{due.stored.slot.sort_key} waits: {overlap.reason}")
        report.held_back += len(held_back)
        self._waiting.postpone(held_back, WaitReason.NO_TURN)
        self._waiting.postpone(unknown, WaitReason.NO_ANSWER)
        self._waiting.postpone(undecided, WaitReason.BROKEN)
        return admitted

    def _overlap(self, due: DecidedEntry, job: Job, run: RunKey) -> OverlapDecision:
        at, decision = run.scheduled_at, due.decision
        before = self._runs.between(
            job.key, "0", first_run_id(at), newest_first=True, page=1, lenient=True
        )
        missed = decision.missed if isinstance(decision, Fire) else ()
        return decide_overlap(job, at, before, missed_from=missed[0].first if missed else None)


def _overlap_check(due: DecidedEntry) -> tuple[Job, RunKey] | None:
    """The job and the run to check for overlap. None for a retry, which was checked before, and for
    a job version that has been forgotten.
    """
    match due.decision:
        case Fire() | Resend() | Cover() as decision if decision.exclusive:
            if decision.owner is not None and decision.run is not None:
                return decision.owner, decision.run
    return None


def _unanswered(asked: Mapping[Slot, Future[OverlapDecision]], clock: Clock) -> set[Slot]:
    """Those of *asked* that are not answered in time."""
    until = clock.now() + _ANSWERS_WITHIN
    for answer in asked.values():
        with suppress(Exception):
            answer.result((until - clock.now()).total_seconds())
    return {slot for slot, answer in asked.items() if not answer.done()}


def _answer(asked: Future[OverlapDecision] | None) -> OverlapDecision:
    return OverlapDecision(True) if asked is None else asked.result()


def _with_stop(due: DecidedEntry, overlap: OverlapDecision) -> DecidedEntry:
    decision = due.decision
    if overlap.cancel is None or not isinstance(decision, Fire | Resend):
        return due
    what = f"the occurrence at {isoformat(decision.run.scheduled_at)}"
    if isinstance(due.entry, DispatchEntry):
        what = decision.run.execution_id
    return replace(due, ends=(overlap.cancel, f"{overlap.reason} {what}"))


class TenantQuotaGate:
    """Admits runs within their tenants' quotas of runs per minute; the others wait for the next
    minute. Only tenants that have such a quota cost a request.
    """

    def __init__(
        self, control: ControlStore, quotas: TenantQuotas, executor: Executor, waiting: Postponer
    ) -> None:
        self._control = control
        self._quotas = quotas
        self._executor = executor
        self._waiting = waiting
        self._used_up: dict[str, datetime] = {}

    def unspent(
        self, batch: list[StoredEntry], now: datetime, report: TickReport
    ) -> list[StoredEntry]:
        """*batch* without the entries of tenants whose quota for this minute is used up: they are
        postponed without a decision.
        """
        minute = floor_minute(now)
        if minute not in [*self._used_up.values()]:
            return batch
        over: list[StoredEntry] = []
        within: list[StoredEntry] = []
        for each in batch:
            is_over = self._used_up.get(each.entry.job.tenant) == minute and _counts(each.entry)
            (over if is_over else within).append(each)
        self._wait(over, report)
        return within

    def admit(
        self, wanted: list[DecidedEntry], now: datetime, report: TickReport
    ) -> list[DecidedEntry]:
        minute = floor_minute(now)
        most = {
            tenant: rate
            for tenant in dict.fromkeys(due.tenant for due in wanted)
            if (rate := self._quotas.of(tenant).runs_per_minute) is not None
        }
        if not most:
            return wanted
        firing = Counter(due.tenant for due in wanted if _takes_quota(due))
        left = self._take(minute, {t: (firing[t], most[t]) for t in most if firing[t]}, report)
        admitted: list[DecidedEntry] = []
        over: list[StoredEntry] = []
        again: list[StoredEntry] = []
        for due in wanted:
            tenant = due.tenant
            if not _takes_quota(due) or tenant not in most:
                admitted.append(due)
            elif tenant not in left:
                again.append(due.stored)
            elif left[tenant]:
                left[tenant] -= 1
                admitted.append(due)
            else:
                over.append(due.stored)
        report.undelivered += len(again)
        self._waiting.postpone(again, WaitReason.NO_ANSWER)
        self._wait(over, report)
        return admitted

    def _take(
        self, minute: datetime, wanted: Mapping[str, tuple[int, int]], report: TickReport
    ) -> dict[str, int]:
        """How many runs each tenant may send now; a tenant whose quota is unknown is left out.

        *wanted*: by tenant, the number of runs to send and its quota per minute.
        """
        asked = {
            tenant: self._executor.submit(self._control.take_runs, tenant, minute, firing, rate)
            for tenant, (firing, rate) in wanted.items()
        }
        left: dict[str, int] = {}
        for tenant, answer in asked.items():
            try:
                left[tenant] = answer.result()
            except UnavailableError as error:
                report.notes.append(f"the quota of {tenant} is unknown: {error}")
            else:
                if left[tenant] < wanted[tenant][0]:
                    self._used_up[tenant] = minute
        return left

    def _wait(self, entries: list[StoredEntry], report: TickReport) -> None:
        if entries:
            report.notes.append(f"{len(entries)} runs wait for their tenants' quotas")
            report.held_back += len(entries)
            self._waiting.postpone(entries, WaitReason.NO_QUOTA)


def _takes_quota(due: DecidedEntry) -> bool:
    return isinstance(due.decision, Fire | Resend) and _counts(due.entry)


def _counts(entry: DueEntry | BrokenEntry) -> bool:
    """Whether sending *entry* takes a run from its tenant's quota. A run that had to wait for its
    destination or for `maxParallel` took one before.
    """
    return isinstance(entry, FireEntry) or (isinstance(entry, DispatchEntry) and not entry.counted)
