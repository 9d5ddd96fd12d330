"""Responses about quotas."""

from __future__ import annotations

from datetime import datetime

from nextfire.responses.base import ApiResponse, field


class OwnQuotas(ApiResponse):
    """Quotas of a tenant. An absent field means no limit."""

    jobs: int | None = field(description="Maximum number of ACTIVE and PAUSED jobs.")
    runs_per_minute: int | None = field(
        description="Runs dispatched per clock minute, including retries. Further runs wait."
    )
    concurrent_runs: int | None = field(
        description="Concurrent runs in each pool. Further runs wait."
    )
    payload_bytes: int | None = field(description="Maximum size of a payload as JSON, in bytes.")
    shortest_interval_sec: int | None = field(
        description="Minimum seconds between two occurrences of a job."
    )
    requests_per_second: int | None = field(
        description="Average rate of API requests of the tenant."
    )
    request_burst: int | None = field(
        description="Burst of API requests of the tenant. Default: 2 seconds of the rate."
    )
    key_requests_per_second: int | None = field(
        description="Average rate of API requests of each key, role or token subject."
    )
    key_request_burst: int | None = field(
        description="Burst of API requests of each of these. Default: 2 seconds of the rate."
    )


class UsedQuotas(ApiResponse):
    """Usage of the quotas. A field is absent without such a quota."""

    jobs: int | None = field(
        description="Jobs older than the quota are counted from their next change on."
    )
    runs_per_minute: int | None = field(
        lambda usage: usage.runs, description="Runs in the minute that ends at `minuteEndsAt`."
    )


class QuotasResponse(ApiResponse):
    """Quotas of the caller's tenant and their usage."""

    quotas: OwnQuotas = field(lambda usage: OwnQuotas.of(usage.quotas))
    used: UsedQuotas = field(UsedQuotas.of)
    minute_ends_at: datetime = field(description="When the count of `runsPerMinute` resets.")
    weight: int = field(
        description="Share of dispatches relative to a tenant of weight 1 when there is a backlog."
    )
    tenant: str = field(description="The caller's tenant.")
    own_entry: bool = field(
        description="Whether the setting `quotas` has an entry for this tenant. If not, its quotas "
        "are the default ones."
    )
