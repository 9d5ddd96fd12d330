"""Create, change and delete jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import FireEntry, ResumeEntry
from nextfire.domain.errors import ChangedError, ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MOMENT, cut, isoformat, to_ms
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.recurrence import check
from nextfire.domain.schedule import MAX_DELAY
from nextfire.domain.when import SCHEDULE_FIELDS
from nextfire.usecases.check_definition import Limits, check_definition, check_interval
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.job_edges import JobEdges
from nextfire.usecases.job_revisions import check_version, contended, is_equal, job_of, redefined
from nextfire.usecases.reuse_id import check_all_sent, check_made_before
from nextfire.usecases.revise_job import TRIES, ReviseJob


class ManageJobs:
    """The lifecycle of job definitions. Every write of a job includes its first due entry.

    *expected*, where a method takes it: acceptable versions of the job, see `Job.version`. If the
    job has another version it is not changed, and ChangedError is raised. None accepts any version.
    *again*: the same request was sent before and may have taken effect, so a job that is already in
    the requested state is accepted in any version.
    """

    def __init__(
        self,
        jobs: JobStore,
        limits: Limits,
        unsent: FindUnsent,
        *,
        check: Callable[[JobDefinition, JobDefinition | None], None] = lambda _new, _old: None,
        all_jobs: JobStore | None = None,
    ) -> None:
        """*check*: raises if the caller may not store the first definition in place of the second
        (None: in place of nothing). *all_jobs*: also those that the caller may not access.
        """
        self._check_caller = check
        self._jobs = jobs
        self._edges = JobEdges(jobs, check, all_jobs or jobs)
        self._limits = limits
        self._unsent = unsent
        self._revisions = ReviseJob(jobs, limits, unsent)

    def register(
        self,
        key: JobKey,
        definition: JobDefinition,
        *,
        uid: str,
        now: datetime,
        asked: IdempotentRequest | None = None,
    ) -> Job:
        """Store a new job and its first due entry. If a job with *uid* exists already, it is
        returned unchanged.

        *asked*: the request, if it may be a repetition. The job is then effective from the instant
        of the first request, but not before the deletion of an earlier job with its id.

        Raises:
            InvalidInputError: The definition cannot run, or never fires.
            ConflictError: The id belongs to a living job; or to a deleted job that still has due
                occurrences that are not sent, or that was created after *asked* was first sent.
            QuotaUsedUpError: The tenant has reached its maximum number of jobs.
        """
        self._check(definition, key.tenant, None)
        self._edges.attach(key, definition, None, now)
        most = self._limits.quotas.of(key.tenant).jobs

        def new_job(at: datetime) -> Job:
            return Job(
                key=key,
                uid=uid,
                revision=1,
                schedule_version=to_ms(at),
                effective_from=at,
                state=JobState.ACTIVE,
                definition=definition,
                created_at=at,
                updated_at=at,
                counted=most is not None,
                defined_in=1,
            )

        at = cut((asked and asked.first_sent_at) or now)
        job = new_job(at)
        check_interval(definition, job.schedule, self._limits.quotas.of(key.tenant))
        # Stored in the current bucket: the watcher has already passed the earlier minutes.
        now = cut(now)
        existing = self._jobs.create(job, _first(job), now, most=most)
        while existing is not None and existing.uid != uid and existing.state is JobState.CANCELLED:
            if asked is not None and asked.again:
                check_made_before(existing, asked)
            # Watchers know the deleted job only by this item, so it stays as long as they need it.
            check_all_sent(existing, self._unsent, now)
            # Occurrences due before the deletion belong to the former job and have run. So each job
            # with this id starts later than the one before, whatever the clocks say.
            job = new_job(max(at, existing.effective_from + MOMENT))
            existing = self._jobs.create(job, _first(job), now, former=existing, most=most)
        if existing is not None and existing.uid != uid:
            raise ConflictError(
                f"Job {key.job_id!r} already exists ({existing.state})",
                "Change it with PATCH, or use another id.",
            )
        return existing or job

    def put(
        self,
        key: JobKey,
        definition: JobDefinition,
        *,
        uid: str,
        now: datetime,
        expected: Collection[str] | None = None,
        only_new: bool = False,
        only_existing: bool = False,
    ) -> tuple[Job, bool]:
        """Create the job with this *definition*, or replace its definition as by `change`. A job
        that already has this definition is not changed.

        Returns:
            The job, and whether it is new, with *uid*.

        Raises:
            ChangedError: The job is not in a version of *expected*; with *only_new*: it exists;
                with *only_existing*: it does not exist.
            InvalidInputError: As for `register`; nothing is changed.
        """
        for _ in range(TRIES):
            job = self._jobs.get(key)
            if job is None or job.state is JobState.CANCELLED:
                if expected is not None or only_existing:
                    raise ChangedError(
                        f"Job {key.job_id!r} does not exist", "Omit If-Match to create it."
                    )
                try:
                    return self.register(key, definition, uid=uid, now=now), True
                except ConflictError:
                    existing = self._jobs.get(key)
                    if existing is None or existing.state is JobState.CANCELLED:
                        raise  # the occurrences of the deleted job are not all sent yet
                    continue  # another request created it concurrently
            if only_new:
                raise ChangedError(
                    f"Job {key.job_id!r} already exists ({job.state})",
                    "Omit If-None-Match to replace it, or use another id.",
                )
            if is_equal(job.definition, definition):
                check_version(job, expected)
                return job, False
            try:
                return self.change(key, lambda _: definition, now=now, expected=expected), False
            except NotFoundError:
                continue  # another request deleted it concurrently
        raise contended(key)

    def change(
        self,
        key: JobKey,
        edit: Callable[[JobDefinition], JobDefinition],
        *,
        now: datetime,
        expected: Collection[str] | None = None,
    ) -> Job:
        """Replace the definition with the result of *edit*, which is called again if another change
        wins the race.

        A change of the schedule takes effect now: occurrences up to now belong to the old schedule,
        later ones to the new one. A COMPLETED job becomes ACTIVE if its new schedule fires; a
        PAUSED job stays PAUSED.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            InvalidInputError: As for `register`.
            ConflictError: Too many previous schedules still have occurrences that are due and not
                sent.
            QuotaUsedUpError: It was COMPLETED, and the tenant has reached its maximum of jobs.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None]:
            definition = edit(job.definition)
            self._check(definition, key.tenant, job.definition)
            self._edges.attach(key, definition, job, now)
            changed = redefined(job, now, definition)
            if all(getattr(definition, f) == getattr(job.definition, f) for f in SCHEDULE_FIELDS):
                return changed, None
            changed = redefined(job.with_new_version(now), now, definition)
            check_interval(definition, changed.schedule, self._limits.quotas.of(key.tenant))
            if job.state is JobState.PAUSED:
                check(changed.schedule)
                return changed, job.unpaused(now)
            changed = replace(changed, state=JobState.ACTIVE)
            return changed, _first(changed)

        return self._revisions.revise(key, next_revision, expected)

    def pause(
        self,
        key: JobKey,
        reason: str | None,
        *,
        now: datetime,
        by: str | None = None,
        until: datetime | None = None,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Pause the job: no occurrence after *now* becomes due until it is resumed, by a request or
        at *until*. Occurrences due before *now* and running runs continue. If it is PAUSED already,
        only *until* is updated, if given. *by*: the principal of the request.

        Raises:
            InvalidInputError: *until* is not in the future, or too far ahead.
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is COMPLETED; or as for `change`.
        """
        self.check_until(until, now)
        end = None if until is None else cut(until)

        def next_revision(job: Job) -> tuple[Job, ResumeEntry | None] | None:
            if job.state is JobState.PAUSED:
                if end is None or end == job.resumes_at:
                    return None
                extended = replace(job.revised(now), resumes_at=end)
                return extended, extended.resume_entry()
            if job.state is not JobState.ACTIVE:
                raise ConflictError(f"The job is {job.state}", "Only an ACTIVE job can be paused.")
            paused = replace(job.paused(now, reason, by=by).revised(now), resumes_at=end)
            return paused, paused.resume_entry()

        return self._revisions.revise(key, next_revision, expected, again=again)

    @staticmethod
    def check_until(until: datetime | None, now: datetime) -> None:
        """Check that a pause that begins *now* may end at *until*.

        Raises:
            InvalidInputError: It may not.
        """
        if until is not None and not timedelta() < until - now <= MAX_DELAY:
            raise InvalidInputError(
                "until",
                isoformat(until),
                f"not within {MAX_DELAY.days} days from now",
                "Use an instant in the future, or omit it and resume the job yourself.",
            )

    def drain(
        self,
        key: JobKey,
        reason: str | None,
        *,
        now: datetime,
        by: str | None = None,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Pause the job and record when, so that the API can report whether runs from before are
        outstanding; see `has_outstanding`. For a PAUSED job only the drain is recorded; a draining
        job is not changed.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is COMPLETED; or as for `change`.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None] | None:
            if job.state is JobState.PAUSED:
                if job.drain_asked_at is not None:
                    return None
                return replace(job.revised(now), drain_asked_at=cut(now)), None
            if job.state is not JobState.ACTIVE:
                raise ConflictError(f"The job is {job.state}", "Only an ACTIVE job can be drained.")
            paused = job.paused(now, reason, by=by).revised(now)
            return replace(paused, drain_asked_at=cut(now)), None

        return self._revisions.revise(key, next_revision, expected, again=again)

    def resume(
        self,
        key: JobKey,
        *,
        now: datetime,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Resume a PAUSED job. Its misfire policy decides on the occurrences of the pause. An
        ACTIVE job is not changed; a job without a remaining occurrence becomes COMPLETED.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is COMPLETED.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None] | None:
            if job.state is JobState.ACTIVE:
                return None
            if job.state is not JobState.PAUSED:
                raise ConflictError(f"The job is {job.state}", "Only a PAUSED job can be resumed.")
            return job.resumption(now)

        return self._revisions.revise(key, next_revision, expected, again=again)

    def delete(self, key: JobKey, *, now: datetime, expected: Collection[str] | None = None) -> Job:
        """Set the job to CANCELLED. Its history stays; later due entries are dropped when due.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: Another job has it as a parent.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None]:
            self._edges.check_deletable(job)
            cancelled = job.with_new_version(now).revised(now)
            return replace(cancelled, state=JobState.CANCELLED), job.unpaused(now)

        return self._revisions.revise(key, next_revision, expected)

    def _check(self, definition: JobDefinition, tenant: str, was: JobDefinition | None) -> None:
        self._check_caller(definition, was)
        check_definition(definition, self._limits, tenant, was)

    def get(self, key: JobKey) -> Job:
        """The job, also if it is CANCELLED.

        Raises:
            NotFoundError: The job never existed.
        """
        return job_of(self._jobs, key)


def _first(job: Job) -> FireEntry | None:
    """The first due entry. A MANUAL or AFTER job has none."""
    at = check(job.schedule)
    return None if at is None else job.fire_entry(at, 1)
