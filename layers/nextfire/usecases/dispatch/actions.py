"""Actions on admitted entries. Each is idempotent, also across watchers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from zlib import crc32

from nextfire.dataclass import dataclass
from nextfire.domain.due import FireEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import ContinueDecision, Cover, Fire, Resend, Resume
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut
from nextfire.domain.message import RunMessage
from nextfire.domain.quotas import TenantQuotas
from nextfire.domain.run import Run, RunState
from nextfire.domain.zone_moves import Move
from nextfire.usecases.continue_backfill import ContinueBackfill
from nextfire.usecases.cover_missed import CoverResult, cover_missed
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.report import DecidedEntry, TickReport
from nextfire.usecases.dispatch.waiting import Postponer, WaitReason

_COVER_FOR = timedelta(seconds=1)  # for missed occurrences in one step: the lease is short
_BACKFILL_FOR = timedelta(milliseconds=500)  # for backfills in one step

Followed = tuple[DecidedEntry, FireEntry | None]
"""An entry that was handled, and its successor, if any."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Carries out decisions. Single calls run concurrently."""

    ports: WatcherPorts
    backfill: ContinueBackfill
    waiting: Postponer
    quotas: TenantQuotas

    def send(self, going: Sequence[DecidedEntry]) -> set[int]:
        """Send the runs of *going*. Returns the indexes of those that the queue accepted."""
        messages = [(d.pool, self._message(d)) for d in map(_sent, going)]
        return self.ports.queue.send(messages) if messages else set()

    def _message(self, decision: Fire | Resend) -> RunMessage:
        key = decision.run
        return RunMessage(
            tenant=key.job.tenant,
            job_id=key.job.job_id,
            run_id=key.run_id,
            dispatch=decision.dispatch,
            dispatched_at=self.ports.clock.now(),
            exclusive=decision.exclusive,
            reason=decision.reason,
            missed=decision.missed if isinstance(decision, Fire) else (),
            resumed_as=decision.resumed_as if isinstance(decision, Fire) else None,
            removed_pool=decision.removed_pool if isinstance(decision, Resend) else None,
            max_concurrent=self.quotas.of(key.job.tenant).concurrent_runs,
        )

    def cover(
        self, missed: Sequence[DecidedEntry], now: datetime, report: TickReport
    ) -> list[Followed]:
        """Write the records of occurrences that are skipped.

        Entries of one job are covered one after another, the earliest first. The work is bounded in
        time to protect the lease; entries that are left are postponed.
        """
        until = self.ports.clock.now() + _COVER_FOR
        by_job: dict[JobKey, list[DecidedEntry]] = {}
        for due in sorted(missed, key=lambda each: each.entry.sort_key):
            by_job.setdefault(due.entry.job, []).append(due)
        done: list[Followed] = []
        again: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        covering = [
            self.ports.executor.submit(self._cover, of_job, until, now)
            for of_job in by_job.values()
        ]
        for due, covered in (each for of_job in covering for each in of_job.result()):
            if isinstance(covered, CoverResult):
                done.append((due, covered.successor))
                report.skipped += [covered.written] if covered.written else []
            elif covered is None or isinstance(covered, UnavailableError):
                again.append(due.stored)
                report.notes.append(f"not recorded yet, entry stays: {due.stored.slot.sort_key}")
                report.undelivered += int(covered is not None)
            else:
                undecided.append(due.stored)
                report.cannot_decide(due.stored, covered)
        self.waiting.postpone(again, WaitReason.NO_TIME)
        self.waiting.postpone(undecided, WaitReason.BROKEN)
        return done

    def _cover(
        self, of_job: Sequence[DecidedEntry], until: datetime, now: datetime
    ) -> list[tuple[DecidedEntry, CoverResult | Exception | None]]:
        """Cover the entries of one job. The result is None if there was no time left."""
        done: list[tuple[DecidedEntry, CoverResult | Exception | None]] = []
        for due in of_job:
            entry, decision = due.entry, due.decision
            if (
                not isinstance(entry, FireEntry)
                or not isinstance(decision, Cover)
                or self.ports.clock.now() > until
            ):
                done.append((due, None))
                continue
            try:
                covered = cover_missed(self.ports.runs, entry, decision, now)
                if decision.owned_until is None and covered.successor is None:
                    self.ports.jobs.complete(decision.owner, now)
            except Exception as error:  # noqa: BLE001 — the caller handles each kind
                done.append((due, error))
            else:
                done.append((due, covered))
        return done

    def move(self, moved: Sequence[DecidedEntry], now: datetime, report: TickReport) -> list[Slot]:
        """Store entries where the time zone rules have moved them. Returns the slots of those that
        are done. The record of the former instant decides whether the run has started there.
        """
        going = [
            (due.stored, partial(self._move, decision, now, report))
            for due in moved
            if isinstance(decision := due.decision, Move)
        ]
        return self._finish(going, WaitReason.NO_ANSWER, report)

    def _move(self, decision: Move, now: datetime, report: TickReport) -> bool:
        skipped = Run.skipped(decision.run, decision.reason, cut(now))
        if decision.to is None:
            stored = self.ports.runs.skip(skipped)
        else:
            # In one transaction: between the two, a watcher with the earlier release would find the
            # old entry, store its successor by the earlier rules and delete it.
            stored = self.ports.runs.request(skipped, decision.to, self.ports.clock.now()).run
        is_new = stored == skipped
        has_not_run = stored.state is RunState.SKIPPED and not stored.skip_requested
        entry = decision.to if has_not_run else decision.following
        if entry is not None:
            if not is_new and not self.ports.due.put([entry], self.ports.clock.now()):
                return False
        elif decision.is_current:
            self.ports.jobs.complete(decision.owner, now)
        report.skipped += [skipped] if is_new else []
        report.notes.append(f"{decision.run.execution_id}: {decision.reason}")
        return True

    def end_replaced(
        self, sent: Sequence[DecidedEntry], now: datetime, report: TickReport
    ) -> set[Slot]:
        """Stop the runs that those of *sent* replace, now that the new runs are in the queue.

        Idempotent: after a crash it still affects only earlier runs. Returns the slots of entries
        whose stop failed.
        """
        ending = {
            due.stored.slot: self.ports.executor.submit(
                self.ports.runs.stop, due.ends[0], reason=due.ends[1], now=now
            )
            for due in sent
            if due.ends is not None
        }
        failed: set[Slot] = set()
        for slot, end in ending.items():
            try:
                end.result()
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                failed.add(slot)
                report.notes.append(f"the run before {slot.sort_key} was not stopped: {error}")
        return failed

    def resume(self, ended: Sequence[DecidedEntry], report: TickReport) -> list[Slot]:
        """End the pauses of jobs concurrently, effective at the instants of their RESUME entries,
        and store each job's first FIRE entry. Returns the slots of entries that are done.
        """
        going = [
            (due.stored, self.ports.executor.submit(self._resume, due, decision).result)
            for due in ended
            if isinstance(decision := due.decision, Resume)
        ]
        done = self._finish(going, WaitReason.NO_ANSWER, report)
        resumed = (due.entry.job for due in ended if due.stored.slot in done)
        report.notes += [f"resumed {job.tenant}/{job.job_id}" for job in resumed]
        return done

    def _resume(self, due: DecidedEntry, decision: Resume) -> bool:
        job, first = decision.job.resumption(due.entry.at)
        counts = int(job.counted) - int(decision.job.counted)
        return self.ports.jobs.update(job, first, self.ports.clock.now(), counts=counts)

    def continue_backfills(
        self, backfills: Sequence[DecidedEntry], report: TickReport
    ) -> list[Slot]:
        """Continue backfills concurrently, for a bounded time so that other entries are not
        delayed. Returns the slots of entries that are done.
        """
        begun_at = self.ports.clock.now()
        until = begun_at + _BACKFILL_FOR

        def turn(due: DecidedEntry) -> int:
            """Its place, a different one each time: time may not suffice for the last ones."""
            return crc32(f"{begun_at} {due.stored.slot.sort_key}".encode())

        going = [
            (
                due.stored,
                self.ports.executor.submit(self.backfill.step, d.entry, d.job, until).result,
            )
            for due in sorted(backfills, key=turn)
            if isinstance(d := due.decision, ContinueDecision)
        ]
        return self._finish(going, WaitReason.BACKFILL, report)

    def _finish(
        self,
        going: Sequence[tuple[StoredEntry, Callable[[], bool]]],
        otherwise: WaitReason,
        report: TickReport,
    ) -> list[Slot]:
        """The slots of the entries in *going* that are done. The others are decided again later."""
        done: list[Slot] = []
        again: list[StoredEntry] = []
        for stored, is_done in going:
            try:
                if is_done():
                    done.append(stored.slot)
                else:
                    again.append(stored)
            except UnavailableError as error:
                again.append(stored)
                report.not_answered(stored, error, late=otherwise is not WaitReason.BACKFILL)
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                report.cannot_decide(stored, error)
                self.waiting.postpone([stored], WaitReason.BROKEN)
        self.waiting.postpone(again, otherwise)
        return done


def _sent(due: DecidedEntry) -> Fire | Resend:
    decision = due.decision
    assert isinstance(decision, Fire | Resend)  # noqa: S101 — for the type checker
    return decision
