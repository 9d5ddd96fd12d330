"""The write by which an executor pauses a job whose target asked for it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nextfire.adapters.dynamodb.fields import encoder
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.job_items import PAUSED_FIELDS, encode_key
from nextfire.adapters.dynamodb.run_updates import set_or_remove
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState

_encode = encoder(PAUSED_FIELDS)


def pause_update(table: str, job: Job, reason: str, now: datetime) -> Any:
    """The parameters of the UpdateItem that pauses *job* at *now*, if it is ACTIVE and has the
    revision that was read.
    """
    fields = _encode(job.paused(now, reason).revised(now))
    return {
        "TableName": table,
        "Key": encode_key(job.key),
        "UpdateExpression": f"{set_or_remove(PAUSED_FIELDS, fields)}, {CHANGED_BY}",
        "ConditionExpression": "#uid = :uid AND #revision = :was AND #state = :active",
        "ExpressionAttributeNames": {f"#{field.name}": field.name for field in PAUSED_FIELDS}
        | {"#uid": "uid"},
        "ExpressionAttributeValues": {f":{name}": value for name, value in fields.items()}
        | to_item({":uid": job.uid, ":was": job.revision, ":active": JobState.ACTIVE.value}),
    }
