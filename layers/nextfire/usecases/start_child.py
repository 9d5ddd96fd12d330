"""Start, skip or reopen the run of a child."""

from __future__ import annotations

from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.message import MAX_RECORDED_REASON, RunMessage
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.quotas import TenantQuotas
from nextfire.domain.run import Run, RunState


@dataclass(frozen=True, slots=True)
class JoinEnd:
    """What the message of a join did. `run`: the record of the run, if it has one; `skipped`:
    whether the join skipped it.
    """

    reason: str
    run: Run | None = None
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class StartChild:
    """What a decision about the run of a child does. Every call is idempotent. `quotas`: each
    tenant's maximums; None: unknown.
    """

    runs: RunStore
    due: DueStore
    queue: RunQueue
    clock: Clock
    quotas: TenantQuotas | None

    def start(self, child: Job, key: RunKey, stored: Run | None, at: datetime, reason: str) -> None:
        """Dispatch the run at *at*. *stored*: its record."""
        dispatch = 1
        if stored is not None:
            if stored.state is not RunState.PENDING or stored.claim_token or stored.on_request:
                return  # an executor has it, or it has ended
            dispatch = stored.dispatch
        now = self.clock.now()
        if at > now or not self._send(child, key, dispatch, reason):
            self.dispatch_later(child, key, max(at, now), dispatch)

    def reopen(self, child: Job, skipped: Run, at: datetime, reason: str) -> Run:
        """Start at *at* the run that was *skipped* because of its parents. Its dispatch is stored
        with it: the job may be deleted before the call is repeated.
        """
        now = self.clock.now()
        short = reason[:MAX_RECORDED_REASON]
        to = skipped.redriven(short, cut(max(at, now)), by_user=False)
        entry = child.dispatch_entry(skipped.key, max(at, now), to.dispatch)
        stored = self.runs.redrive(to, entry, now, was=RunState.SKIPPED, by_user=False).run
        if at <= now:
            # A second earlier than the entry. If the run has a later dispatch, it has no effect.
            self._send(child, skipped.key, to.dispatch, reason)
        return stored

    def dispatch_later(self, child: Job, key: RunKey, at: datetime, dispatch: int) -> None:
        """Store the due entry of a dispatch."""
        entry = child.dispatch_entry(key, at, dispatch)
        if not self.due.put([entry], self.clock.now()):
            raise UnavailableError("The dispatch of a child was not stored. Try again.")

    def skip(
        self, key: RunKey, reason: str, *, pool: str | None = None, at: datetime | None = None
    ) -> Run:
        """Skip the run, unless it has a record. *at*: the dispatch that ends its join. *pool*: set
        if no parent that ends later may reopen it.
        """
        short, now = reason[:MAX_RECORDED_REASON], self.clock.now()
        return self.runs.skip(Run.skipped(key, short, now, pool=pool, dispatched_at=at))

    def _send(self, child: Job, key: RunKey, dispatch: int, reason: str) -> bool:
        """Send the run to its queue now, if this executor can and no watcher must decide first."""
        if child.exclusive or self.quotas is None:
            return False
        quota = self.quotas.of(key.job.tenant)
        if quota.concurrent_runs is not None or quota.runs_per_minute is not None:
            return False
        short = reason[:MAX_RECORDED_REASON]
        message = RunMessage.of(key, dispatch, self.clock.now(), reason=short)
        return bool(self.queue.send([(child.definition.target.pool, message)]))
