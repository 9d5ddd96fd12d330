"""Decides what to do with the entries of a batch, based on their jobs."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, replace
from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import Cover, Drop, Fire, Leave, decide_due, is_certain
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.misfire import MISFIRE_AFTER
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.removed_pools import Pools
from nextfire.domain.run import Trigger
from nextfire.usecases.dispatch.holding import HeldEntries
from nextfire.usecases.dispatch.report import DecidedEntry, TickReport
from nextfire.usecases.dispatch.waiting import Postponer, WaitReason

_LEFT_FOR = timedelta(seconds=2)

Read = dict[Slot, Job | Exception | None]


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides on batches of entries. Single calls run concurrently on `executor`."""

    jobs: JobStore
    executor: Executor
    holding: HeldEntries
    waiting: Postponer
    pools: Pools

    def decide(
        self, batch: list[StoredEntry], now: datetime, report: TickReport
    ) -> list[DecidedEntry]:
        """Decide on *batch*. Entries that are late and were not held back have probably missed an
        occurrence, so their jobs are read consistently right away.
        """
        late = dict.fromkeys(s.entry.job for s in batch if _is_late(s.entry, now))
        asked = dict.fromkeys(s.entry.job for s in batch if self._depends_on_job(s.entry))
        others = [key for key in asked if key not in late]
        if late and not others:
            sure = dict(self.jobs.get_many(late, consistent=True))
        else:  # a failure here does not affect the other entries
            sure = self._read_batch(late)
        found = dict(self.jobs.get_many(others)) if others else {}
        jobs = found | sure
        read: Read = {s.slot: jobs.get(s.entry.job) for s in batch}
        return self._decide_each(batch, read, now, report, sure=sure.keys())

    def _read_batch(self, keys: Collection[JobKey]) -> dict[JobKey, Job | Exception]:
        """The jobs, by consistent reads; if the read fails, the error in place of each job."""
        try:
            return dict(self.jobs.get_many(keys, consistent=True)) if keys else {}
        except UnavailableError as error:
            return dict.fromkeys(keys, error)

    def confirm(
        self, decided: list[DecidedEntry], now: datetime, report: TickReport
    ) -> list[DecidedEntry]:
        """Decide again, on consistent reads, unless the decision is just to send a run: the first
        read may have been stale, and a skipped occurrence must be certain.
        """
        unsure = [d.stored for d in decided if not (d.sure or is_certain(d.decision))]
        read_again = self._decide_each(unsure, self._read(unsure), now, report)
        again = {due.stored.slot: due for due in read_again}
        asked = {stored.slot for stored in unsure}
        confirmed: list[DecidedEntry] = []
        for due in decided:  # keeps the order: the first entries get the room and the quota
            sure = again.get(due.stored.slot) if due.stored.slot in asked else due
            if sure is None:
                continue
            if isinstance(sure.decision, Leave):
                self.holding.ignore([due.stored.slot], now + _LEFT_FOR)
            elif isinstance(sure.decision, Drop):
                report.notes.append(f"dropped {due.stored.slot.sort_key}: {sure.decision.reason}")
            confirmed.append(_covering_first(sure) if isinstance(due.decision, Cover) else sure)
        return confirmed

    def _read(self, entries: list[StoredEntry]) -> Read:
        """Read the jobs of *entries* consistently: in one batch for FIRE entries; one by one, as
        whole items, for jobs that will be written and jobs that the batch did not find.
        """
        together = dict.fromkeys(s.entry.job for s in entries if isinstance(s.entry, FireEntry))
        found = self._read_batch(together)
        alone = {
            key: self.executor.submit(self.jobs.get, key)
            for key in dict.fromkeys(s.entry.job for s in entries)
            if key not in found
        }
        read: Read = {}
        for stored in entries:
            key = stored.entry.job
            try:
                read[stored.slot] = found[key] if key in found else alone[key].result()
            except Exception as error:  # noqa: BLE001 — reported when the entry is decided
                read[stored.slot] = error
        return read

    def _decide_each(
        self,
        entries: list[StoredEntry],
        jobs: Read,
        now: datetime,
        report: TickReport,
        *,
        sure: Collection[JobKey] = (),
    ) -> list[DecidedEntry]:
        """Decide on each entry. Entries whose job cannot be read are postponed and do not affect
        the others.

        *sure*: the jobs that were read consistently.
        """
        decided: list[DecidedEntry] = []
        unread: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for stored in entries:
            try:
                job = jobs[stored.slot]
                if isinstance(job, Exception):
                    raise job
                entry = stored.entry
                is_sure = isinstance(entry, FireEntry) and entry.job in sure
                decision = self.pools.route(decide_due(entry, job, now), job, entry.at, now)
                decided.append(DecidedEntry(stored, decision, is_sure))
            except UnavailableError as error:
                unread.append(stored)
                report.not_answered(stored, error)
            except Exception as error:  # noqa: BLE001 — stays in the table; reported and alarmed
                undecided.append(stored)
                report.cannot_decide(stored, error)
        self.waiting.postpone(unread, WaitReason.NO_ANSWER)
        self.waiting.postpone(undecided, WaitReason.BROKEN)
        return decided

    def _depends_on_job(self, entry: DueEntry) -> bool:
        """Whether the decision depends on the job. A retry whose pool exists does not."""
        if not isinstance(entry, DispatchEntry):
            return True
        is_first = entry.trigger is Trigger.MANUAL or entry.dispatch == 1
        return (is_first and entry.exclusive) or not self.pools.exist(entry.pool)


def _is_late(entry: DueEntry, now: datetime) -> bool:
    return isinstance(entry, FireEntry) and not entry.held and now - entry.at > MISFIRE_AFTER


def misses(due: DecidedEntry) -> bool:
    """Whether an occurrence of the entry's chain is skipped."""
    return isinstance(due.decision, Cover) or (
        isinstance(due.decision, Fire) and bool(due.decision.missed)
    )


def _covering_first(due: DecidedEntry) -> DecidedEntry:
    """*due*, changed to record the missed occurrences before any run of its job is sent."""
    decision = due.decision
    if isinstance(decision, Fire) and decision.cover_first is not None:
        return replace(due, decision=decision.cover_first)
    return due


def in_order(decided: list[DecidedEntry]) -> tuple[list[DecidedEntry], list[StoredEntry]]:
    """*decided* without the entries that follow a missed range in their chain; and those entries.

    A watcher that died after it stored a successor and before it deleted the entry left both in the
    table. The range of the first must be on record before the second is decided; otherwise its
    occurrence would be both sent and covered.
    """
    missed: dict[tuple[str, int], datetime] = {}
    fires = [(due, due.entry) for due in decided if isinstance(due.entry, FireEntry)]
    for due, entry in fires:
        if misses(due):
            at, chain = entry.occurs_at, _chain(entry)
            missed[chain] = min(at, missed.get(chain, at))
    if not missed:
        return decided, []
    followers = [
        due for due, entry in fires if entry.occurs_at > missed.get(_chain(entry), entry.occurs_at)
    ]
    if not followers:
        return decided, []
    behind = {id(due) for due in followers}
    followed = {_chain(entry) for due, entry in fires if id(due) in behind}
    leads = {id(due) for due, entry in fires if _chain(entry) in followed}
    first = [due for due in decided if id(due) not in behind]
    in_order = [_covering_first(due) if id(due) in leads else due for due in first]
    return in_order, [due.stored for due in followers]


def _chain(entry: FireEntry) -> tuple[str, int]:
    return entry.uid, entry.version
