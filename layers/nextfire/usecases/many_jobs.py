"""Many jobs at a time: made, paused, resumed, deleted. What becomes of one hinders no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from nextfire.domain.errors import ChangedError, NotFoundError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job, JobDefinition, JobState
from nextfire.domain.ports import Clock, JobStore, Unreadable
from nextfire.usecases.answer_once import Once
from nextfire.usecases.list_jobs import Wanted
from nextfire.usecases.manage_jobs import ManageJobs

TOGETHER = 20
"""Jobs that are read in one go, and changed side by side; then the clock is looked at."""
PAGES_AT_MOST = 50
"""So many times `TOGETHER` jobs one call looks at."""
_TRIES = 5  # of a change that meets other changes of the same job
_PAUSABLE = frozenset({JobState.ACTIVE, JobState.PAUSED})
_LIVING = frozenset(JobState) - {JobState.CANCELLED}


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be stored, and what it is told apart by if it comes again."""

    key: JobKey
    definition: JobDefinition
    uid: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """The jobs of a tenant that have all `labels`, with these values; from `cursor` on. What would
    begin after `stop_at` is left for the next call.
    """

    tenant: str
    labels: Mapping[str, str]
    cursor: str | None
    stop_at: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """What one call did to the jobs with some labels: how many it met, how many of them it changed,
    and which it could not change, with the error. `cursor`: where to go on; None: that were all.
    """

    matched: int
    changed: int
    failed: Sequence[tuple[JobKey, Exception]]
    cursor: str | None
    unreadable: Sequence[Unreadable]


class ManyJobs:
    """What `ManageJobs` does to one job, done to many, a bounded number at a time."""

    def __init__(
        self, manage: ManageJobs, jobs: JobStore, *, clock: Clock, executor: Executor
    ) -> None:
        self._manage = manage
        self._jobs = jobs
        self._clock = clock
        self._executor = executor

    def register(
        self, new: Sequence[NewJob], *, asked: Once, stop_at: datetime
    ) -> list[Job | Exception]:
        """Store each of *new* as by `ManageJobs.register`, but what would begin after *stop_at*.

        Returns:
            In their order the jobs, or why one is not stored.
        """

        def register(one: NewJob) -> Job | Exception:
            now = self._clock.now()
            if now >= stop_at:
                return UnavailableError("There was no time left for this one. Send it again.")
            try:
                return self._manage.register(
                    one.key, one.definition, uid=one.uid, now=now, asked=asked
                )
            except Exception as error:  # noqa: BLE001 — a defect, too, concerns this one only
                return error

        return list(self._executor.map(register, new))

    def pause(self, labelled: Labelled, *, reason: str | None, until: datetime | None) -> Done:
        """Pause those that are ACTIVE. One that is PAUSED stays as it is, but for *until*.

        Raises:
            InvalidInputError: *until* cannot be; or the cursor is none of ours.
        """
        self._manage.check_until(until, self._clock.now())

        def pause(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self._manage.pause(key, reason, now=now, until=until, expected=expected)

        return self._each(labelled, _PAUSABLE, pause)

    def resume(self, labelled: Labelled) -> Done:
        """Resume those that are PAUSED. One that is ACTIVE stays as it is.

        Raises:
            InvalidInputError: The cursor is none of ours.
        """

        def resume(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self._manage.resume(key, now=now, expected=expected)

        return self._each(labelled, _PAUSABLE, resume)

    def delete(self, labelled: Labelled) -> Done:
        """Make those CANCELLED that are not.

        Raises:
            InvalidInputError: The cursor is none of ours.
        """

        def delete(key: JobKey, now: datetime, expected: Collection[str]) -> Job:
            return self._manage.delete(key, now=now, expected=expected)

        return self._each(labelled, _LIVING, delete)

    def _each(
        self,
        labelled: Labelled,
        states: frozenset[JobState],
        change: Callable[[JobKey, datetime, Collection[str]], Job],
    ) -> Done:
        wanted, cursor = Wanted(labels=labelled.labels), labelled.cursor

        def changed(listed: Job) -> bool | Exception | None:
            """Whether it was, or why it could not be; None: it is not one of those."""
            job: Job | None = listed
            try:
                # The listing may be of a moment ago: of a job that has lost the labels since.
                for _ in range(_TRIES):
                    if job is None or job not in wanted or job.state not in states:
                        return None
                    try:
                        done = change(job.key, self._clock.now(), [job.version])
                    except ChangedError:
                        job = self._jobs.get(listed.key)
                    else:
                        return done.revision != job.revision
                return UnavailableError("It is being changed by others. Try again.")
            except NotFoundError:
                return None  # deleted meanwhile
            except Exception as error:  # noqa: BLE001 — as above
                return error

        found: list[tuple[JobKey, bool | Exception]] = []
        unreadable: list[Unreadable] = []
        for _ in range(PAGES_AT_MOST):
            page = self._jobs.list(labelled.tenant, cursor=cursor, limit=TOGETHER)
            unreadable += page.unreadable
            outcomes = self._executor.map(changed, page.items)
            both = zip(page.items, outcomes, strict=True)
            found += [(job.key, each) for job, each in both if each is not None]
            cursor = page.cursor
            if cursor is None or self._clock.now() >= labelled.stop_at:
                break
        return Done(
            matched=len(found),
            changed=sum(each is True for _, each in found),
            failed=[(key, each) for key, each in found if isinstance(each, Exception)],
            cursor=cursor,
            unreadable=unreadable,
        )
