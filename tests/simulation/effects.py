"""What scripts did, independent of the records: the effects that the records exist to control.

A script may begin only under a claim that its worker made, once per claim, and not while another
worker's lease is valid; the runs of a job that must not overlap do not overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.policies import Overlap
from nextfire.domain.quotas import TenantQuotas
from nextfire.domain.run import Run, RunState
from nextfire.testing.kernel import Actor
from tests.simulation.monitor import CLOCKS_APART, Monitor

_TO_END = timedelta(seconds=25)
"""Maximum time for a worker to end a script whose lease has expired: a call that hangs."""
_BY_ITS_OWNER = {"runs.save", "runs.extend"}


@dataclass(slots=True)
class HeldClaim:
    """A claim: its worker, pool and attempt, and the end of its lease as last reported to the
    worker.
    """

    actor: Actor
    pool: str | None
    attempt: int
    fence: int
    until: datetime
    begun: bool = False
    running: bool = False

    def is_valid(self, now: datetime) -> bool:
        return self.running and self.actor.alive and self.until > now + CLOCKS_APART


class Effects:
    """Watches workers. `begun`: number of started scripts."""

    def __init__(self, monitor: Monitor, quotas: TenantQuotas) -> None:
        self._monitor = monitor
        self._quotas = quotas
        self._held: dict[RunKey, dict[int, HeldClaim]] = defaultdict(dict)
        self._of_job: dict[tuple[JobKey, str], set[RunKey]] = defaultdict(set)
        self._alone: dict[str, bool] = {}
        """By uid of each job that existed: whether its overlap was never ALLOW."""
        self.purged = False
        """Whether a queue was purged: then no message of a group blocks those after it."""
        self.begun = 0

    def job_stored(self, job: Job) -> None:
        alone = job.definition.overlap is not Overlap.ALLOW
        self._alone[job.uid] = self._alone.get(job.uid, True) and alone

    def forget(self, key: RunKey) -> None:
        """The record of *key* was deleted: its attempts are counted from the start again."""
        self._held.pop(key, None)

    def call(self, actor: Actor, call: str, asked: tuple[Any, ...], done: Any) -> None:
        """Check a worker's call after it took effect, even if the answer is lost."""
        if call in {"runs.claim", "runs.advance"}:
            if call == "runs.advance":
                self._check_owner(actor, asked, done)
            if done.taken:
                self._note(actor, done.run)
        elif call in _BY_ITS_OWNER and done is not None:
            dead = actor.acts_for
            its_own = actor if dead is None or dead.alive or call == "runs.save" else dead
            if asked[0].worker != its_own.name:
                self._wrong(f"{actor.name} called {call} on {asked[0].worker}'s run (invariant 5)")
            self._note(actor, done)

    def _check_owner(self, actor: Actor, asked: tuple[Any, ...], done: Any) -> None:
        args, kwargs = asked[:2], asked[2]
        was: Run = args[0]
        if done.taken and was.worker != actor.name and not kwargs.get("lapsed"):
            self._wrong(
                f"{was.key.execution_id}: {actor.name} wrote {was.worker}'s run (invariant 5)"
            )

    def _note(self, actor: Actor, run: Run) -> None:
        held = self._held[run.key]
        if run.state is not RunState.RUNNING or run.worker != actor.name:
            return
        assert run.lease_until is not None
        claim = held.get(run.fence)
        if claim is None:
            held[run.fence] = HeldClaim(actor, run.pool, run.attempt, run.fence, run.lease_until)
        else:
            claim.until = max(claim.until, run.lease_until)

    @contextmanager
    def of(self, actor: Actor, key: RunKey, attempt: int, *, frozen: bool) -> Iterator[None]:
        """Surround a script that *actor* runs. *frozen*: its supervisor may be late."""
        now = self._monitor.now
        self.begun += 1
        claims = [
            held
            for held in self._held[key].values()
            if held.actor is actor and held.attempt == attempt and not held.begun
        ]
        if not claims:
            self._wrong(
                f"{key.execution_id}: attempt {attempt} began on {actor.name} without its own"
                " claim (invariant 4)"
            )
            yield
            return
        mine = max(claims, key=lambda held: held.fence)
        self._check_alone(key, mine, now)
        self._check_quota(key, mine, now)
        mine.begun = mine.running = True
        try:
            yield
        finally:
            mine.running = False
        if not frozen and self._monitor.now > mine.until + _TO_END:
            self._wrong(
                f"{key.execution_id}: attempt {attempt} continued on {actor.name} after its lease"
                " (invariant 5)"
            )

    def _check_alone(self, key: RunKey, mine: HeldClaim, now: datetime) -> None:
        together = {key}
        if self._alone.get(key.uid) and not self.purged:
            together |= self._of_job[key.job, key.uid]
        self._of_job[key.job, key.uid].add(key)
        for other in together:
            for held in self._held[other].values():
                # Each pool has its own queue: a job that changes its pool may overlap with itself.
                here = other == key or held.pool == mine.pool
                if here and held is not mine and held.is_valid(now):
                    running = "its own attempt" if other == key else other.execution_id
                    self._wrong(
                        f"{key.execution_id}: began on {mine.actor.name} while {running} ran on "
                        f"{held.actor.name} (invariants 4, 9)"
                    )

    def _check_quota(self, key: RunKey, mine: HeldClaim, now: datetime) -> None:
        most = self._quotas.of(key.job.tenant).concurrent_runs
        if most is None or self.purged:
            return
        unfinished = [
            other.execution_id
            for other, claims in self._held.items()
            for held in claims.values()
            if other.job.tenant == key.job.tenant
            and held.pool == mine.pool
            and held is not mine
            and held.is_valid(now)
        ]
        if len(unfinished) >= most:
            self._wrong(
                f"{key.execution_id}: began on {mine.actor.name} while {unfinished} ran, and"
                f" {key.job.tenant} may run {most} at a time in a pool"
            )

    def _wrong(self, what: str) -> None:
        self._monitor.wrong(what)
