"""The audit log: appends changes from the tables' streams to the audit chain in S3."""

from __future__ import annotations

from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import SystemClock, s3
from nextfire.adapters.dynamodb.change_stream import changes_of, table_of
from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.settings import AuditLogSettings
from nextfire.usecases.record_changes import RecordChanges
from nextfire.wiring.telemetry import Telemetry

telemetry = Telemetry("auditlog")


@cache
def settings() -> AuditLogSettings:
    return AuditLogSettings.read()


@cache
def record_changes() -> RecordChanges:
    return RecordChanges(S3AuditLog(s3(), bucket=settings().audit_bucket), SystemClock())


def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, int]:
    """Append a batch of stream records.

    Args:
        event: Records of one table's stream, in order. After an error Lambda redelivers all of
            them; those that were appended are recognized by their ids.

    Returns:
        The number of records received, and the number of events appended.
    """
    names = settings()
    tables = {
        names.jobs_table: "jobs",
        names.runs_table: "runs",
        names.keys_table: "keys",
        names.requests_table: "requests",
    }
    records = event["Records"]
    appended = record_changes().record(changes_of(records, tables))
    table = table_of(records[0], tables)
    telemetry.logger.info("appended", table=table, records=len(records), events=appended)
    return {"records": len(records), "events": appended}
