"""The request that removes a job in a final state."""

from __future__ import annotations

from typing import Any

from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.job_items import encode_key
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState


def removal(table: str, job: Job) -> dict[str, Any]:
    """The parameters of the DeleteItem that removes *job*, if it is unchanged and final."""
    return {
        "TableName": table,
        "Key": encode_key(job.key),
        "ConditionExpression": (
            "uid = :uid AND revision = :revision AND #state IN (:completed, :cancelled)"
        ),
        "ExpressionAttributeNames": {"#state": "state"},
        "ExpressionAttributeValues": to_item(
            {
                ":uid": job.uid,
                ":revision": job.revision,
                ":completed": JobState.COMPLETED.value,
                ":cancelled": JobState.CANCELLED.value,
            }
        ),
    }
