"""The tick: read what is due, send it, store its successor, delete it. In that order, always."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Self

from nextfire.domain.decisions import (
    DueAction,
    DueDecision,
    OverlapDecision,
    decide_due,
    decide_overlap,
)
from nextfire.domain.due import BrokenEntry, DueEntry, DueKind, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.fair_queue import FairQueue
from nextfire.domain.ids import JobKey, RunKey, runs_from
from nextfire.domain.instants import MINUTE, floor_minute, isoformat
from nextfire.domain.job import Job, JobState
from nextfire.domain.message import RunMessage
from nextfire.domain.ports import Clock, ControlStore, DueStore, JobStore, RunQueue, RunStore
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.run import Run, Trigger
from nextfire.usecases.cover_missed import Covered, cover_missed
from nextfire.usecases.go_on_backfill import GoOnBackfill

POLL_EVERY = timedelta(milliseconds=500)
LOOK_AHEAD = timedelta(seconds=2)
CLOSED_AFTER = timedelta(seconds=30)
"""How long after a bucket's minute writers may still be writing into it."""
ENDING_EVERY = timedelta(seconds=2)
"""How often a bucket is read between the end of its minute and its closing."""
STRAGGLER_BUCKETS = 10
BATCH = 100
"""Entries handled together; the keys of one BatchGetItem."""
READ_AT_MOST = 2_000
"""Entries read from a shard in one poll; the rest waits in the table, the earliest come first."""
BUCKETS_AT_MOST = 60
"""Buckets read from a shard in one poll. After an outage of days the cursor needs several polls to
reach the present; one long poll would outlive the lease, and so would the next holder's.
"""
_SEEN_AGAIN = timedelta(seconds=5)  # a deleted entry may still show in eventually consistent reads
_LEFT_FOR = timedelta(seconds=2)
_AGAIN_AFTER = timedelta(milliseconds=100)
_BROKEN_FOR = timedelta(seconds=60)
_FOREIGN_FOR = timedelta(minutes=10)  # well above a watcher's life
_BROKEN_REACH = timedelta(days=1)
_WRITTEN_LATE = 2 * LOOK_AHEAD  # an entry may come into the table so long after it was due
_UNSEEDED = timedelta(minutes=10)  # a shard without cursor was never written to before
_ROOM_AFTER = timedelta(seconds=1)
_TURN_AFTER = timedelta(seconds=5)
_HELD_AT_MOST = 20_000  # with so much in memory, what is not about due has to wait in the table
_PARTS = 10
_KEEPS_ROOM = 100  # a queue that is bounded to less is for those who come first
_WAITING_AT_MOST = 1_000  # entries that wait in their buckets; more go to the next minute's
_COVER_FOR = timedelta(seconds=1)  # spent on missed occurrences in one step: the lease is short
_BACKFILL_FOR = timedelta(milliseconds=500)  # spent on backfills in one step
_READ_FOR = timedelta(seconds=1)  # waited for the shards in one poll
_NO_TIME = timedelta()
_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A run that was sent, and how late. `held_back`: it had to wait for its pool's queue, its
    job's turn or its tenant's quota, and that is why.
    """

    run: RunKey
    lateness: timedelta
    reason: str
    held_back: bool = False


@dataclass(slots=True)
class TickReport:
    """What one step did. `skipped`: the records that it wrote for what does not run; `held_back`:
    how often a due run had to wait in the table; `notes`: what was not simply dispatched, and why.
    """

    dispatched: list[Dispatched] = field(default_factory=list)
    skipped: list[Run] = field(default_factory=list)
    polled: bool = False
    undelivered: int = 0
    held_back: int = 0
    quarantined: int = 0
    notes: list[str] = field(default_factory=list)

    def __iadd__(self, other: TickReport) -> Self:
        self.dispatched += other.dispatched
        self.skipped += other.skipped
        self.held_back += other.held_back
        self.polled = self.polled or other.polled
        self.undelivered += other.undelivered
        self.quarantined += other.quarantined
        self.notes += other.notes
        return self


@dataclass(frozen=True, slots=True)
class Shares:
    """Who gets how much. `backlogs`: by pool, the messages that its queue may hold; a pool that is
    not named has no bound. `weights`: by tenant, its part of the turns where all cannot go at once;
    1 where it is not named. `quotas`: what each may have at most.
    """

    backlogs: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    quotas: TenantQuotas = NO_QUOTAS


@dataclass(slots=True)
class _Room:
    """How many messages a queue still takes, as it said at `asked_at` and less what was sent.

    The last tenth, `kept`, of a queue of some size is for tenants of whom nothing waits for room:
    one that fills a queue does not keep the others out of it. Each gets a part of it, the same for
    all, each time that the queue is asked. `refused`: the tenants of whom something has to wait;
    `before`: those when it was asked last.
    """

    left: int
    asked_at: datetime
    kept: int
    before: Collection[str] = ()
    refused: set[str] = field(default_factory=set)
    given: Counter[str] = field(default_factory=Counter)

    def lets_in(self, entry: DueEntry) -> bool:
        """Whether there is room for *entry*; if so, that is taken."""
        tenant = entry.job.tenant
        if self.left <= self.kept:
            waits = entry.held or tenant in self.refused or tenant in self.before
            part = 0 if waits else max(self.kept // _PARTS, 1)
            if self.left <= 0 or (self.kept and self.given[tenant] >= part):
                self.refused.add(tenant)
                return False
            self.given[tenant] += 1
        self.left -= 1
        return True


class DispatchDue:
    """The dispatching of one group's shards by the holder of its lease.

    `poll` brings entries that are due within `LOOK_AHEAD` from the table into a heap; `release`
    dispatches those whose instant has come, tenants by turns. Between the two nothing is written,
    so a watcher that dies loses nothing: its successor reads the same entries.
    """

    def __init__(
        self,
        *,
        jobs: JobStore,
        due: DueStore,
        runs: RunStore,
        queue: RunQueue,
        control: ControlStore,
        clock: Clock,
        executor: Executor,
        shards: Collection[int],
        epoch: int,
        shares: Shares,
    ) -> None:
        self._jobs = jobs
        self._due = due
        self._runs = runs
        self._queue = queue
        self._control = control
        self._clock = clock
        self._executor = executor
        self._shards = list(shards)
        self._epoch = epoch
        self._shares = shares
        self._backfill = GoOnBackfill(jobs, runs, due, queue, clock)
        self._ready = FairQueue(shares.weights)
        self._rooms: dict[str, _Room] = {}
        self._reading: dict[int, Future[tuple[list[StoredEntry | BrokenEntry], datetime]]] = {}
        self._cursors: dict[int, datetime] = {}
        self._heap: list[tuple[datetime, str, str]] = []
        self._held: dict[Slot, StoredEntry] = {}
        self._ignored: dict[Slot, datetime] = {}
        self._waiting: dict[Slot, str] = {}
        self._spent: dict[str, datetime] = {}
        self._read_until: dict[str, datetime] = {}
        self._reached: dict[str, Slot] = {}
        self._ending_read_at: dict[int, datetime] = {}
        self._stragglers_at: datetime | None = None

    @property
    def backlog(self) -> int:
        """How many entries are held."""
        return len(self._held)

    @property
    def next_at(self) -> datetime | None:
        """When there is something to release: the past, if there is something now."""
        if self._ready:
            return self._ready.next_at
        return self._heap[0][0] if self._heap else None

    def poll(self, now: datetime) -> TickReport:
        """Read every bucket from the cursors on; move the cursors over closed, empty ones.

        A shard that does not answer in time holds up nothing: the polls that follow take its answer
        when it has come, and read the others.

        Raises:
            UnavailableError: A read failed. What was read is held, of the other shards too.
        """
        report = TickReport()
        if len(self._cursors) < len(self._shards):
            self._control.seed_cursors(max(self._shards) + 1, floor_minute(now) - _UNSEEDED)
            cursors = self._control.cursors(self._shards)
            if len(cursors) < len(self._shards):
                raise UnavailableError("A cursor has gone as soon as it was set. Try again.")
            self._cursors.update(cursors)
        self._ignored = {slot: until for slot, until in self._ignored.items() if until > now}
        trouble = self._read_shards(now, report)
        if self._stragglers_at is None or now - self._stragglers_at >= MINUTE:
            self._stragglers_at = now
            trouble = self._read_stragglers(now, report) or trouble
        if trouble is not None:
            raise trouble
        report.polled = True
        return report

    def _read_shards(self, now: datetime, report: TickReport) -> UnavailableError | None:
        """Hold what the shards answer in time. Returns the trouble of one that cannot be read."""
        slow = set(self._reading)
        for shard in self._shards:
            if shard not in slow:
                reading = self._executor.submit(self._read_shard, shard, now)
                self._reading[shard] = reading
        trouble: UnavailableError | None = None
        for shard, reading in [*self._reading.items()]:
            left = _NO_TIME if shard in slow else now + _READ_FOR - self._clock.now()
            del self._reading[shard]
            try:
                found, cursor = reading.result(max(left, _NO_TIME).total_seconds())
            except TimeoutError:
                self._reading[shard] = reading
                if shard not in slow:
                    report.notes.append(f"shard {shard} does not answer")
                continue
            except UnavailableError as error:
                trouble = error
            else:
                self._hold(found, now, report)
                self._move_cursor(shard, cursor)
        return trouble

    def _move_cursor(self, shard: int, minute: datetime) -> None:
        moved = minute != self._cursors[shard]
        if moved and self._control.move_cursor(shard, minute, self._epoch):
            self._cursors[shard] = minute

    def _read_stragglers(self, now: datetime, report: TickReport) -> UnavailableError | None:
        """Hold what the shards answer in time; what they do not is read in a minute."""
        until = self._clock.now() + _READ_FOR
        answering = [shard for shard in self._shards if shard not in self._reading]
        trouble: UnavailableError | None = None
        for late in [self._executor.submit(self._stragglers, shard) for shard in answering]:
            try:
                left = max(until - self._clock.now(), _NO_TIME)
                self._hold(late.result(left.total_seconds()), now, report)
            except TimeoutError:
                report.notes.append("a shard's last minutes are not read again: no answer")
            except UnavailableError as error:
                trouble = error
        return trouble

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
        while self._heap and self._heap[0][0] <= now:
            _, bucket, sort_key = heapq.heappop(self._heap)
            self._ready.push(self._held[Slot(bucket, sort_key)])
        batch = [self._ready.pop() for _ in range(min(len(self._ready), BATCH))]
        for stored in batch:
            del self._held[stored.slot]
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
            if not closed and now >= minute + MINUTE + LOOK_AHEAD:
                # Only what is written late still comes there: looked at less often.
                if now < self._ending_read_at.get(shard, now - ENDING_EVERY) + ENDING_EVERY:
                    minute += MINUTE
                    continue
                self._ending_read_at[shard] = now
            if closed:
                whole = self._due.read(minute, shard, before=None, consistent=True)
                found += islice(whole, READ_AT_MOST)
            else:
                found += self._read_open(minute, shard, now)
            minute += MINUTE
            if closed and not found:
                cursor = minute
        # Whatever holds the cursor back, the present is read.
        while minute <= floor_minute(until):
            minute = max(minute, floor_minute(now) - MINUTE)
            found += self._read_open(minute, shard, now)
            minute += MINUTE
        return found, cursor

    def _read_open(
        self, minute: datetime, shard: int, now: datetime
    ) -> list[StoredEntry | BrokenEntry]:
        """What is due in a bucket that is still written to. Where much waits, its keys come first:
        what has come due since the last poll, however long ago that was, is read as well, or it
        might never be; and of what lies between a part in each poll, from where the last one ended.
        """
        until = now + LOOK_AHEAD
        due = self._due.read(minute, shard, before=until, consistent=False)
        found = last = [*islice(due, READ_AT_MOST)]
        bucket = bucket_name(minute, shard)
        if len(found) < READ_AT_MOST:
            self._reached.pop(bucket, None)
            self._read_until.pop(bucket, None)
            return found
        known_until = self._read_until.get(bucket, minute) - _WRITTEN_LATE
        self._read_until[bucket] = until
        end = found[-1].slot
        # What was carried along into this bucket was due before its minute. What is due together
        # with the last one, however much, is left to the parts.
        at = last[-1].entry.at if isinstance(last[-1], StoredEntry) else minute
        for since in (max(minute, at + _MOMENT, min(now, known_until)), now):
            if len(last) == READ_AT_MOST and since < until:
                fresh = self._due.read(minute, shard, since=since, before=until, consistent=False)
                last = [*islice(fresh, READ_AT_MOST)]
                found = [*found, *last]
        if len(self._held) >= _HELD_AT_MOST:
            return found
        reached = max(self._reached.get(bucket, end), end, key=_by_key)
        behind = self._due.read(minute, shard, after=reached, before=until, consistent=False)
        between = [*islice(behind, 2 * READ_AT_MOST)]
        if len(between) == 2 * READ_AT_MOST:
            self._reached[bucket] = between[-1].slot
        else:
            self._reached.pop(bucket, None)
        return [*found, *between]

    def _hold(
        self, found: Iterable[StoredEntry | BrokenEntry], now: datetime, report: TickReport
    ) -> None:
        for stored in found:
            if stored.slot in self._held or stored.slot in self._ignored:
                continue
            if isinstance(stored, BrokenEntry):
                if stored.foreign and now < stored.slot.minute + _FOREIGN_FOR:
                    # During a deploy a newer version may be at work beside this one.
                    self._ignored[stored.slot] = now + _BROKEN_FOR
                    report.notes.append(f"left to others: {stored.slot.sort_key}: {stored.error}")
                    continue
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
                entry = job.next_entry(since)
                if entry is not None:
                    if entry.sort_key == broken.slot.sort_key:
                        # It takes the broken one's place: if we die then, nobody sees that again.
                        self._due.keep(broken, now)
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
        batch = self._with_quota(batch, now, report)
        if not batch:
            return
        # Room is asked for first: what waits for it, second after second, costs no certainty.
        in_order, followers = _without_followers(self._decide(batch, now, report))
        decided = self._confirm(self._with_room(in_order, now, report), now, report)
        gone = [s.slot for s, d in decided if d.action is DueAction.DROP]
        gone += self._resume([(s, d) for s, d in decided if d.action is DueAction.RESUME], report)
        gone += self._go_on([(s, d) for s, d in decided if d.action is DueAction.BACKFILL], report)
        wanted = [(s, d) for s, d in decided if d.action in (DueAction.FIRE, DueAction.COVER)]
        admitted, replaced = self._take_turns(wanted, report)
        admitted = self._within_rates(admitted, now, report)
        going = [(s, d) for s, d in admitted if d.action is DueAction.FIRE]
        missed = [(s, d) for s, d in admitted if d.action is DueAction.COVER]
        messages = [(d.pool, self._message(d)) for _, d in going]
        sending = self._executor.submit(self._queue.send, messages)
        covered = self._cover(missed, now, report)
        sent = sending.result()
        done_at = self._clock.now()
        waiting: list[StoredEntry] = []
        following = [(s, _held_as(s, each.successor, now)) for s, _, each in covered]
        for index, (stored, decision) in enumerate(going):
            if index not in sent:
                # Nor is its successor stored: a chain is to have one end, and that waits.
                waiting.append(stored)
                report.undelivered += 1
                report.notes.append(f"not sent, stays: {stored.slot.sort_key} to {decision.pool}")
                continue
            following.append((stored, _held_as(stored, decision.successor, now)))
            assert decision.run is not None  # noqa: S101 — for the type checker
            lateness, held = done_at - stored.entry.at, stored.entry.held
            report.dispatched.append(Dispatched(decision.run, lateness, decision.reason, held))
        unstopped = self._stop(replaced, {stored.slot for stored, _ in following}, now, report)
        successors = [successor for _, successor in following if successor is not None]
        in_store = self._due.put(successors, self._clock.now()) if successors else set()
        for stored, successor in following:
            if successor is not None and successor not in in_store:
                waiting.append(stored)
                report.notes.append(f"successor not stored, stays: {stored.slot.sort_key}")
            elif stored.slot in unstopped:
                waiting.append(stored)
            else:
                gone.append(stored.slot)
        self._due.delete(gone)
        self._ignored.update((slot, now + _SEEN_AGAIN) for slot in gone)
        self._wait(waiting, _LEFT_FOR)
        if followers and {s.slot for s, d in in_order if d.action is DueAction.COVER} <= {*gone}:
            self._dispatch(followers, now, report)

    def _resume(
        self, ended: list[tuple[StoredEntry, DueDecision]], report: TickReport
    ) -> list[Slot]:
        """End the pauses of jobs, as of the instants of their entries; each with its first FIRE
        entry. Done again, by another watcher too, it is the same. Returns what is done with.
        """
        done: list[Slot] = []
        again: list[StoredEntry] = []
        for stored, decision in ended:
            try:
                assert decision.owner is not None  # noqa: S101 — for the type checker
                job, first = decision.owner.resumption(stored.entry.at)
                # Changed meanwhile, it is decided over again.
                counts = int(job.counted) - int(decision.owner.counted)
                resumed = self._jobs.update(job, first, self._clock.now(), counts=counts)
            except UnavailableError as error:
                resumed = False
                report.notes.append(f"{stored.slot.sort_key} waits: {error}")
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                report.quarantined += 1
                report.notes.append(_cannot_decide(stored, error))
                self._wait([stored], _BROKEN_FOR)
                continue
            if resumed:
                done.append(stored.slot)
                report.notes.append(f"resumed {stored.entry.job.tenant}/{stored.entry.job.job_id}")
            else:
                again.append(stored)
        self._wait(again, _LEFT_FOR)
        return done

    def _go_on(
        self, backfills: list[tuple[StoredEntry, DueDecision]], report: TickReport
    ) -> list[Slot]:
        """Go on with backfills, side by side, for so long that others are not held up. Returns what
        is done with.
        """
        until = self._clock.now() + _BACKFILL_FOR
        going = [
            (s, self._executor.submit(self._backfill.step, s.entry, d.owner, until))
            for s, d in backfills
            if d.owner is not None
        ]
        done: list[Slot] = []
        again: list[StoredEntry] = []
        for stored, step in going:
            try:
                over = step.result()
            except UnavailableError as error:
                again.append(stored)
                report.notes.append(f"{stored.slot.sort_key} waits: {error}")
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                report.quarantined += 1
                report.notes.append(_cannot_decide(stored, error))
                self._wait([stored], _BROKEN_FOR)
            else:
                if over:
                    done.append(stored.slot)
                else:
                    again.append(stored)
        self._wait(again, _TURN_AFTER)
        return done

    def _with_quota(
        self, batch: list[StoredEntry], now: datetime, report: TickReport
    ) -> list[StoredEntry]:
        """*batch* without the entries of tenants that have had all their runs of this minute: those
        are not even decided over.
        """
        minute = floor_minute(now)
        if minute not in self._spent.values():
            return batch
        over = [s for s in batch if _sends(s.entry) and self._spent.get(_tenant(s)) == minute]
        self._wait_for_quota(over, now, report)
        return [stored for stored in batch if stored not in over]

    def _within_rates(
        self, wanted: list[tuple[StoredEntry, DueDecision]], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision]]:
        """Those of *wanted* that their tenants' quotas of runs per minute let go; the others wait
        for the next minute. Only tenants that have one pay for the question.
        """
        minute = floor_minute(now)
        most = {
            tenant: rate
            for tenant in {_tenant(stored) for stored, _ in wanted}
            if (rate := self._shares.quotas.of(tenant).runs_per_minute) is not None
        }
        if not most:
            return wanted
        firing = Counter(_tenant(s) for s, d in wanted if d.action is DueAction.FIRE)
        asked = {
            tenant: self._executor.submit(
                self._control.take_runs, tenant, minute, firing[tenant], rate
            )
            for tenant, rate in most.items()
            if firing[tenant]
        }
        left: dict[str, int] = {}
        unknown: set[str] = set()
        for tenant, answer in asked.items():
            try:
                left[tenant] = answer.result()
            except UnavailableError as error:
                unknown.add(tenant)
                report.notes.append(f"the quota of {tenant} is not known: {error}")
            else:
                if left[tenant] < firing[tenant]:
                    self._spent[tenant] = minute
        admitted: list[tuple[StoredEntry, DueDecision]] = []
        over: list[StoredEntry] = []
        again: list[StoredEntry] = []
        for stored, decision in wanted:
            tenant = _tenant(stored)
            if decision.action is not DueAction.FIRE or tenant not in most:
                admitted.append((stored, decision))
            elif tenant in unknown:
                again.append(stored)
            elif left[tenant]:
                left[tenant] -= 1
                admitted.append((stored, decision))
            else:
                over.append(stored)
        self._wait(again, _LEFT_FOR)
        self._wait_for_quota(over, now, report)
        return admitted

    def _wait_for_quota(
        self, entries: list[StoredEntry], now: datetime, report: TickReport
    ) -> None:
        """Put *entries* off to the next minute: read again and again before, they would be in
        others' way.
        """
        if entries:
            report.notes.append(f"{len(entries)} runs wait for their tenants' quotas")
            report.held_back += len(entries)
            next_minute = floor_minute(now) + MINUTE
            self._wait(entries, next_minute - now, held=True, put_off=True)

    def _with_room(
        self, wanted: list[tuple[StoredEntry, DueDecision]], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision]]:
        """Those of *wanted* that their pools' queues can take. The others wait in the table; the
        misfire policy decides over what they miss meanwhile.
        """
        admitted: list[tuple[StoredEntry, DueDecision]] = []
        held_back: list[StoredEntry] = []
        for stored, decision in wanted:
            asks = decision.action in (DueAction.FIRE, DueAction.COVER)
            bound = self._shares.backlogs.get(decision.pool) if asks else None
            room = None if bound is None else self._room(decision.pool, bound, now, report)
            takes = decision.action is DueAction.FIRE
            if room is None or (room.lets_in(stored.entry) if takes else room.left > 0):
                admitted.append((stored, decision))
            else:
                held_back.append(stored)
        if held_back:
            report.notes.append(f"{len(held_back)} runs wait for their pools' queues")
            report.held_back += len(held_back)
            self._wait(held_back, _ROOM_AFTER, held=True)
        return admitted

    def _room(self, pool: str, bound: int, now: datetime, report: TickReport) -> _Room:
        """The queue is asked once, and again when what was sent since may have filled it."""
        room = self._rooms.get(pool)
        if room is None or (room.left <= room.kept and now - room.asked_at >= _ROOM_AFTER):
            try:
                left = bound - self._queue.backlog(pool)
            except Exception as error:  # noqa: BLE001 — one pool's queue must not stop the others
                left = BATCH  # a bound that is passed does no harm; a run that waits may
                report.notes.append(f"the backlog of pool {pool} is not known: {error}")
            kept = bound // _PARTS if bound >= _KEEPS_ROOM else 0
            before = () if room is None else room.refused
            room = self._rooms[pool] = _Room(left, now, kept, before)
        return room

    def _take_turns(
        self, wanted: list[tuple[StoredEntry, DueDecision]], report: TickReport
    ) -> tuple[list[tuple[StoredEntry, DueDecision]], dict[Slot, tuple[Run, str]]]:
        """Those of *wanted* that may join their jobs' earlier runs in the queue, and the runs that
        are to end for them, with the reason. Only jobs whose overlap policy asks for it pay for the
        question.
        """
        asked: dict[Slot, Future[OverlapDecision]] = {}
        for stored, decision in wanted:
            # Not of a retry, which has had its turn, nor of a version that nobody knows any more.
            if decision.exclusive and decision.owner is not None and decision.run is not None:
                asked[stored.slot] = self._executor.submit(
                    self._overlap, decision.owner, decision.run
                )
        if not asked:
            return wanted, {}
        replaced: dict[Slot, tuple[Run, str]] = {}
        admitted: list[tuple[StoredEntry, DueDecision]] = []
        held_back: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for stored, decision in wanted:
            try:
                overlap = asked[stored.slot].result() if stored.slot in asked else None
            except UnavailableError as error:
                held_back.append(stored)
                report.notes.append(str(error))
                continue
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                undecided.append(stored)
                report.quarantined += 1
                report.notes.append(_cannot_decide(stored, error))
                continue
            if overlap is not None and not overlap.joins:
                held_back.append(stored)
                report.notes.append(f"{stored.slot.sort_key} waits: {overlap.reason}")
                continue
            admitted.append((stored, decision))
            earlier = overlap.cancel if overlap is not None else None
            if overlap is not None and earlier is not None and decision.action is DueAction.FIRE:
                what = f"the occurrence at {isoformat(stored.entry.occurs_at)}"
                if stored.entry.kind is DueKind.RETRY and decision.run is not None:
                    what = decision.run.execution_id
                replaced[stored.slot] = earlier, f"{overlap.reason} {what}"
        report.held_back += len(held_back)
        self._wait(held_back, _TURN_AFTER, held=True)
        self._wait(undecided, _BROKEN_FOR)
        return admitted, replaced

    def _overlap(self, job: Job, run: RunKey) -> OverlapDecision:
        at = run.scheduled_at
        before = self._runs.between(
            job.key, "0", runs_from(at), newest_first=True, page=1, lenient=True
        )
        return decide_overlap(job, at, before)

    def _stop(
        self,
        replaced: Mapping[Slot, tuple[Run, str]],
        accepted: Collection[Slot],
        now: datetime,
        report: TickReport,
    ) -> set[Slot]:
        """Have the runs end that others replace, now that those are in the queue. Done again, after
        a crash, it still concerns only what came before them. Returns the slots where it failed.
        """
        stopping = {
            slot: self._executor.submit(self._runs.stop, run, reason=reason, now=now)
            for slot, (run, reason) in replaced.items()
            if slot in accepted
        }
        failed: set[Slot] = set()
        for slot, stop in stopping.items():
            try:
                stop.result()
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                failed.add(slot)
                report.notes.append(f"the run before {slot.sort_key} is not stopped: {error}")
        return failed

    def _cover(
        self, missed: list[tuple[StoredEntry, DueDecision]], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision, Covered]]:
        """Put on record what does not run. A job's entries one after the other, the earliest first;
        for so long that the lease is not in danger: what is left comes again.
        """
        until = now + _COVER_FOR

        def cover(
            of_job: list[tuple[StoredEntry, DueDecision]],
        ) -> Iterator[tuple[StoredEntry, DueDecision, Covered | Exception | None]]:
            for stored, decision in of_job:
                if self._clock.now() > until:
                    yield stored, decision, None
                    continue
                try:
                    covered = cover_missed(self._runs, stored.entry, decision, now)
                    owner = decision.owner
                    current = owner is not None and decision.owned_until is None
                    if owner is not None and current and covered.successor is None:
                        self._jobs.complete(owner, now)
                except Exception as error:  # noqa: BLE001 — told apart below
                    yield stored, decision, error
                else:
                    yield stored, decision, covered

        by_job: dict[JobKey, list[tuple[StoredEntry, DueDecision]]] = {}
        for stored, decision in sorted(missed, key=lambda each: each[0].entry.sort_key):
            by_job.setdefault(stored.entry.job, []).append((stored, decision))
        done: list[tuple[StoredEntry, DueDecision, Covered]] = []
        again: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for found in self._executor.map(lambda of_job: [*cover(of_job)], by_job.values()):
            for stored, decision, covered in found:
                if isinstance(covered, Covered):
                    done.append((stored, decision, covered))
                    report.skipped += [covered.written] if covered.written else []
                elif covered is None or isinstance(covered, UnavailableError):
                    again.append(stored)
                    report.notes.append(f"not on record yet, stays: {stored.slot.sort_key}")
                else:
                    undecided.append(stored)
                    report.quarantined += 1
                    report.notes.append(_cannot_decide(stored, covered))
        self._wait(again, _AGAIN_AFTER)
        self._wait(undecided, _BROKEN_FOR)
        return done

    def _wait(
        self,
        entries: list[StoredEntry],
        duration: timedelta,
        *,
        held: bool = False,
        put_off: bool = False,
    ) -> None:
        """Look at *entries* again after *duration*. *held*: they are held back, and whoever looks
        then is to know; *put_off*: they have no chance in this minute.

        Those of the past come along to the present: otherwise one that cannot be sent would hold
        its cursor back, and every poll would read all buckets since. What is too much of a tenant
        to be read again and again is put off to the next minute.
        """
        if not entries:
            return
        now = self._clock.now()
        self._waiting = {s: t for s, t in self._waiting.items() if s in self._ignored}
        waiting = Counter(self._waiting.values())
        next_minute = floor_minute(now) + MINUTE
        near: list[StoredEntry] = []
        far: list[StoredEntry] = []
        for stored in entries:
            tenant = _tenant(stored)
            # One that the look-ahead found in the next minute's bucket is there already.
            too_many = put_off or waiting[tenant] >= _WAITING_AT_MOST
            if too_many and stored.slot.minute < next_minute:
                far.append(stored)
                continue
            waiting[tenant] += 1
            near.append(stored)
            self._waiting[stored.slot] = tenant
            self._ignored[stored.slot] = now + duration
        present = bucket_name(floor_minute(now), 0)
        self._move([s for s in near if s.slot.bucket < present], now, held=held)
        self._move(far, next_minute, held=held)
        unmarked = [s for s in near if held and not s.entry.held and s.slot.bucket >= present]
        if unmarked:
            with suppress(UnavailableError):  # it only tells why they are late
                self._due.mark_held(unmarked)

    def _move(self, entries: list[StoredEntry], at: datetime, *, held: bool) -> None:
        """Move *entries* to the bucket of what is written at *at*, which is not theirs."""
        if entries:
            moved = self._due.put({_marked(s.entry) if held else s.entry for s in entries}, at)
            left = [stored.slot for stored in entries if stored.entry in moved]
            self._due.delete(left)
            for slot in left:
                self._waiting.pop(slot, None)  # what it makes wait lies elsewhere

    def _message(self, decision: DueDecision) -> RunMessage:
        assert decision.run is not None  # noqa: S101 — for the type checker
        key = decision.run
        return RunMessage(
            tenant=key.job.tenant,
            job_id=key.job.job_id,
            run_id=key.run_id,
            dispatch=decision.dispatch,
            dispatched_at=self._clock.now(),
            exclusive=decision.exclusive,
            reason=decision.reason,
            abreast=self._shares.quotas.of(key.job.tenant).concurrent_runs,
        )

    def _decide(
        self, batch: list[StoredEntry], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision]]:
        jobs = self._jobs.get_many({each.entry.job for each in batch if _asks_for_job(each.entry)})
        found = [(s, partial(_sound, jobs.get(s.entry.job))) for s in batch]
        return self._decided(found, now, report)

    def _confirm(
        self, decided: list[tuple[StoredEntry, DueDecision]], now: datetime, report: TickReport
    ) -> list[tuple[StoredEntry, DueDecision]]:
        """Decide again, on consistent reads, where not to fire: the first read may have been stale,
        and what is not sent must be certain.
        """
        certain = [(s, d) for s, d in decided if d.action is DueAction.FIRE]
        unsure = [s for s, d in decided if d.action is not DueAction.FIRE]
        if not unsure:
            return certain
        reads = [(s, self._executor.submit(self._jobs.get, s.entry.job).result) for s in unsure]
        confirmed = self._decided(reads, now, report)
        for stored, decision in confirmed:
            if decision.action is DueAction.LEAVE:
                self._ignored[stored.slot] = now + _LEFT_FOR
            if decision.action is DueAction.DROP:
                report.notes.append(f"dropped {stored.slot.sort_key}: {decision.reason}")
        return certain + confirmed

    def _decided(
        self,
        found: Iterable[tuple[StoredEntry, Callable[[], Job | None]]],
        now: datetime,
        report: TickReport,
    ) -> list[tuple[StoredEntry, DueDecision]]:
        """The decisions, but for entries whose job cannot be had: one must not stop the others."""
        decided: list[tuple[StoredEntry, DueDecision]] = []
        unread: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for stored, find in found:
            try:
                decided.append((stored, decide_due(stored.entry, find(), now)))
            except UnavailableError as error:
                unread.append(stored)
                report.notes.append(f"{stored.slot.sort_key} waits: {error}")
            except Exception as error:  # noqa: BLE001 — kept where it is, told and alarmed
                undecided.append(stored)
                report.quarantined += 1
                report.notes.append(_cannot_decide(stored, error))
        self._wait(unread, _LEFT_FOR)
        self._wait(undecided, _BROKEN_FOR)
        return decided


def _asks_for_job(entry: DueEntry) -> bool:
    """Whether its decision depends on the job: a retry has been decided over."""
    if entry.kind is not DueKind.RETRY:
        return True
    return entry.trigger is Trigger.MANUAL and entry.exclusive


def _sound(job: Job | Exception | None) -> Job | None:
    if isinstance(job, Exception):
        raise job
    return job


def _cannot_decide(stored: StoredEntry, error: Exception) -> str:
    return f"cannot decide {stored.slot.sort_key}: {type(error).__name__}: {error}"


def _by_key(slot: Slot) -> str:
    return slot.sort_key


def _tenant(stored: StoredEntry) -> str:
    return stored.entry.job.tenant


def _sends(entry: DueEntry) -> bool:
    """Whether something is sent for it, if anything comes of it."""
    return entry.kind in {DueKind.FIRE, DueKind.RETRY}


def _marked(entry: DueEntry) -> DueEntry:
    return entry if entry.held else replace(entry, held=True)


def _without_followers(
    decided: list[tuple[StoredEntry, DueDecision]],
) -> tuple[list[tuple[StoredEntry, DueDecision]], list[StoredEntry]]:
    """*decided* without what follows a missed stretch in its own chain; and that.

    A watcher that died between storing a successor and deleting its entry left both: what the first
    one covers is to be on record before the other is decided over, or its occurrence would be sent,
    and covered as well.
    """
    missed: dict[tuple[str, int], datetime] = {}
    for stored, decision in decided:
        if decision.action is DueAction.COVER:
            at, chain = stored.entry.occurs_at, _chain(stored)
            missed[chain] = min(at, missed.get(chain, at))
    followers = [
        stored
        for stored, _ in decided
        if stored.entry.occurs_at > missed.get(_chain(stored), stored.entry.occurs_at)
    ]
    return [(s, d) for s, d in decided if s not in followers], followers


def _chain(stored: StoredEntry) -> tuple[str, int]:
    return stored.entry.uid, stored.entry.version


def _held_as(stored: StoredEntry, successor: DueEntry | None, now: datetime) -> DueEntry | None:
    """*successor*, which came due while it waited for what was held back before it."""
    late = successor is not None and successor.at <= now and stored.entry.held
    return _marked(successor) if late and successor is not None else successor
