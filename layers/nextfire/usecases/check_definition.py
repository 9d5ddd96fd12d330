"""Checks of job definitions against pools and quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice, pairwise

from nextfire.dataclass import dataclass
from nextfire.domain.definition import JobDefinition
from nextfire.domain.document import MAX_PAYLOAD_BYTES, is_same_json
from nextfire.domain.edges import Which
from nextfire.domain.errors import BeyondQuotaError, InvalidInputError
from nextfire.domain.json_text import json_size
from nextfire.domain.pool_names import NO_POOL, available
from nextfire.domain.quotas import NO_QUOTAS, Quota, Quotas, TenantQuotas, check_payload
from nextfire.domain.recurrence import occurrences
from nextfire.domain.references import check_references
from nextfire.domain.schedule import Schedule, ScheduleType
from nextfire.domain.script import check_no_ending, locate
from nextfire.domain.target import TargetKind

_OCCURRENCES_CHECKED = 1_500
"""Occurrences that are searched for a short gap: more than a day of an every-minute schedule."""
MAX_DOCUMENT_BYTES = 256 * 1024
"""Maximum size of a job as JSON, the same as of a request: patches can make a job larger. With its
children and its former schedules, it fits into a DynamoDB item.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on job definitions. `pools`: the maximum timeout of each existing pool; `quotas`: each
    tenant's maximums; `check_target`: raises InvalidInputError if the pool cannot run the target.
    """

    pools: Mapping[str, timedelta]
    scripts_bucket: str
    quotas: TenantQuotas = NO_QUOTAS
    check_target: Callable[[JobDefinition], None] = lambda _: None


def check_definition(
    definition: JobDefinition, limits: Limits, tenant: str, was: JobDefinition | None
) -> None:
    """Check that *definition* can run. A value that *was* already has from before a quota is
    accepted.

    Raises:
        InvalidInputError: It cannot.
        BeyondQuotaError: The payload is larger than the quota of *tenant*.
    """
    pool = definition.target.pool
    longest = limits.pools.get(pool)
    if longest is None:
        raise InvalidInputError("target.pool", pool, NO_POOL, available(limits.pools))
    if definition.timeout > longest:
        raise InvalidInputError(
            "timeoutSec",
            definition.timeout_sec,
            f"longer than pool {pool!r} allows",
            f"Use at most {int(longest.total_seconds())}, or a pool of workers.",
        )
    size = definition.payload_bytes()
    check_payload_size(size)
    _check_template_size(definition, was)
    _check_document_size(definition, was)
    has_new_payload = was is None or not is_same_json(was.payload, definition.payload)
    has_new_target = was is None or not was.target.is_same(definition.target)
    if has_new_payload:
        check_payload(size, limits.quotas.of(tenant))
    if has_new_target:
        check_no_ending("target.handler", definition.target.handler or "")
        check_references(definition.target, "target", tenant)
    if has_new_target or has_new_payload or (was and _upstream(was) != _upstream(definition)):
        limits.check_target(definition)
    if definition.target.kind is TargetKind.SCRIPT:
        locate(definition.target, bucket=limits.scripts_bucket, tenant=tenant)


def _upstream(definition: JobDefinition) -> set[tuple[str, Which]]:
    """What templates can name of the parents."""
    return {(edge.job, edge.which) for edge in definition.after}


def _check_template_size(definition: JobDefinition, was: JobDefinition | None) -> None:
    """Check the size of what a callback or an AWS call sends, if it differs from that of *was*:
    watchers decode it for each due entry.
    """
    field, template = definition.target.template
    if was is not None and is_same_json([field, template], [*was.target.template]):
        return
    if (size := json_size(template)) > MAX_PAYLOAD_BYTES:
        raise InvalidInputError(
            field,
            f"{size} bytes",
            f"larger than {MAX_PAYLOAD_BYTES} bytes as JSON",
            "Put data into the payload, for example as {{payload.text}}; or store it in S3 and send"
            " its address.",
        )


def _check_document_size(definition: JobDefinition, was: JobDefinition | None) -> None:
    size = json_size(definition.document())
    if size > MAX_DOCUMENT_BYTES and (was is None or size > json_size(was.document())):
        raise InvalidInputError(
            "body",
            f"{size} bytes",
            f"the job is larger than {MAX_DOCUMENT_BYTES} bytes as JSON",
            "Store the data in S3 and put its address into the payload.",
        )


def check_payload_size(size: int) -> None:
    """Check the size of a payload, in bytes.

    Raises:
        InvalidInputError: It is too large.
    """
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidInputError(
            "payload",
            f"{size} bytes",
            f"larger than {MAX_PAYLOAD_BYTES} bytes as JSON",
            "Store the data in S3 and put its address into the payload.",
        )


def check_interval(definition: JobDefinition, schedule: Schedule, quotas: Quotas) -> None:
    """Check that no two of the next occurrences of *definition*'s *schedule* are too close.

    Raises:
        BeyondQuotaError: Two of them are.
        InvalidInputError: The schedule cannot be read.
    """
    if quotas.shortest_interval_sec is None:
        return
    shortest = timedelta(seconds=quotas.shortest_interval_sec)
    found = occurrences(schedule, schedule.effective_from)
    # The gaps of an INTERVAL are equal, but for those around dates without occurrences.
    is_even = definition.type is ScheduleType.INTERVAL and not schedule.except_dates
    looked_at = 2 if is_even else _OCCURRENCES_CHECKED
    for one, other in pairwise(islice(found, looked_at)):
        if other.at - one.at < shortest:
            gap = f"{(other.at - one.at) / timedelta(seconds=1):g} s"
            raise BeyondQuotaError(
                Quota.SHORTEST_INTERVAL_SEC,
                "schedule",
                definition.schedule,
                f"has occurrences {gap} apart, and your quota is {shortest.total_seconds():g} s",
                "Use a longer interval.",
            )
