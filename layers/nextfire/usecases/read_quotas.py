"""The quotas of a tenant and how much of them it uses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.fair_queue import DEFAULT_WEIGHT
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.quotas import Quota, Quotas, TenantQuotas


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The quota usage of `tenant`. `own_entry`: whether the setting names it. `jobs`: counted jobs;
    `runs`: runs in the minute that ends at `minute_ends_at`. Each is None without such a quota,
    because it is then not counted. `weight`: the tenant's share of the turns (≥ 1).
    """

    tenant: str
    own_entry: bool
    quotas: Quotas
    jobs: int | None
    runs: int | None
    minute_ends_at: datetime
    weight: int


@dataclass(frozen=True, slots=True)
class ReadQuotas:
    """Reads the quota usage of tenants from existing counters: two items at most."""

    jobs: JobStore
    control: ControlStore
    quotas: TenantQuotas
    weights: Mapping[str, int]

    def of(self, tenant: str, now: datetime) -> QuotaUsage:
        """The usage of *tenant* at *now*.

        Raises:
            UndecodableError: The count of its jobs does not decode.
        """
        quotas, minute = self.quotas.of(tenant), floor_minute(now)
        has_jobs, has_runs = quotas.jobs is not None, quotas.runs_per_minute is not None
        return QuotaUsage(
            tenant,
            tenant in self.quotas.tenants,
            quotas,
            jobs=self.jobs.counted(tenant) if has_jobs else None,
            runs=self.control.taken_runs(tenant, minute) if has_runs else None,
            minute_ends_at=minute + timedelta(minutes=1),
            weight=max(self.weights.get(tenant, DEFAULT_WEIGHT), 1),
        )

    def delays(self, tenant: str, now: datetime) -> str | None:
        """The quotas for which a run of *tenant* that is due may wait; None without any."""
        quotas, minute, found = self.quotas.of(tenant), floor_minute(now), list[str]()
        if (most := quotas.runs_per_minute) is not None:
            taken = self.control.taken_runs(tenant, minute)
            until = isoformat(minute + timedelta(minutes=1))
            used = f"used up until {until}" if taken >= most else f"{taken} used"
            found.append(f"{Quota.RUNS_PER_MINUTE} {most} ({used})")
        if (most := quotas.concurrent_runs) is not None:
            found.append(f"{Quota.CONCURRENT_RUNS} {most}")
        return f"may wait for its tenant's quotas: {', '.join(found)}" if found else None
