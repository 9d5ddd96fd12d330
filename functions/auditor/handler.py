"""The auditor: invoked every 15 minutes, checks every job once a day."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import SystemClock
from nextfire.settings import AuditorSettings
from nextfire.usecases.audit_report import AuditReport
from nextfire.wiring.auditor import Continue, auditor
from nextfire.wiring.telemetry import Telemetry

_STOP_BEFORE = timedelta(minutes=1)
"""Time reserved at the end of an invocation for the jobs that are being checked."""
_NOT_COUNTS = ("notes", "overdue")

telemetry = Telemetry("auditor")


class AuditOverdueError(Exception):
    """The audit has not ended when the next one is due. The next invocation continues it."""


@cache
def _auditor() -> Continue:
    return auditor(AuditorSettings.read())


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Continue the current audit, or start a new one if it is due.

    Args:
        event: ``{"full": true}`` starts a new audit immediately; ``{"segment": n}``: the part of
            the audit that this invocation continues, from 0, by default 0. Others are ignored.
        context: The Lambda context, for the remaining time.

    Returns:
        The counts of this invocation as JSON: jobs, restored, resent, covered, revived, completed,
        waiting, behind, quarantined, removed, done.

    Raises:
        AuditOverdueError: After its work, so that Lambda counts an error and an alarm notifies.
    """
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    until = SystemClock().now() + left - _STOP_BEFORE
    total = AuditReport()
    segment = int(event.get("segment", 0))
    for report in _auditor()(until, segment, event.get("full") is True):
        telemetry.audited(report)
        telemetry.flush()
        total += replace(report, notes=[])  # are logged
    counts = {name: count for name, count in asdict(total).items() if name not in _NOT_COUNTS}
    telemetry.logger.info("audited", **counts)
    if total.overdue:
        raise AuditOverdueError(
            "An audit takes longer than auditEvery: raise auditSegments or auditEvery, or look in "
            "this log for a table that does not answer."
        )
    return counts
