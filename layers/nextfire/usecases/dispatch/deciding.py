"""What becomes of the entries of a batch: decided on the jobs as they are read."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nextfire.domain.due import DispatchEntry, DueEntry, FireEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import (
    MISFIRE_AFTER,
    Cover,
    Drop,
    Fire,
    Leave,
    decide_due,
    is_certain,
)
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports import JobStore
from nextfire.domain.run import Trigger
from nextfire.usecases.dispatch.holding import Holding
from nextfire.usecases.dispatch.report import Due, TickReport
from nextfire.usecases.dispatch.waiting import Waiting, Why

_LEFT_FOR = timedelta(seconds=2)

Read = dict[Slot, Job | Exception | None]


@dataclass(frozen=True, slots=True)
class Deciding:
    """Decides over batches. Single calls go side by side on `executor`."""

    jobs: JobStore
    executor: Executor
    holding: Holding
    waiting: Waiting

    def decide(self, batch: list[StoredEntry], now: datetime, report: TickReport) -> list[Due]:
        """What is late, and was not held back before, is likely to have missed something: its job
        is read consistently at once.
        """
        late = dict.fromkeys(s.entry.job for s in batch if _is_late(s.entry, now))
        asked = dict.fromkeys(s.entry.job for s in batch if _asks_for_job(s.entry))
        others = [key for key in asked if key not in late]
        if late and not others:
            sure = dict(self.jobs.get_many(late, consistent=True))
        else:  # if it cannot be read, the others go on
            sure = self._together(late)
        found = dict(self.jobs.get_many(others)) if others else {}
        jobs = found | sure
        read: Read = {s.slot: jobs.get(s.entry.job) for s in batch}
        return self._decided(batch, read, now, report, sure=sure.keys())

    def _together(self, keys: Collection[JobKey]) -> dict[JobKey, Job | Exception]:
        """The jobs, by consistent reads; if they cannot be had, the error in place of each."""
        try:
            return dict(self.jobs.get_many(keys, consistent=True)) if keys else {}
        except UnavailableError as error:
            return dict.fromkeys(keys, error)

    def confirm(self, decided: list[Due], now: datetime, report: TickReport) -> list[Due]:
        """Decide again, on consistent reads, where not just to send: the first read may have been
        stale, and what does not run must be certain.
        """
        unsure = [d.stored for d in decided if not (d.sure or is_certain(d.decision))]
        read_again = self._decided(unsure, self._read(unsure), now, report)
        again = {due.stored.slot: due for due in read_again}
        asked = {stored.slot for stored in unsure}
        confirmed: list[Due] = []
        for due in decided:  # in this order: whoever is first has the room and the quota
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
        """Their jobs, by consistent reads: together, but for those that are to be written, which
        are read whole, and those that are not found.
        """
        together = dict.fromkeys(s.entry.job for s in entries if isinstance(s.entry, FireEntry))
        found = self._together(together)
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
            except Exception as error:  # noqa: BLE001 — told when it is decided over
                read[stored.slot] = error
        return read

    def _decided(
        self,
        entries: list[StoredEntry],
        jobs: Read,
        now: datetime,
        report: TickReport,
        *,
        sure: Collection[JobKey] = (),
    ) -> list[Due]:
        """The decisions, except for entries whose job cannot be read: one must not stop the others.

        *sure*: the jobs that were read consistently.
        """
        decided: list[Due] = []
        unread: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        for stored in entries:
            try:
                job = jobs[stored.slot]
                if isinstance(job, Exception):
                    raise job
                entry = stored.entry
                is_sure = isinstance(entry, FireEntry) and entry.job in sure
                decided.append(Due(stored, decide_due(entry, job, now), is_sure))
            except UnavailableError as error:
                unread.append(stored)
                report.notes.append(f"{stored.slot.sort_key} waits: {error}")
            except Exception as error:  # noqa: BLE001 — kept where it is, told and alarmed
                undecided.append(stored)
                report.cannot_decide(stored, error)
        self.waiting.postpone(unread, Why.NO_ANSWER)
        self.waiting.postpone(undecided, Why.BROKEN)
        return decided


def _is_late(entry: DueEntry, now: datetime) -> bool:
    return isinstance(entry, FireEntry) and not entry.held and now - entry.at > MISFIRE_AFTER


def _asks_for_job(entry: DueEntry) -> bool:
    """Whether its decision depends on the job: a retry has been decided over."""
    if not isinstance(entry, DispatchEntry):
        return True
    return entry.trigger is Trigger.MANUAL and entry.exclusive


def misses(due: Due) -> bool:
    """Whether something of the entry's chain does not run."""
    return isinstance(due.decision, Cover) or (
        isinstance(due.decision, Fire) and bool(due.decision.missed)
    )


def _covering_first(due: Due) -> Due:
    """*due*, with what was missed put on record before anything of its job is sent."""
    decision = due.decision
    if isinstance(decision, Fire) and decision.cover_first is not None:
        return replace(due, decision=decision.cover_first)
    return due


def in_order(decided: list[Due]) -> tuple[list[Due], list[StoredEntry]]:
    """*decided* without what follows a missed stretch in its own chain; and that.

    A watcher that died between storing a successor and deleting its entry left both: what the first
    one covers is to be on record before the other is decided over, or its occurrence would be sent,
    and covered as well.
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
