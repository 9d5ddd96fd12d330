"""The auditor: invoked every 15 minutes, checks every job once a day."""

from __future__ import annotations

from dataclasses import asdict
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

telemetry = Telemetry("auditor")


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
    """
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    until = SystemClock().now() + left - _STOP_BEFORE
    total = AuditReport()
    segment = int(event.get("segment", 0))
    for report in _auditor()(until, segment, event.get("full") is True):
        total += report
        telemetry.audited(report)
        telemetry.flush()
    counts = {name: count for name, count in asdict(total).items() if name != "notes"}
    telemetry.logger.info("audited", **counts)
    return counts
