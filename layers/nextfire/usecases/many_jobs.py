"""Bulk operations: create, pause, resume and delete many jobs. Failures are independent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import datetime
from functools import partial
from graphlib import CycleError, TopologicalSorter

from nextfire.dataclass import dataclass, replace
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ChangedError, ConflictError, NotFoundError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Unreadable
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.list_jobs import JobFilter
from nextfire.usecases.manage_jobs import ManageJobs

TOGETHER = 20
"""Jobs that are read together and changed concurrently; then the time limit is checked."""
PAGES_AT_MOST = 50
"""Maximum number of such groups of jobs in one call."""
_TRIES = 5  # of a change that races with other changes of the same job
_PAUSABLE = frozenset({JobState.ACTIVE, JobState.PAUSED})
_NOT_CANCELLED = frozenset(JobState) - {JobState.CANCELLED}


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to create, and the id of its creation, which makes a repetition recognizable."""

    key: JobKey
    definition: JobDefinition
    uid: str


def _levels(new: Sequence[NewJob | Job]) -> Iterator[list[int]]:
    """The numbers of *new*, parents before their children; last, cycles, which are rejected."""
    numbers = {one.key.job_id: number for number, one in enumerate(new)}
    sorter = TopologicalSorter(
        {
            number: [numbers[edge.job] for edge in one.definition.after if edge.job in numbers]
            for number, one in enumerate(new)
        }
    )
    with suppress(CycleError):  # it still yields what can go before the cycle
        sorter.prepare()
    left = {*range(len(new))}
    while sorter.is_active():
        level = sorted(sorter.get_ready())
        yield level
        sorter.done(*level)
        left -= {*level}
    yield sorted(left)


@dataclass(frozen=True, slots=True)
class LabelSelection:
    """A tenant's jobs that have all `labels`, with these values, from `cursor` on; without labels,
    all its jobs. Jobs that would be changed after `stop_at` are left to the next call.
    """

    tenant: str
    labels: Mapping[str, str]
    cursor: str | None
    stop_at: datetime


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of one call: the number of matching jobs, the number that it changed, and the jobs
    that it could not change, with the error. `cursor`: where to continue; None: that was all.
    """

    matched: int
    changed: int
    failed: Sequence[tuple[JobKey, Exception]]
    cursor: str | None
    unreadable: Sequence[Unreadable]


@dataclass(frozen=True, slots=True)
class BulkJobs:
    """The operations of `ManageJobs` on many jobs, a bounded number at a time."""

    manage: ManageJobs
    jobs: JobStore
    clock: Clock
    executor: Executor

    def register(
        self, new: Sequence[NewJob], *, asked: IdempotentRequest, stop_at: datetime
    ) -> list[Job | Exception]:
        """Store each of *new* as `ManageJobs.register` does, parents before their children, except
        those that would start after *stop_at*.

        Returns:
            In the order of *new*, each job or the error why it was not stored.
        """

        def register(one: NewJob) -> Job | Exception:
            now = self.clock.now()
            if now >= stop_at:
                return UnavailableError(
                    "The time limit was reached before this job. Send it again."
                )
            try:
                return self.manage.register(
                    one.key, one.definition, uid=one.uid, now=now, asked=asked
                )
            except Exception as error:  # noqa: BLE001 — one job's defect must not stop the others
                return error

        done: dict[int, Job | Exception] = {}
        for level in _levels(new):
            ended = self.executor.map(register, [new[number] for number in level])
            done.update(zip(level, ended, strict=True))
        return [done[number] for number in range(len(new))]

    def pause(
        self,
        labelled: LabelSelection,
        *,
        reason: str | None,
        until: datetime | None,
        by: str | None = None,
    ) -> BulkResult:
        """Pause the ACTIVE jobs. PAUSED jobs get the new *until*, if given. *by*: the principal of
        the request.

        Raises:
            InvalidInputError: *until* is out of range, or the cursor is invalid.
        """
        self.manage.check_until(until, self.clock.now())

        def pause(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self.manage.pause(key, reason, now=now, by=by, until=until, expected=expected)

        return self._each(labelled, _PAUSABLE, pause)

    def resume(self, labelled: LabelSelection) -> BulkResult:
        """Resume the PAUSED jobs. ACTIVE jobs are not changed.

        Raises:
            InvalidInputError: The cursor is invalid.
        """

        def resume(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self.manage.resume(key, now=now, expected=expected)

        return self._each(labelled, _PAUSABLE, resume)

    def delete(self, labelled: LabelSelection) -> BulkResult:
        """Cancel the jobs that are not CANCELLED. Parents that were tried before their children are
        tried again, after them.

        Raises:
            InvalidInputError: The cursor is invalid.
        """

        def delete(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self.manage.delete(key, now=now, expected=expected)

        result = self._each(labelled, _NOT_CANCELLED, delete)
        refused = [key for key, error in result.failed if isinstance(error, ConflictError)]
        found = self.jobs.get_many(refused, consistent=True) if refused else {}
        parents = [job for job in found.values() if isinstance(job, Job)]
        again = partial(self._changed, labelled, _NOT_CANCELLED, delete)
        done: dict[JobKey, bool | Exception | None] = {}
        for level in reversed([*_levels(parents)]):
            for start in range(0, len(level), TOGETHER):
                part = [parents[number] for number in level[start : start + TOGETHER]]
                if self.clock.now() < labelled.stop_at:
                    outcomes = self.executor.map(again, part)
                    done |= zip((job.key for job in part), outcomes, strict=True)
        left = [(key, done.get(key, error)) for key, error in result.failed]
        return replace(
            result,
            changed=result.changed + sum(each is True for each in done.values()),
            failed=[(key, each) for key, each in left if isinstance(each, Exception)],
        )

    def _changed(
        self,
        labelled: LabelSelection,
        states: frozenset[JobState],
        change: Callable[[JobKey, datetime, Collection[str]], Job],
        listed: Job,
    ) -> bool | Exception | None:
        """Whether *listed* changed, or why it could not be; None: the job does not match."""
        job: Job | None = listed
        wanted = JobFilter(labels=labelled.labels)
        try:
            # The listing may be stale: the job may have lost the labels since.
            for _ in range(_TRIES):
                if job is None or job not in wanted or job.state not in states:
                    return None
                try:
                    done = change(job.key, self.clock.now(), [job.version])
                except ChangedError:
                    job = self.jobs.get(listed.key)
                else:
                    return done.revision != job.revision
            return UnavailableError("It is being changed by other requests. Try again.")
        except NotFoundError:
            return None  # deleted concurrently
        except Exception as error:  # noqa: BLE001 — as above
            return error

    def _each(
        self,
        labelled: LabelSelection,
        states: frozenset[JobState],
        change: Callable[[JobKey, datetime, Collection[str]], Job],
    ) -> BulkResult:
        cursor, changed = labelled.cursor, partial(self._changed, labelled, states, change)
        found: list[tuple[JobKey, bool | Exception]] = []
        unreadable: list[Unreadable] = []
        for _ in range(PAGES_AT_MOST):
            page = self.jobs.list(labelled.tenant, cursor=cursor, limit=TOGETHER)
            unreadable += page.unreadable
            outcomes = self.executor.map(changed, page.items)
            both = zip(page.items, outcomes, strict=True)
            found += [(job.key, each) for job, each in both if each is not None]
            cursor = page.cursor
            if cursor is None or self.clock.now() >= labelled.stop_at:
                break
        return BulkResult(
            matched=len(found),
            changed=sum(each is True for _, each in found),
            failed=[(key, each) for key, each in found if isinstance(each, Exception)],
            cursor=cursor,
            unreadable=unreadable,
        )
