"""Sets undecodable entries aside and repairs the chains of their jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.due import BrokenEntry
from nextfire.domain.errors import InvalidInputError, UnavailableError, UndecodableError
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.usecases.dispatch.report import TickReport

_FOREIGN_FOR = timedelta(minutes=10)  # well above the lifetime of a watcher
_MAX_REPLAY = timedelta(days=1)
_RETRY_AFTER = timedelta(seconds=60)
_CHAIN_RETRY_AFTER = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Sets undecodable entries aside."""

    jobs: JobStore
    due: DueStore

    def set_aside(self, broken: BrokenEntry, now: datetime, report: TickReport) -> timedelta | None:
        """Move *broken* to quarantine, where it blocks nothing.

        Returns:
            How long to ignore it if that failed; None if it is done.
        """
        if broken.foreign and now < broken.slot.minute + _FOREIGN_FOR:
            # During a deployment a newer version may run at the same time as this one.
            report.notes.append(f"left to a newer version: {broken.slot.sort_key}: {broken.error}")
            return _RETRY_AFTER
        try:
            if not self._restore_chain(broken, now, report):
                return _CHAIN_RETRY_AFTER
            self.due.quarantine(broken, now)
        except UnavailableError as error:
            report.notes.append(f"{broken.slot.sort_key} waits: {error}")
            return _CHAIN_RETRY_AFTER
        except Exception as error:  # noqa: BLE001 — one entry must not stop the others
            report.quarantined += 1
            report.notes.append(f"not quarantined, stays: {broken.slot}: {error}")
            return _RETRY_AFTER
        report.quarantined += 1
        report.notes.append(
            f"quarantined {broken.slot.bucket} {broken.slot.sort_key}: {broken.error}"
        )
        return None

    def _restore_chain(self, broken: BrokenEntry, now: datetime, report: TickReport) -> bool:
        """Store the FIRE entry that the job has lost, if it has a next one. False: retry later."""
        try:
            job = self.jobs.get(broken.job) if broken.job else None
            if job is None or job.state is not JobState.ACTIVE:
                return True
            # A corrupt instant in the key must not replay the whole history of the job.
            at = max(broken.at or now, broken.slot.minute - _MAX_REPLAY)
            # The entry's own occurrence if it is one, else the next. With jitter, the previous one
            # may be sent again; its run has a record, so that has no effect.
            since = min(at, now) - job.definition.jitter_width - timedelta(milliseconds=1)
            entry = job.next_entry(since)
            if entry is None:
                return True
            if entry.sort_key == broken.slot.sort_key:
                # The put overwrites the broken entry, so keep a copy first in case we die after it.
                self.due.keep(broken, now)
            return bool(self.due.put([entry], now))
        except (UndecodableError, InvalidInputError) as error:
            report.notes.append(f"chain of {broken.job} not restored: {error}")
            return True
