"""Divides an audit among several auditors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING

from nextfire.dataclass import dataclass
from nextfire.domain.audit_pass import MAX_SEGMENTS, Audit
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Scan
from nextfire.usecases.audit_report import AuditReport

if TYPE_CHECKING:
    from nextfire.usecases.audit import AuditJobs

PART = 10_000
"""Jobs of a part: some three minutes of work."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class AuditParts:
    """The auditors of `segments` segments, which take parts of one audit, each of `part` jobs, one
    after the other.

    The audit has the position up to which parts are taken. A segment stores its part before it
    moves that position: if it dies in between, or another segment is faster, a part is visited
    twice, which does no harm. With one segment, the audit has the position of the last visit.
    """

    auditor: AuditJobs
    jobs: JobStore
    control: ControlStore
    clock: Clock
    segments: int
    part: int

    def continue_audit(
        self, until: datetime, *, segment: int, restart: bool
    ) -> Iterator[AuditReport]:
        """Continue the parts of *segment*, and take further ones, as `AuditJobs.continue_audit`.
        Parts that segments left when their number was reduced are continued too.
        """
        report = AuditReport()
        try:
            for number in range(segment, MAX_SEGMENTS, self.segments):
                left = self.control.audit(number)
                if left is None or left.done:
                    continue
                part = self._by_current_rules(left, number, report)
                if part is None:
                    break
                yield from self.auditor.proceed(part, until, number)
                if not _is_done(self.control.audit(number)):
                    return
            else:
                yield from self._further(until, segment, report, restart=restart)
        except UnavailableError as error:
            report.notes.append(str(error))
        yield report

    def _further(
        self, until: datetime, segment: int, report: AuditReport, *, restart: bool
    ) -> Iterator[AuditReport]:
        """Take further parts for *segment*, and continue them."""
        while self.clock.now() < until:
            taken = self._take(segment, report, restart=restart)
            if taken is None:
                break
            restart = False
            yield from self.auditor.proceed(taken, until, segment)
            if not _is_done(self.control.audit(segment)):
                return

    def _take(self, segment: int, report: AuditReport, *, restart: bool) -> Audit | None:
        """Take the next part of the audit; None if nothing is left, or another auditor has
        *segment*.

        Raises:
            UnavailableError: A store did not answer.
        """
        audit = self.auditor.begin(report, restart=restart)
        for _ in range(_TRIES):
            if audit is None or audit.done:
                report.done = True
                return None
            end = self.jobs.skip(audit.after, self.part)
            part = replace(audit, end=end).with_release(audit, self.clock.now())
            was = self.control.audit(segment)
            if not self.control.replace_audit(was, part, segment):
                report.notes.append(f"another auditor has segment {segment}")
                return None
            if self.control.replace_audit(audit, audit.moved(end)):
                return part
            # Another segment has taken this part: it needs no second visit.
            self.control.replace_audit(part, part.moved(None), segment)
            audit = self.control.audit()
        return None

    def _by_current_rules(self, part: Audit, number: int, report: AuditReport) -> Audit | None:
        """The *part* of segment *number*, with the time zone rules of this process; None if another
        auditor continues it.

        Raises:
            UnavailableError: A store did not answer.
        """
        current = part.with_release(part, self.clock.now())
        if current != part and not self.control.replace_audit(part, current, number):
            report.notes.append(f"another auditor has segment {number}")
            return None
        return current


def _is_done(part: Audit | None) -> bool:
    return part is None or part.done


def up_to(end: JobKey | None, scan: Scan) -> Scan:
    """The part of *scan* up to the job *end*, which may be gone by now; None: all of it. It has no
    `last` if it reaches *end*.
    """
    if end is None:
        return scan

    def is_before(key: JobKey) -> bool:
        # Keys of different tenants are in an order that only the store knows.
        return key.tenant != end.tenant or key.job_id < end.job_id

    keys = [*(job.key for job in scan.jobs), *(key for key, _ in scan.unreadable)]
    if all(is_before(key) for key in keys):
        return scan
    ordered = [*takewhile(lambda job: is_before(job.key), scan.jobs)]
    last = next((job for job in scan.jobs if job.key == end), None)
    return Scan([*ordered, last] if last else ordered, scan.unreadable, None)
