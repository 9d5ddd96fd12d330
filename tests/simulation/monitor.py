"""The invariants of the design, checked during a history.

Each write of a job, an entry or a run is checked when it happens, by whichever process.
`at_rest.py` checks what can be decided only at rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nextfire.domain.backfill import AT_ONCE
from nextfire.domain.due import BackfillEntry, DispatchEntry, DueEntry, FireEntry, ResumeEntry, Slot
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.message import TIME_DISPATCH, RunMessage, SkippedRange
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Page
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.schedule import UNTIMED
from nextfire.testing.kernel import SECOND, Actor, Kernel
from tests.fakes import Stores
from tests.simulation.redriven import Restarts, awaits_parents
from tests.simulation.run_states import undocumented

CLOCKS_APART = timedelta(seconds=2)
SENDING = 15 * SECOND
"""Maximum time between reading a job, possibly stale by a moment, and sending its run."""
WRITING = 30 * SECOND
"""Maximum time between a request's reading its clock and its write."""


@dataclass
class _Granted:
    """The attempts that a run may have: since its last redrive, and before it."""

    most: int
    before: int = 0


class Monitor:
    """`violations`: descriptions of what must not have happened."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.violations: list[str] = []
        self.known: dict[tuple[JobKey, str], Job] = {}
        """The last version of every job that existed."""
        self._fires: Counter[tuple[str, int]] = Counter()
        self._ended: set[tuple[str, int]] = set()
        self._accepted: dict[tuple[RunKey, int], int] = {}
        self._missed: dict[tuple[JobKey, str], list[SkippedRange]] = defaultdict(list)
        self._replaced_at: dict[str, list[int]] = defaultdict(list)
        self._versions: dict[str, dict[int, Job]] = defaultdict(dict)
        self._granted: dict[RunKey, _Granted] = {}
        self._most_attempts: dict[str, int] = defaultdict(int)
        self._runs_of: dict[tuple[JobKey, str], dict[RunKey, Run]] = defaultdict(dict)
        self.restarts = Restarts()
        self._watched: Stores | None = None
        self.tampered: set[JobKey] = set()
        """Jobs with data deleted behind the system's back."""

    def watch(self, stores: Stores) -> None:
        self._watched = stores

    @property
    def stores(self) -> Stores:
        assert self._watched is not None, "watch() was not called"
        return self._watched

    @property
    def now(self) -> datetime:
        """The true time."""
        return self._kernel.clock.now()

    def wrong(self, what: str) -> None:
        self._kernel.log("MONITOR", what)
        self.violations.append(what)

    # Jobs

    def job_changed(self, key: JobKey, was: Job | None, job: Job | None) -> None:
        if job is None:
            return
        self.known[key, job.uid] = job
        self._versions[job.uid][job.schedule_version] = job
        if was is not None and was.schedule_version != job.schedule_version:
            self._replaced_at[was.uid].append(self._kernel.at)
        most = self._most_attempts
        most[job.uid] = max(most[job.uid], job.definition.retry_policy.max_attempts)
        if was is not None and was.uid == job.uid and job.revision != was.revision + 1:
            self.wrong(f"{key.job_id}: revision {job.revision} was written over {was.revision}")
        if was is not None and was.uid == job.uid:
            self._check_ownership(was, job)
        chain = (job.uid, job.schedule_version)
        if key in self.tampered or job.definition.type in UNTIMED:
            return
        if job.state is JobState.ACTIVE and not self._fires[chain] and chain not in self._ended:
            self.wrong(f"{key.job_id} is ACTIVE and has no FIRE entry (invariants 1, 2)")

    def _check_ownership(self, was: Job, job: Job) -> None:
        """Every occurrence belongs to a version: a new version begins where the previous one ends;
        after a pause, with the pause.
        """
        if was.schedule_version == job.schedule_version:
            if job.effective_from != was.effective_from or job.replaced != was.replaced:
                self.wrong(f"{job.key.job_id}: its occurrences changed without a new version")
            return
        living = job.state in {JobState.ACTIVE, JobState.COMPLETED}
        resumed = was.state is JobState.PAUSED and living
        if resumed and job.definition.document() == was.definition.document():
            if job.effective_from != was.effective_from:
                self.wrong(f"{job.key.job_id}: lost its pause when resumed (invariant 7)")
            return
        past = {each.version: each for each in job.replaced}.get(was.schedule_version)
        if past is None:
            self.wrong(f"{job.key.job_id}: lost the previous version (invariant 7)")
        elif (past.effective_from, past.until) != (was.effective_from, job.effective_from):
            self.wrong(f"{job.key.job_id}: has a gap between two versions (invariant 7)")

    def acknowledged(self, job: Job) -> None:
        """A caller was answered that *job* is stored."""
        if (job.key, job.uid) not in self.known:
            self.wrong(f"{job.key.job_id} was acknowledged, but is not stored (invariant 1)")

    # Entries

    def entry_changed(self, slot: Slot, was: Any, entry: Any) -> None:
        if isinstance(entry, FireEntry):
            self._fires[entry.uid, entry.version] += 1
        if not isinstance(was, DueEntry):
            return
        if isinstance(was, FireEntry):
            self._fires[was.uid, was.version] -= 1
        if entry is None and was.job not in self.tampered:
            self._deleted(slot, was)

    def _backfill_deleted(self, slot: Slot, entry: BackfillEntry) -> None:
        job = self.stores.jobs.items.get(entry.job)
        goes_on = job is not None and job.backfill_entry(entry.ordinal) == entry
        if goes_on and not any(
            isinstance(each, BackfillEntry)
            and (each.uid, each.request) == (entry.uid, entry.request)
            for each in self.stores.due.items.values()
        ):
            self.wrong(f"{slot.sort_key}: deleted while the backfill continues (invariant 3)")

    def _deleted(self, slot: Slot, entry: DueEntry) -> None:
        """A due entry is deleted only after its message was accepted or its record written, and its
        successor was stored; or if a copy is elsewhere.
        """
        if any(each == entry for each in self.stores.due.items.values()):
            return
        if isinstance(entry, ResumeEntry):
            job = self.stores.jobs.items.get(entry.job)
            if job is not None and job.resume_entry() == entry:
                self.wrong(f"{slot.sort_key}: deleted before its job was resumed (invariant 3)")
            return
        if isinstance(entry, BackfillEntry):
            self._backfill_deleted(slot, entry)
            return
        if isinstance(entry, DispatchEntry):
            if (RunKey(entry.job, entry.run_id), entry.dispatch) not in self._accepted:
                self.wrong(f"{slot.sort_key}: deleted before it was sent (invariant 3)")
            return
        job = self.stores.jobs.items.get(entry.job)
        chain = (entry.uid, entry.version)
        if job is None or (job.uid, job.schedule_version) != chain:
            return  # of a replaced version: whether it still owns anything is checked at rest
        if job.state is not JobState.ACTIVE:
            return
        if not self._accounted(entry):
            self.wrong(f"{slot.sort_key}: deleted before it was sent (invariant 3)")
        if not self._fires[chain]:
            if job.successor(entry) is not None and self._left(job, entry):
                self.wrong(
                    f"{slot.sort_key}: deleted before its successor was stored (invariant 3)"
                )
            self._ended.add(chain)

    def _accounted(self, entry: FireEntry) -> bool:
        key = RunKey(entry.job, run_id(entry.uid, entry.occurs_at))
        runs = self._runs_of[entry.job, entry.uid]
        return (
            (key, 1) in self._accepted
            or (key, TIME_DISPATCH) in self._accepted
            or key in runs
            or any(r.key.scheduled_at <= entry.occurs_at <= r.covers_until for r in runs.values())
            or any(
                row.first <= entry.occurs_at <= row.last
                for row in self._missed[entry.job, entry.uid]
            )
        )

    def _left(self, job: Job, entry: FireEntry) -> bool:
        """Whether an occurrence after *entry*'s is neither on record nor sent. A range may extend
        further, and of two remaining entries of a chain the later one is deleted first.
        """
        runs = self._runs_of[entry.job, entry.uid]
        ends = [run.covers_until for run in runs.values() if not run.request]
        mine = (k for k, _ in self._accepted if (k.job, k.uid) == (entry.job, entry.uid))
        # An occurrence skipped by request has its record before its entry is due.
        ends += [k.scheduled_at for k in mine if k not in runs or runs[k].skip_requested]
        until = max([entry.occurs_at, *ends])
        following = job.next_after(until)
        most = job.definition.max_runs
        return following is not None and (most is None or job.ordinal(following) <= most)

    def accepted(self, message: RunMessage) -> None:
        """A queue accepted *message*."""
        self._accepted.setdefault((message.key, message.dispatch), self._kernel.at)
        self._missed[message.key.job, message.key.uid] += message.missed

    def is_stray(self, key: RunKey) -> bool:
        """Whether the run was sent while a change of its job was being written, and some version of
        the job has its occurrence.
        """
        sent_at = self._accepted.get((key, 1)) or self._accepted.get((key, TIME_DISPATCH))
        if sent_at is None or not any(
            sent_at - SENDING <= at <= sent_at + WRITING for at in self._replaced_at[key.uid]
        ):
            return False
        at, moment = key.scheduled_at, timedelta(milliseconds=1)
        return any(job.next_after(at - moment) == at for job in self._versions[key.uid].values())

    # Runs

    def run_changed(self, key: RunKey, was: Run | None, run: Run | None) -> None:
        runs = self._runs_of[key.job, key.uid]
        if run is None:
            runs.pop(key, None)
            return
        runs[key] = run
        if transition := undocumented(was, run):
            self.wrong(f"{key.execution_id}: {transition} is not in the diagram of run states")
        if was is not None:
            self._check_step(was, run)
        self._check_attempts(run)
        if was is None and run.trigger is Trigger.BACKFILL:
            under_way = [
                each
                for each in runs.values()
                if each.request == run.request and not each.state.ended and not each.restarted
            ]
            if len(under_way) > AT_ONCE:
                self.wrong(
                    f"{run.key.execution_id}: {len(under_way)} of its backfill are in flight"
                )

    def _check_step(self, was: Run, run: Run) -> None:
        name = run.key.execution_id
        if run.fence < was.fence:
            self.wrong(f"{name}: fence {was.fence} became {run.fence} (invariant 5)")
        if was.state.ended and run.state is RunState.PENDING:
            # The judge of sequences checks whether a parent ended again.
            sent, parents = (run.key, run.dispatch) in self._accepted, self._after(run)
            for wrong in self.restarts.wrong(was, run, sent=sent, has_parents=parents):
                self.wrong(f"{name}: {wrong} (invariant 4)")
            self._granted.setdefault(run.key, _Granted(0)).before = run.attempt
        elif awaits_parents(run) and run.reason != was.reason:
            if not self.restarts.may_await(was, run):
                self.wrong(f"{name}: {was.state} was made to await its parents (invariant 4)")
            self._granted.setdefault(run.key, _Granted(0)).before = run.attempt
        elif was.state.ended and (run.state is not was.state or run.attempts != was.attempts):
            self.wrong(f"{name}: {was.state} became {run.state} (invariant 4)")
        elif was.state is run.state is RunState.PENDING and run.dispatch != was.dispatch:
            sent = (run.key, run.dispatch) in self._accepted
            for wrong in self.restarts.wrong_start(was, run, sent=sent):
                self.wrong(f"{name}: {wrong} (invariant 6)")
        taken_over = was.state is RunState.RUNNING and run.fence != was.fence
        if taken_over and was.lease_until is not None:
            if run.fence != was.fence + 1:
                self.wrong(f"{name}: fence {was.fence} became {run.fence} (invariant 5)")
            if self._kernel.clock.now() < was.lease_until - CLOCKS_APART:
                self.wrong(f"{name}: taken over under a live lease (invariant 5)")

    def _after(self, run: Run) -> bool:
        job = self.known.get((run.key.job, run.key.uid))
        return job is not None and bool(job.definition.after)

    def _check_attempts(self, run: Run) -> None:
        counted = [a for a in run.attempts if a.outcome is None or a.outcome.counts]
        before = self._granted.get(run.key, _Granted(0)).before
        most = self._most_attempts[run.key.uid]
        if len(counted) - before > most and len(run.attempts) < 100:
            self.wrong(f"{run.key.execution_id}: {len(counted)} attempts (invariant 6)")

    # Tenants

    def call(self, actor: Actor, call: str, values: Any) -> None:
        """Check that a request of one tenant sees only data of that tenant (invariant 11)."""
        tenant = getattr(actor, "tenant", None)
        if tenant is not None and any(t != tenant for t in _tenants(values)):
            self.wrong(
                f"{actor.name}, of {tenant}, saw another tenant's data in {call} (invariant 11)"
            )

    def check_queue_ids(self) -> None:
        """Message group ids are not shared between tenants (invariant 11), deduplication ids not
        even between dispatches.
        """
        meant: dict[str, tuple[str, ...]] = {}
        for message in self.stores.queue.log:
            key = message.key
            ids: Mapping[str, tuple[str, ...]] = {
                message.dedup: (
                    key.job.tenant,
                    key.run_id,
                    f"{message.dispatch} {message.resumed_as}",
                ),
                message.group: (key.job.tenant, "" if message.max_concurrent else key.job.job_id),
            }
            for each, means in ids.items():
                if meant.setdefault(each, means) != means:
                    self.wrong(f"one queue id for {means} and {meant[each]} (invariant 11)")


def _tenants(value: Any) -> Iterator[str]:
    match value:
        case JobKey():
            yield value.tenant
        case RunKey():
            yield value.job.tenant
        case Job() | Run():
            yield from _tenants(value.key)
        case Claim():
            yield from _tenants(value.run)
        case FireEntry() | DispatchEntry() | ResumeEntry() | BackfillEntry():
            yield value.job.tenant
        case RunMessage():
            yield value.tenant
        case Page():
            yield from _tenants(value.items)
        case Mapping():
            yield from _tenants([*value.keys(), *value.values()])
        case str() | bytes():
            return
        case Iterable():
            for each in value:
                yield from _tenants(each)
