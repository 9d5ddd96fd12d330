"""Quotas per tenant. The operator sets them; all components of a stack use the same values."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated

from pydantic import Field

from nextfire.domain.document import StrictModel
from nextfire.domain.errors import BeyondQuotaError, QuotaUsedUpError
from nextfire.domain.request_limits import RequestLimit

_BURST_SECONDS = 2
_ASK_AGAIN = 60
"""`Retry-After` in seconds for the jobs quota: a job may have ended by then."""


class Quota(StrEnum):
    """Names of the quotas in settings and API responses."""

    JOBS = "jobs"
    RUNS_PER_MINUTE = "runsPerMinute"
    CONCURRENT_RUNS = "concurrentRuns"
    PAYLOAD_BYTES = "payloadBytes"
    SHORTEST_INTERVAL_SEC = "shortestIntervalSec"
    REQUESTS_PER_SECOND = "requestsPerSecond"
    REQUEST_BURST = "requestBurst"
    KEY_REQUESTS_PER_SECOND = "keyRequestsPerSecond"
    KEY_REQUEST_BURST = "keyRequestBurst"


RATES = {
    Quota.REQUEST_BURST: Quota.REQUESTS_PER_SECOND,
    Quota.KEY_REQUEST_BURST: Quota.KEY_REQUESTS_PER_SECOND,
}
"""The rate that each burst belongs to."""


class Quotas(StrictModel):
    """The quotas of a tenant. None means unlimited; an unlimited quota costs no requests.

    `jobs`: maximum number of jobs that are ACTIVE or PAUSED. `runs_per_minute`: maximum number of
    runs sent to queues per clock minute, retries included; excess runs wait in the due table.
    `concurrent_runs`: maximum number of runs in progress per pool; excess runs wait in the queue of
    the pool. `payload_bytes`: maximum size of the payload of a job or a run, as JSON.
    `shortest_interval_sec`: minimum number of seconds between two occurrences of a job.
    `requests_per_second`: rate of API requests of the tenant, with bursts of `request_burst`
    (default: the requests of two seconds). `key_…`: the same limits for each key, role or token
    subject of the tenant.
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
        """Limit for all requests of the tenant; None: unlimited."""
        return _limit(self.requests_per_second, self.request_burst)

    @property
    def key_request_limit(self) -> RequestLimit | None:
        """Limit for the requests of each key; None: unlimited."""
        return _limit(self.key_requests_per_second, self.key_request_burst)


def _limit(per_second: int | None, burst: int | None) -> RequestLimit | None:
    if per_second is None:
        return None
    return RequestLimit(per_second, _BURST_SECONDS * per_second if burst is None else burst)


class TenantQuotas(StrictModel):
    """The quotas of all tenants: the `default`, and overrides for individual `tenants`. A quota
    that an override does not name keeps its default; an override of null makes it unlimited.
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
    """The error for a job that exceeds the quota of *most* jobs."""
    return QuotaUsedUpError(
        Quota.JOBS,
        f"Your quota of jobs that are ACTIVE or PAUSED, which is {most}, is used up",
        "Delete jobs that you do not need, or ask for a larger quota. "
        "GET /v1/quotas shows how many count.",
        retry_after=_ASK_AGAIN,
    )


def too_many_requests(quota: Quota, limit: RequestLimit, wait: timedelta) -> QuotaUsedUpError:
    """The error for a request that exceeds *limit*, the limit that *quota* sets."""
    whose = "This key" if quota is Quota.KEY_REQUESTS_PER_SECOND else "Your tenant"
    return QuotaUsedUpError(
        quota,
        f"{whose} may make {limit.per_second} requests a second, {limit.burst} at once ({quota})",
        "The request had no effect. Retry after the number of seconds in `Retry-After`.",
        retry_after=max(ceil(wait / timedelta(seconds=1)), 1),
    )


def check_payload(size: int, quotas: Quotas) -> None:
    """Check the size of a payload, in bytes, against the quota.

    Raises:
        BeyondQuotaError: The payload is too large.
    """
    most = quotas.payload_bytes
    if most is not None and size > most:
        raise BeyondQuotaError(
            Quota.PAYLOAD_BYTES,
            "payload",
            f"{size} bytes",
            f"larger than your quota of {most} bytes as JSON",
            "Store the data in S3 and put its URL into the payload.",
        )
