"""The tick: read what is due, send it, store its successor, delete it. In that order, always."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Self

from nextfire.domain.decisions import DueAction, DueDecision, decide_due
from nextfire.domain.due import BrokenEntry, DueKind, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.job import JobState, Priority
from nextfire.domain.message import RunMessage
from nextfire.domain.ports import Clock, ControlStore, DueStore, JobStore, RunQueue

POLL_EVERY = timedelta(milliseconds=500)
LOOK_AHEAD = timedelta(seconds=2)
CLOSED_AFTER = timedelta(seconds=30)
"""How long after a bucket's minute writers may still be writing into it."""
STRAGGLER_BUCKETS = 10
BATCH = 100
"""Entries handled together; the keys of one BatchGetItem."""
READ_AT_MOST = 5_000
"""Entries read from a shard in one poll; the rest waits in the table, the earliest come first."""
BUCKETS_AT_MOST = 60
"""Buckets read from a shard in one poll. After an outage of days the cursor needs several polls to
reach the present; one long poll would outlive the lease, and so would the next holder's.
"""
_SEEN_AGAIN = timedelta(seconds=5)  # a deleted entry may still show in eventually consistent reads
_LEFT_FOR = timedelta(seconds=2)
_BROKEN_FOR = timedelta(seconds=60)
_BROKEN_REACH = timedelta(days=1)
_UNSEEDED = timedelta(minutes=10)  # a shard without cursor was never written to before
_RANK = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A run that was sent, and how late."""

    execution_id: str
    tenant: str
    lateness: timedelta
    reason: str


@dataclass(slots=True)
class TickReport:
    """What one step did. `notes`: what was not simply dispatched, and why."""

    dispatched: list[Dispatched] = field(default_factory=list)
    polled: bool = False
    undelivered: int = 0
    quarantined: int = 0
    notes: list[str] = field(default_factory=list)

    def __iadd__(self, other: TickReport) -> Self:
        self.dispatched += other.dispatched
        self.polled = self.polled or other.polled
        self.undelivered += other.undelivered
        self.quarantined += other.quarantined
        self.notes += other.notes
        return self


class DispatchDue:
    """The dispatching of one group's shards by the holder of its lease.

    `poll` brings entries that are due within `LOOK_AHEAD` from the table into a heap; `release`
    dispatches those whose instant has come. Between the two nothing is written, so a watcher that
    dies loses nothing: its successor reads the same entries.
    """

    def __init__(
        self,
        *,
        jobs: JobStore,
        due: DueStore,
        queue: RunQueue,
        control: ControlStore,
        clock: Clock,
        executor: Executor,
        shards: Collection[int],
        epoch: int,
    ) -> None:
        self._jobs = jobs
        self._due = due
        self._queue = queue
        self._control = control
        self._clock = clock
        self._executor = executor
        self._shards = list(shards)
        self._epoch = epoch
        self._cursors: dict[int, datetime] = {}
        self._heap: list[tuple[datetime, str, str]] = []
        self._held: dict[Slot, StoredEntry] = {}
        self._ignored: dict[Slot, datetime] = {}
        self._stragglers_at: datetime | None = None

    @property
    def backlog(self) -> int:
        """How many entries are held."""
        return len(self._heap)

    @property
    def next_at(self) -> datetime | None:
        """When the earliest entry that is held is due."""
        return self._heap[0][0] if self._heap else None

    def poll(self, now: datetime) -> TickReport:
        """Read every bucket from the cursors on; move the cursors over closed, empty ones.

        Raises:
            UnavailableError: A read failed. What was read is held, of the other shards too.
        """
        report = TickReport()
        if not self._cursors:
            self._control.seed_cursors(max(self._shards) + 1, floor_minute(now) - _UNSEEDED)
            self._cursors.update(self._control.cursors(self._shards))
        self._ignored = {slot: until for slot, until in self._ignored.items() if until > now}
        futures = [self._executor.submit(self._read_shard, s, now) for s in self._shards]
        trouble: UnavailableError | None = None
        for shard, future in zip(self._shards, futures, strict=True):
            try:
                found, cursor = future.result()
            except UnavailableError as error:
                trouble = error
                continue
            self._hold(found, now, report)
            moved = cursor != self._cursors[shard]
            if moved and self._control.move_cursor(shard, cursor, self._epoch):
                self._cursors[shard] = cursor
        if self._stragglers_at is None or now - self._stragglers_at >= MINUTE:
            self._stragglers_at = now
            for late in [self._executor.submit(self._stragglers, s) for s in self._shards]:
                try:
                    self._hold(late.result(), now, report)
                except UnavailableError as error:
                    trouble = error
        if trouble is not None:
            raise trouble
        report.polled = True
        return report

    def _stragglers(self, shard: int) -> list[StoredEntry | BrokenEntry]:
        """What was written late into buckets that the cursor has passed."""
        found: list[StoredEntry | BrokenEntry] = []
        for back in range(1, STRAGGLER_BUCKETS + 1):
            minute = self._cursors[shard] - back * MINUTE
            late = self._due.read(minute, shard, before=None, consistent=False)
            found += islice(late, READ_AT_MOST)
        return found

    def release(self, now: datetime) -> TickReport:
        """Dispatch up to `BATCH` entries whose instant has come.

        Raises:
            UnavailableError: Nothing could be decided. The entries are read again by the next poll.
        """
        report = TickReport()
        batch: list[StoredEntry] = []
        while self._heap and self._heap[0][0] <= now and len(batch) < BATCH:
            _, bucket, sort_key = heapq.heappop(self._heap)
            batch.append(self._held.pop(Slot(bucket, sort_key)))
        if batch:
            self._dispatch(batch, now, report)
        return report

    def _read_shard(
        self, shard: int, now: datetime
    ) -> tuple[list[StoredEntry | BrokenEntry], datetime]:
        found: list[StoredEntry | BrokenEntry] = []
        cursor = minute = self._cursors[shard]
        until = now + LOOK_AHEAD
        for _ in range(BUCKETS_AT_MOST):
            if minute > floor_minute(until) or len(found) >= READ_AT_MOST:
                break
            closed = now >= minute + MINUTE + CLOSED_AFTER
            entries = list(
                islice(
                    self._due.read(
                        minute, shard, before=None if closed else until, consistent=closed
                    ),
                    READ_AT_MOST,
                )
            )
            found += entries
            minute += MINUTE
            if closed and not found:
                cursor = minute
        # Whatever holds the cursor back, the present is read.
        while minute <= floor_minute(until):
            minute = max(minute, floor_minute(now) - MINUTE)
            present = self._due.read(minute, shard, before=until, consistent=False)
            found += islice(present, READ_AT_MOST)
            minute += MINUTE
        return found, cursor

    def _hold(
        self, found: Iterable[StoredEntry | BrokenEntry], now: datetime, report: TickReport
    ) -> None:
        for stored in found:
            if stored.slot in self._held or stored.slot in self._ignored:
                continue
            if isinstance(stored, BrokenEntry):
                try:
                    self._set_aside(stored, now, report)
                except UnavailableError:
                    raise
                except Exception as error:  # noqa: BLE001 — one entry must not stop the others
                    self._ignored[stored.slot] = now + _BROKEN_FOR
                    report.quarantined += 1
                    report.notes.append(f"not quarantined, stays: {stored.slot}: {error}")
                continue
            self._held[stored.slot] = stored
            heapq.heappush(self._heap, (stored.entry.at, stored.slot.bucket, stored.slot.sort_key))

    def _set_aside(self, broken: BrokenEntry, now: datetime, report: TickReport) -> None:
        """Keep an undecodable entry where it blocks nothing, and put its job's chain in order."""
        try:
            job = self._jobs.get(broken.job) if broken.job else None
            if job is not None and job.state is JobState.ACTIVE:
                # A key that lies about its time must not bring the job's whole history back.
                at = max(broken.at or now, broken.slot.minute - _BROKEN_REACH)
                # Its own occurrence if it is one, else the next. With jitter one before it may come
                # again; its run has a record, so nothing comes of that.
                since = min(at, now) - job.definition.jitter_width - timedelta(milliseconds=1)
                following = job.next_after(since)
                if following is not None:
                    entry = job.fire_entry(following, job.ordinal(following))
                    if not self._due.put([entry], now):
                        self._ignored[broken.slot] = now + _LEFT_FOR
                        return
        except (UndecodableError, InvalidInputError) as error:
            report.notes.append(f"chain of {broken.job} is not restored: {error}")
        self._due.quarantine(broken, now)
        report.quarantined += 1
        report.notes.append(
            f"quarantined {broken.slot.bucket} {broken.slot.sort_key}: {broken.error}"
        )

    def _dispatch(self, batch: list[StoredEntry], now: datetime, report: TickReport) -> None:
        decided = self._decide(batch, now, report)
        going = [(s, d) for s, d, _ in decided if d.action is DueAction.FIRE]
        dropped = [s.slot for s, d, _ in decided if d.action is DueAction.DROP]
        messages = [(d.pool, _message(d, self._clock.now())) for _, d in going]
        successors = {d.successor for _, d in going if d.successor is not None}
        sending = self._executor.submit(self._queue.send, messages)
        stored = self._due.put(successors, self._clock.now()) if successors else set()
        sent = sending.result()
        done_at = self._clock.now()
        finished: list[Slot] = []
        waiting: list[StoredEntry] = []
        for index, (entry, decision) in enumerate(going):
            if index not in sent:
                waiting.append(entry)
                report.undelivered += 1
                report.notes.append(f"not sent, stays: {entry.slot.sort_key} to {decision.pool}")
                continue
            assert decision.run is not None  # noqa: S101 — for the type checker
            report.dispatched.append(
                Dispatched(
                    decision.run.execution_id,
                    decision.run.job.tenant,
                    done_at - entry.entry.at,
                    decision.reason,
                )
            )
            if decision.successor is None or decision.successor in stored:
                finished.append(entry.slot)
            else:
                waiting.append(entry)
                report.notes.append(f"successor not stored, stays: {entry.slot.sort_key}")
        gone = finished + dropped
        self._due.delete(gone)
        self._ignored.update((slot, now + _SEEN_AGAIN) for slot in gone)
        self._wait(waiting, now, _LEFT_FOR)

    def _wait(self, entries: list[StoredEntry], now: datetime, duration: timedelta) -> None:
        """Look at *entries* again after *duration*; carry those of the past along to the present.

        Otherwise one entry that cannot be sent would hold its cursor back, and every poll would
        read all buckets since.
        """
        self._ignored.update((stored.slot, now + duration) for stored in entries)
        past = [s for s in entries if s.slot.bucket < bucket_name(floor_minute(now), 0)]
        if past:
            carried = self._due.put({s.entry for s in past}, now)
            self._due.delete([s.slot for s in past if s.entry in carried])

    def _decide(
        self, batch: list[StoredEntry], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision, int]]:
        """The decisions over *batch*, in the order of dispatch: due second, then priority."""
        jobs = self._jobs.get_many(
            {stored.entry.job for stored in batch if stored.entry.kind is DueKind.FIRE}
        )
        decided: list[tuple[StoredEntry, DueDecision, int]] = []
        undecided: list[StoredEntry] = []
        for stored in batch:
            job = jobs.get(stored.entry.job)
            try:
                if isinstance(job, Exception):
                    raise job
                decision = decide_due(stored.entry, job, now)
                if decision.action is not DueAction.FIRE:
                    # The read may have been stale: what is not sent must be certain.
                    job = self._jobs.get(stored.entry.job)
                    decision = decide_due(stored.entry, job, now)
            except UnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                # Kept where it is, told and alarmed; the others go on.
                undecided.append(stored)
                report.quarantined += 1
                what = f"{type(error).__name__}: {error}"
                report.notes.append(f"cannot decide {stored.slot.sort_key}: {what}")
                continue
            if decision.action is DueAction.LEAVE:
                self._ignored[stored.slot] = now + _LEFT_FOR
            if decision.action is DueAction.DROP:
                report.notes.append(f"dropped {stored.slot.sort_key}: {decision.reason}")
            rank = _RANK[job.definition.priority] if job else 0
            decided.append((stored, decision, rank))
        self._wait(undecided, now, _BROKEN_FOR)
        return sorted(decided, key=lambda d: (d[0].entry.at.replace(microsecond=0), d[2]))


def _message(decision: DueDecision, now: datetime) -> RunMessage:
    assert decision.run is not None  # noqa: S101 — for the type checker
    key = decision.run
    return RunMessage(
        tenant=key.job.tenant,
        job_id=key.job.job_id,
        run_id=key.run_id,
        dispatch=decision.dispatch,
        dispatched_at=now,
    )
