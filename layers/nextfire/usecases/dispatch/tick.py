"""The tick of the watcher that holds the lease of its group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from nextfire.domain.due import BrokenEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import (
    ContinueDecision,
    Cover,
    Drop,
    Fire,
    Resend,
    Resume,
)
from nextfire.domain.errors import UnavailableError
from nextfire.domain.removed_pools import Pools
from nextfire.domain.zone_moves import Move
from nextfire.usecases.continue_backfill import ContinueBackfill
from nextfire.usecases.dispatch.actions import Actions, Followed
from nextfire.usecases.dispatch.deciding import Decider, in_order, misses
from nextfire.usecases.dispatch.deletions import Deletions
from nextfire.usecases.dispatch.gates import (
    OverlapGate,
    QueueRoomGate,
    Shares,
    TenantQuotaGate,
)
from nextfire.usecases.dispatch.holding import HeldEntries
from nextfire.usecases.dispatch.parked import ParkedEntries
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.quarantine import Quarantine
from nextfire.usecases.dispatch.reader import LOOK_AHEAD, BucketReader, Found
from nextfire.usecases.dispatch.report import Behind, DecidedEntry, Dispatched, TickReport
from nextfire.usecases.dispatch.waiting import Postponer, WaitReason

POLL_EVERY = timedelta(milliseconds=500)
BUDGET = 20_000
"""Default number of entries in memory, if the amount of memory is not configured."""
_SLOW = timedelta(seconds=1)
_LANES_AT_LEAST = 2
_GATHER_FOR = timedelta(milliseconds=100)
ALL_POOLS = Pools()
_BEHIND = timedelta(minutes=3)  # a cursor that keeps up is at most 90 s old
_WAIT_SECONDS = 0.05  # seconds to wait for a batch in flight if no other can begin
_SET_ASIDE_FOR = timedelta(milliseconds=500)
"""How long a poll sets undecodable entries aside, however many: nothing is released meanwhile."""


class Dispatch:
    """Dispatches the due entries of one group's shards, for the holder of its lease.

    `poll` reads the entries that are due within 2 s from the table into memory; `release`
    dispatches those that are due, in turns by tenant. Nothing is written between the two, so a
    watcher that dies loses nothing: its successor reads the same entries.

    Args:
        budget: Maximum number of entries in memory.
        pools: The pools that exist.
        nothing_parked: No entry was parked when this watcher took its lease.
    """

    def __init__(
        self,
        ports: WatcherPorts,
        *,
        shards: Collection[int],
        epoch: int,
        shares: Shares,
        budget: int = BUDGET,
        pools: Pools = ALL_POOLS,
        nothing_parked: bool = False,
    ) -> None:
        self._shards = shards
        jobs, due, executor, clock = ports.jobs, ports.due, ports.executor, ports.clock
        self._ports = ports
        self._last_begun_at = datetime.min.replace(tzinfo=UTC)
        self._current_lanes = ports.at_once
        self._in_flight: dict[Future[TickReport], tuple[list[StoredEntry], datetime]] = {}
        self._report = TickReport()
        self._error: UnavailableError | None = None
        self._holding = holding = HeldEntries(shares.weights, budget)
        self._parked = parked = ParkedEntries(due, none=nothing_parked)
        self._deletions = deletions = Deletions(due, holding, clock, ports.lanes)
        self._waiting = waiting = Postponer(due, holding, parked, deletions, clock, shares.quotas)
        self._quarantine = Quarantine(jobs, due)
        self._set_aside_until: datetime | None = None
        self._pools = pools
        self._deciding = Decider(jobs, executor, holding, waiting, pools)
        self._reader = BucketReader(
            due,
            ports.control,
            clock,
            ports.readers or executor,
            shards=shards,
            epoch=epoch,
            room=lambda: (holding.room, holding.room_for_late),
            parked=parked,
        )
        self._room = QueueRoomGate(ports.queue, shares.backlogs, waiting)
        self._turns = OverlapGate(ports.runs, executor, ports.clock, waiting)
        self._rates = TenantQuotaGate(ports.control, shares.quotas, executor, waiting)
        backfill = ContinueBackfill(jobs, ports.runs, due, ports.queue, clock)
        self._actions = Actions(ports, backfill, waiting, shares.quotas)

    @property
    def backlog(self) -> int:
        """Number of entries held, and of those that are still to be deleted."""
        return len(self._holding)

    @property
    def is_idle(self) -> bool:
        """Whether no entry is held, being dispatched or parked. The last is known when the buckets
        of the next hour have been read.
        """
        busy = self._in_flight or self._parked.might_be_any(self._shards)
        return not busy and not self.backlog

    @property
    def next_at(self) -> datetime | None:
        """When to release: when the next entry is ready, in the past if one is ready now, or when
        to delete again what could not be deleted.
        """
        found = [self._holding.next_at, self._deletions.next_at]
        return min((each for each in found if each is not None), default=None)

    def poll(self, now: datetime) -> TickReport:
        """Read due entries into memory.

        Raises:
            UnavailableError: A read failed. The entries that were read are held.
        """
        report = TickReport()
        self._holding.forget(now, self._reader.reads_since(now))
        self._parked.look_for(self._waiting.wanted(now))
        self._set_aside_until = None
        self._reader.read(now, lambda found: self._hold(found, now, report), report.notes)
        report.polled = True
        return report

    def _hold(self, found: Found, now: datetime, report: TickReport) -> None:
        broken: list[BrokenEntry] = []
        for stored in found:
            if self._holding.knows(stored.slot):
                continue  # most entries of a poll are known from an earlier one
            if not isinstance(stored, BrokenEntry):
                if self._waiting.admits(stored, now):
                    self._holding.hold(stored, now)
            # A broken entry among parked ones is set aside when its minute comes.
            elif stored.slot.minute <= now + LOOK_AHEAD:
                broken.append(stored)
        for entry in broken:
            began_at = self._ports.clock.now()
            self._set_aside_until = self._set_aside_until or began_at + _SET_ASIDE_FOR
            if began_at > self._set_aside_until:
                break  # the next poll reads the others again
            again = self._quarantine.set_aside(entry, now, report)
            if again is not None:
                self._holding.ignore([entry.slot], now + again)

    def release(self, now: datetime) -> TickReport:
        """Start to dispatch due entries, in batches, up to the number allowed in flight. Returns
        the results of the batches that have ended.

        Raises:
            UnavailableError: A batch could not be decided at all. Its entries are read again.
        """
        self._reader.take_answers(lambda found: self._hold(found, now, self._report))
        self._collect()
        self._deletions.retry(now)
        begun = 0
        for _ in range(self._current_lanes - len(self._in_flight)):
            # A call for a few entries costs as much as one for many: next to a batch in flight, an
            # incomplete batch waits a moment for more entries.
            alone = not self._in_flight or now - self._last_begun_at >= _GATHER_FOR
            batch = self._holding.take(now, full=not alone)
            if not batch:
                break
            begun += 1
            self._last_begun_at = now
            self._in_flight[self._ports.lanes.submit(self._carry_out, batch, now)] = batch, now
        next_at = self._holding.next_at
        if not begun and self._in_flight and next_at is not None and next_at <= now:
            with suppress(Exception):  # reported below; the oldest is likely to end next
                next(iter(self._in_flight)).result(_WAIT_SECONDS)
        self._collect()
        report = self._take_report()
        by = self._reader.behind(now)
        report.behind = Behind(by, self._holding.known) if by > _BEHIND else None
        return report

    def finish(self) -> TickReport:
        """Wait for the batches in flight, before the lease is released."""
        for flight in [*self._in_flight]:
            with suppress(Exception):  # reported below
                flight.result()
        self._deletions.finish()
        self._collect()
        self._error = None  # noted in the report; no later call could raise it
        return self._take_report()

    def _collect(self) -> None:
        """Collect the reports of the batches that have ended. A failed batch does not affect the
        reports of the others: they are kept until they are returned.
        """
        for flight in [each for each in self._in_flight if each.done()]:
            batch, begun_at = self._in_flight.pop(flight)
            self._holding.done(batch)
            self._adapt(self._ports.clock.now() - begun_at)
            try:
                self._report += flight.result()
            except UnavailableError as error:
                self._error = error
                self._report.notes.append(str(error))

    def _take_report(self) -> TickReport:
        """The results of the batches that have ended; each is returned once."""
        trouble, self._error = self._error, None
        if trouble is not None and not self._report.dispatched:
            raise trouble
        report, self._report = self._report, TickReport()
        return report

    def _adapt(self, took: timedelta) -> None:
        """Adapt the number of batches in flight. Slow batches wait for the CPU core or for a
        throttled partition: more of them would only delay each other and the reads.
        """
        if took > _SLOW:
            self._current_lanes = max(
                self._current_lanes // 2, min(_LANES_AT_LEAST, self._ports.at_once)
            )
        elif took < _SLOW / 2:
            self._current_lanes = min(self._current_lanes + 1, self._ports.at_once)

    def _carry_out(self, batch: list[StoredEntry], now: datetime) -> TickReport:
        """Decide, admit, send, store successors, delete: in this order for each entry."""
        report = TickReport()
        batch = self._rates.unspent(batch, now, report)
        if not batch:
            return report
        # Room comes first: entries that wait for it, second after second, cost no consistent read.
        decided, followers = in_order(self._deciding.decide(batch, now, report))
        certain = self._deciding.confirm(self._room.admit(decided, now, report), now, report)
        gone = [due.stored.slot for due in certain if isinstance(due.decision, Drop)]
        at_once = bool(followers) or not self._holding.busy
        for wanted in self._turns.admit(_of(Fire | Resend | Cover, certain), report):
            admitted = self._rates.admit(wanted, now, report)
            followed = self._send(_of(Fire | Resend, admitted), report)
            followed += self._cover(_of(Cover, admitted), now, report, at_once=at_once)
            gone += self._follow(followed, now, report)
        # After the runs, which are to start on time.
        gone += self._actions.move(_of(Move, certain), now, report)
        gone += self._actions.resume(_of(Resume, certain), report)
        gone += self._actions.continue_backfills(_of(ContinueDecision, certain), report)
        if left := self._deletions.delete(gone):
            report.notes.append(f"{left} entries are not deleted yet")
        if followers and {due.stored.slot for due in decided if misses(due)} <= {*gone}:
            report += self._carry_out(followers, now)
        return report

    def _send(self, going: list[DecidedEntry], report: TickReport) -> list[Followed]:
        """Send the runs. Returns those that the queue accepted, with their successors."""
        sent = self._actions.send(going)
        done_at = self._ports.clock.now()
        followed: list[Followed] = []
        unsent: list[StoredEntry] = []
        without_pool: list[StoredEntry] = []
        for index, due in enumerate(going):
            decision = due.decision
            assert isinstance(decision, Fire | Resend)  # noqa: S101 — for the type checker
            if index not in sent:
                # Its successor is not stored either: a chain has one end, the entry that waits.
                waiting = unsent if self._pools.exist(decision.pool) else without_pool
                waiting.append(due.stored)
                report.undelivered += 1
                key = due.stored.slot.sort_key
                report.notes.append(f"not sent, stays in the table: {key} to {decision.pool}")
                continue
            followed.append((due, decision.successor if isinstance(decision, Fire) else None))
            due_at = decision.due_at if isinstance(decision, Fire) else due.entry.at
            report.dispatched.append(
                Dispatched(decision.run, done_at - due_at, decision.reason, due.had_to_wait)
            )
        self._waiting.postpone(unsent, WaitReason.NO_ANSWER)
        self._waiting.postpone(without_pool, WaitReason.NO_POOL)
        return followed

    def _cover(
        self, missed: list[DecidedEntry], now: datetime, report: TickReport, *, at_once: bool
    ) -> list[Followed]:
        """Write records of skipped occurrences: now if *at_once*; otherwise when there is nothing
        else to do, or together with the next run of the job.
        """
        covering = missed if at_once else [due for due in missed if not self._may_wait(due, now)]
        return self._actions.cover(covering, now, report) if covering else []

    def _may_wait(self, due: DecidedEntry, now: datetime) -> bool:
        assert isinstance(due.decision, Cover)  # noqa: S101 — for the type checker
        return self._holding.set_aside(due.stored, due.decision.next_at, now)

    def _follow(self, followed: list[Followed], now: datetime, report: TickReport) -> list[Slot]:
        """Store successors and stop replaced runs. Returns the slots of entries that are done."""
        unended = self._actions.end_replaced([due for due, _ in followed], now, report)
        marked = [(due, due.marked(successor, now)) for due, successor in followed]
        successors = [successor for _, successor in marked if successor is not None]
        in_store = self._ports.due.put(successors, self._ports.clock.now()) if successors else set()
        gone: list[Slot] = []
        waiting: list[StoredEntry] = []
        for due, successor in marked:
            if successor is not None and successor not in in_store:
                waiting.append(due.stored)
                key = due.stored.slot.sort_key
                report.notes.append(f"successor not stored, entry stays: {key}")
            elif due.stored.slot in unended:
                waiting.append(due.stored)
            else:
                gone.append(due.stored.slot)
        self._waiting.postpone(waiting, WaitReason.NO_ANSWER)
        return gone


def _of(kinds: object, decided: Iterable[DecidedEntry]) -> list[DecidedEntry]:
    return [due for due in decided if isinstance(due.decision, kinds)]  # type: ignore[arg-type]
