"""Checks the runs per minute that watchers send for tenants with that quota."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.message import RunMessage
from nextfire.domain.quotas import TenantQuotas
from nextfire.testing.kernel import Actor
from tests.simulation.monitor import Monitor


class Rates:
    """Counts the runs taken per minute by all lease holders, and the runs sent of them. A run whose
    executor let it wait without an attempt was taken before.
    """

    def __init__(self, monitor: Monitor, quotas: TenantQuotas) -> None:
        self._monitor = monitor
        self._quotas = quotas
        self._minute: dict[str, datetime] = {}
        self._taken: Counter[tuple[str, datetime]] = Counter()
        self._may_send: dict[tuple[Actor, str], int] = {}
        self._counted: set[tuple[JobKey, str, int]] = set()

    def call(self, actor: Actor, call: str, args: tuple[Any, ...], done: Any) -> None:
        """Check a call after it took effect, even if the answer is lost."""
        if call == "control.take_runs":
            self._take(actor, args[0], args[1], done)
        elif call == "due.put":
            self._counted |= {
                (each.job, each.run_id, each.dispatch)
                for each in args[0]
                if isinstance(each, DispatchEntry) and each.counted
            }
        elif call == "queue.send" and actor.name.startswith("watcher"):
            sent = Counter(message.tenant for _, message in args[0] if self.takes(message))
            for tenant, count in sent.items():
                if self._quotas.of(tenant).runs_per_minute is None:
                    continue
                may = self._may_send.pop((actor, tenant), 0)
                if count > may:
                    self._monitor.wrong(
                        f"{actor.name} sent {count} runs of {tenant}, but had taken {may}"
                    )

    def takes(self, message: RunMessage) -> bool:
        """Whether *message* counts as a run of the minute in which it is sent."""
        return (message.key.job, message.run_id, message.dispatch) not in self._counted

    def _take(self, actor: Actor, tenant: str, minute: datetime, taken: int) -> None:
        self._may_send[actor, tenant] = taken
        # A watcher whose clock is behind counts in the minute of the others.
        minute = self._minute[tenant] = max(minute, self._minute.get(tenant, minute))
        self._taken[tenant, minute] += taken
        most = self._quotas.of(tenant).runs_per_minute
        if most is not None and self._taken[tenant, minute] > most:
            self._monitor.wrong(
                f"{self._taken[tenant, minute]} runs of {tenant} were taken in {minute}, limit"
                f" {most}"
            )
