"""What a tenant may have at most, and how much of that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nextfire.domain.fair_queue import DEFAULT_WEIGHT
from nextfire.domain.instants import floor_minute
from nextfire.domain.ports import ControlStore, JobStore
from nextfire.domain.quotas import Quotas, TenantQuotas


@dataclass(frozen=True, slots=True)
class Standing:
    """How a tenant stands with its quotas. `jobs`: that are counted; `runs`: taken in the minute
    that ends at `minute_ends_at`; each None where the tenant has no such quota, for then nobody
    counts. `weight`: its part of the turns (≥ 1).
    """

    quotas: Quotas
    jobs: int | None
    runs: int | None
    minute_ends_at: datetime
    weight: int


class ReadQuotas:
    """Tells tenants how they stand. It reads what is counted anyway: two items at most."""

    def __init__(
        self,
        jobs: JobStore,
        control: ControlStore,
        quotas: TenantQuotas,
        weights: Mapping[str, int],
    ) -> None:
        self._jobs = jobs
        self._control = control
        self._quotas = quotas
        self._weights = weights

    def of(self, tenant: str, now: datetime) -> Standing:
        """How *tenant* stands at *now*.

        Raises:
            UndecodableError: The count of its jobs does not decode.
        """
        quotas, minute = self._quotas.of(tenant), floor_minute(now)
        has_jobs, has_runs = quotas.jobs is not None, quotas.runs_per_minute is not None
        return Standing(
            quotas,
            jobs=self._jobs.counted(tenant) if has_jobs else None,
            runs=self._control.taken_runs(tenant, minute) if has_runs else None,
            minute_ends_at=minute + timedelta(minutes=1),
            weight=max(self._weights.get(tenant, DEFAULT_WEIGHT), 1),
        )
