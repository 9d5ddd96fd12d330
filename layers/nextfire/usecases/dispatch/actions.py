"""What is done for entries that may go on. Each may be done again, by another watcher too."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta

from nextfire.domain.due import FireEntry, Slot, StoredEntry
from nextfire.domain.due_decisions import Cover, Fire, GoOn, Resend, Resume
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.message import RunMessage
from nextfire.domain.ports import Clock, JobStore, RunQueue, RunStore
from nextfire.domain.quotas import TenantQuotas
from nextfire.usecases.cover_missed import Covered, cover_missed
from nextfire.usecases.dispatch.report import Due, TickReport
from nextfire.usecases.dispatch.waiting import Waiting, Why
from nextfire.usecases.go_on_backfill import GoOnBackfill

_COVER_FOR = timedelta(seconds=1)  # spent on missed occurrences in one step: the lease is short
_BACKFILL_FOR = timedelta(milliseconds=500)  # spent on backfills in one step

Followed = tuple[Due, FireEntry | None]
"""What was done, and the entry that is to follow it."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Single calls go side by side on `executor`."""

    jobs: JobStore
    runs: RunStore
    queue: RunQueue
    backfill: GoOnBackfill
    clock: Clock
    executor: Executor
    waiting: Waiting
    quotas: TenantQuotas

    def send(self, going: Sequence[Due]) -> set[int]:
        """Send the runs of *going*. Returns the indexes of those that were accepted."""
        messages = [(d.pool, self._message(d)) for d in map(_sent, going)]
        return self.queue.send(messages) if messages else set()

    def _message(self, decision: Fire | Resend) -> RunMessage:
        key = decision.run
        return RunMessage(
            tenant=key.job.tenant,
            job_id=key.job.job_id,
            run_id=key.run_id,
            dispatch=decision.dispatch if isinstance(decision, Resend) else 1,
            dispatched_at=self.clock.now(),
            exclusive=decision.exclusive,
            reason=decision.reason,
            missed=decision.missed if isinstance(decision, Fire) else (),
            abreast=self.quotas.of(key.job.tenant).concurrent_runs,
        )

    def cover(self, missed: Sequence[Due], now: datetime, report: TickReport) -> list[Followed]:
        """Put on record what does not run. A job's entries one after the other, the earliest first;
        for so long that the lease is not in danger: what is left comes again.
        """
        until = self.clock.now() + _COVER_FOR
        by_job: dict[JobKey, list[Due]] = {}
        for due in sorted(missed, key=lambda each: each.entry.sort_key):
            by_job.setdefault(due.entry.job, []).append(due)
        done: list[Followed] = []
        again: list[StoredEntry] = []
        undecided: list[StoredEntry] = []
        covering = [
            self.executor.submit(self._cover, of_job, until, now) for of_job in by_job.values()
        ]
        for due, covered in (each for of_job in covering for each in of_job.result()):
            if isinstance(covered, Covered):
                done.append((due, covered.successor))
                report.skipped += [covered.written] if covered.written else []
            elif covered is None or isinstance(covered, UnavailableError):
                again.append(due.stored)
                report.notes.append(f"not on record yet, stays: {due.stored.slot.sort_key}")
            else:
                undecided.append(due.stored)
                report.cannot_decide(due.stored, covered)
        self.waiting.postpone(again, Why.NO_TIME)
        self.waiting.postpone(undecided, Why.BROKEN)
        return done

    def _cover(
        self, of_job: Sequence[Due], until: datetime, now: datetime
    ) -> list[tuple[Due, Covered | Exception | None]]:
        """None: there was no time left."""
        done: list[tuple[Due, Covered | Exception | None]] = []
        for due in of_job:
            entry, decision = due.entry, due.decision
            if (
                not isinstance(entry, FireEntry)
                or not isinstance(decision, Cover)
                or self.clock.now() > until
            ):
                done.append((due, None))
                continue
            try:
                covered = cover_missed(self.runs, entry, decision, now)
                if decision.owned_until is None and covered.successor is None:
                    self.jobs.complete(decision.owner, now)
            except Exception as error:  # noqa: BLE001 — the caller tells apart
                done.append((due, error))
            else:
                done.append((due, covered))
        return done

    def end_replaced(self, sent: Sequence[Due], now: datetime, report: TickReport) -> set[Slot]:
        """Have the runs end that those of *sent* replace, now that these are in the queue. Done
        again, after a crash, it still concerns only what came before them. Returns the slots where
        it failed.
        """
        ending = {
            due.stored.slot: self.executor.submit(
                self.runs.stop, due.ends[0], reason=due.ends[1], now=now
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
                report.notes.append(f"the run before {slot.sort_key} is not stopped: {error}")
        return failed

    def resume(self, ended: Sequence[Due], report: TickReport) -> list[Slot]:
        """End the pauses of jobs, as of the instants of their entries; each with its first FIRE
        entry. Returns what is done with.
        """
        done: list[Slot] = []
        again: list[StoredEntry] = []
        for due in ended:
            stored, key = due.stored, due.entry.job
            try:
                resumed = isinstance(due.decision, Resume) and self._resume(due, due.decision)
            except UnavailableError as error:
                again.append(stored)
                report.notes.append(f"{stored.slot.sort_key} waits: {error}")
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                report.cannot_decide(stored, error)
                self.waiting.postpone([stored], Why.BROKEN)
            else:
                if resumed:
                    done.append(stored.slot)
                    report.notes.append(f"resumed {key.tenant}/{key.job_id}")
                else:  # changed meanwhile, it is decided over again
                    again.append(stored)
        self.waiting.postpone(again, Why.NO_ANSWER)
        return done

    def _resume(self, due: Due, decision: Resume) -> bool:
        job, first = decision.job.resumption(due.entry.at)
        counts = int(job.counted) - int(decision.job.counted)
        return self.jobs.update(job, first, self.clock.now(), counts=counts)

    def go_on(self, backfills: Sequence[Due], report: TickReport) -> list[Slot]:
        """Go on with backfills, side by side, for so long that others are not held up. Returns what
        is done with.
        """
        until = self.clock.now() + _BACKFILL_FOR
        going = [
            (due.stored, self.executor.submit(self.backfill.step, d.entry, d.job, until))
            for due in backfills
            if isinstance(d := due.decision, GoOn)
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
                report.cannot_decide(stored, error)
                self.waiting.postpone([stored], Why.BROKEN)
            else:
                if over:
                    done.append(stored.slot)
                else:
                    again.append(stored)
        self.waiting.postpone(again, Why.BACKFILL)
        return done


def _sent(due: Due) -> Fire | Resend:
    decision = due.decision
    assert isinstance(decision, Fire | Resend)  # noqa: S101 — for the type checker
    return decision
