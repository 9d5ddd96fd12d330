"""What does not decode is kept where it blocks nothing, and its job's chain is put in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nextfire.domain.due import BrokenEntry
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.job import JobState
from nextfire.domain.ports import DueStore, JobStore
from nextfire.usecases.dispatch.report import TickReport

_FOREIGN_FOR = timedelta(minutes=10)  # well above a watcher's life
_BROKEN_REACH = timedelta(days=1)
_LOOK_AGAIN = timedelta(seconds=60)
_CHAIN_AGAIN = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Sets entries aside that do not decode."""

    jobs: JobStore
    due: DueStore

    def set_aside(self, broken: BrokenEntry, now: datetime, report: TickReport) -> timedelta | None:
        """Keep *broken* where it blocks nothing.

        Returns:
            For how long to leave it alone where that could not be; None if it is done.

        Raises:
            UnavailableError: A store did not answer.
        """
        if broken.foreign and now < broken.slot.minute + _FOREIGN_FOR:
            # During a deploy a newer version may be at work beside this one.
            report.notes.append(f"left to others: {broken.slot.sort_key}: {broken.error}")
            return _LOOK_AGAIN
        try:
            if not self._restore_chain(broken, now, report):
                return _CHAIN_AGAIN
            self.due.quarantine(broken, now)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 — one entry must not stop the others
            report.quarantined += 1
            report.notes.append(f"not quarantined, stays: {broken.slot}: {error}")
            return _LOOK_AGAIN
        report.quarantined += 1
        report.notes.append(
            f"quarantined {broken.slot.bucket} {broken.slot.sort_key}: {broken.error}"
        )
        return None

    def _restore_chain(self, broken: BrokenEntry, now: datetime, report: TickReport) -> bool:
        """Store the FIRE entry that its job has lost, if it has one to come. False: not now."""
        try:
            job = self.jobs.get(broken.job) if broken.job else None
            if job is None or job.state is not JobState.ACTIVE:
                return True
            # A key that lies about its time must not bring the job's whole history back.
            at = max(broken.at or now, broken.slot.minute - _BROKEN_REACH)
            # Its own occurrence if it is one, else the next. With jitter one before it may come
            # again; its run has a record, so nothing comes of that.
            since = min(at, now) - job.definition.jitter_width - timedelta(milliseconds=1)
            entry = job.next_entry(since)
            if entry is None:
                return True
            if entry.sort_key == broken.slot.sort_key:
                # It takes the broken one's place: if we die then, nobody sees that again.
                self.due.keep(broken, now)
            return bool(self.due.put([entry], now))
        except (UndecodableError, InvalidInputError) as error:
            report.notes.append(f"chain of {broken.job} is not restored: {error}")
            return True
