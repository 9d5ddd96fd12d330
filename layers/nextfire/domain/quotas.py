"""What a tenant may have at most: set by whoever runs the stack, the same everywhere in it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nextfire.domain.errors import BeyondQuotaError, QuotaUsedUpError
from nextfire.domain.request_limits import RequestLimit

_BURST_SECONDS = 2
_ASK_AGAIN = 60
"""Seconds after which a job may have ended."""


class Quota(StrEnum):
    """The names of the quotas, as settings and answers have them."""

    JOBS = "jobs"
    RUNS_PER_MINUTE = "runsPerMinute"
    CONCURRENT_RUNS = "concurrentRuns"
    PAYLOAD_BYTES = "payloadBytes"
    SHORTEST_INTERVAL_SEC = "shortestIntervalSec"
    REQUESTS_PER_SECOND = "requestsPerSecond"
    REQUEST_BURST = "requestBurst"
    KEY_REQUESTS_PER_SECOND = "keyRequestsPerSecond"
    KEY_REQUEST_BURST = "keyRequestBurst"


class _Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Quotas(_Settings):
    """The quotas of a tenant; None: there is none, and nobody pays for it.

    `jobs`: that are ACTIVE or PAUSED. `runs_per_minute`: that are sent to queues within a minute of
    the clock, retries included; the others wait in the table. `concurrent_runs`: in work at a time
    in each pool; the others wait in its queue. `payload_bytes`: of a job's payload, or a run's, as
    JSON. `shortest_interval_sec`: between two occurrences of a job. `requests_per_second`: API
    requests of the tenant, `request_burst` of them at once (default: those of two seconds);
    `key_…`: of each of its keys, roles or token subjects.
    """

    jobs: Annotated[int, Field(ge=1)] | None = None
    runs_per_minute: Annotated[int, Field(ge=1)] | None = None
    concurrent_runs: Annotated[int, Field(ge=1, le=1000)] | None = None
    payload_bytes: Annotated[int, Field(ge=2)] | None = None
    shortest_interval_sec: Annotated[int, Field(ge=1, le=30 * 86_400)] | None = None
    requests_per_second: Annotated[int, Field(ge=1, le=10_000)] | None = None
    request_burst: Annotated[int, Field(ge=1, le=100_000)] | None = None
    key_requests_per_second: Annotated[int, Field(ge=1, le=10_000)] | None = None
    key_request_burst: Annotated[int, Field(ge=1, le=100_000)] | None = None

    @property
    def request_limit(self) -> RequestLimit | None:
        """The limit of all requests of the tenant; None: unlimited."""
        return _limit(self.requests_per_second, self.request_burst)

    @property
    def key_request_limit(self) -> RequestLimit | None:
        """The limit of the requests of each key; None: unlimited."""
        return _limit(self.key_requests_per_second, self.key_request_burst)


def _limit(per_second: int | None, burst: int | None) -> RequestLimit | None:
    if per_second is None:
        return None
    return RequestLimit(per_second, _BURST_SECONDS * per_second if burst is None else burst)


class TenantQuotas(_Settings):
    """The quotas of all tenants: the `default`, and what some `tenants` have instead of it. What a
    tenant's own quotas do not name is as in the default; named as null, it has none.
    """

    default: Quotas = Quotas()
    tenants: dict[str, Quotas] = Field(default_factory=dict)

    def of(self, tenant: str) -> Quotas:
        """The quotas of *tenant*."""
        own = self.tenants.get(tenant)
        if own is None:
            return self.default
        return self.default.model_copy(
            update={name: getattr(own, name) for name in own.model_fields_set}
        )


NO_QUOTAS = TenantQuotas()


def too_many_jobs(most: int | str) -> QuotaUsedUpError:
    """The refusal of one job more than *most*."""
    return QuotaUsedUpError(
        Quota.JOBS,
        f"You have {most} jobs that are ACTIVE or PAUSED, which is your quota",
        "Delete one that is not needed, or ask for a larger quota.",
        retry_after=_ASK_AGAIN,
    )


def too_many_requests(quota: Quota, limit: RequestLimit, wait: timedelta) -> QuotaUsedUpError:
    """The refusal of a request beyond *limit*, which is *quota*."""
    whose = "This key" if quota is Quota.KEY_REQUESTS_PER_SECOND else "Your tenant"
    return QuotaUsedUpError(
        quota,
        f"{whose} may make {limit.per_second} requests a second, {limit.burst} at once ({quota})",
        "Nothing was done. Send it again after the seconds in `Retry-After`.",
        retry_after=max(ceil(wait / timedelta(seconds=1)), 1),
    )


def check_payload(size: int, quotas: Quotas) -> None:
    """Let a payload of *size* bytes pass, if it may be so large.

    Raises:
        BeyondQuotaError: It may not.
    """
    most = quotas.payload_bytes
    if most is not None and size > most:
        raise BeyondQuotaError(
            Quota.PAYLOAD_BYTES,
            "payload",
            f"{size} bytes",
            f"larger than your quota of {most} bytes as JSON",
            "Put the data into S3 and its address into the payload.",
        )
