"""Register, change and delete jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, pairwise

from nextfire.domain.due import DueEntry, FireEntry, ResumeEntry
from nextfire.domain.errors import (
    BeyondQuotaError,
    ChangedError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut, isoformat, to_ms
from nextfire.domain.job import (
    MAX_PAYLOAD_BYTES,
    MAX_REPLACED,
    MAX_REPLACED_BYTES,
    SCHEDULE_FIELDS,
    Job,
    JobDefinition,
    JobState,
    Replaced,
    bytes_of,
)
from nextfire.domain.ports import JobStore
from nextfire.domain.quotas import NO_QUOTAS, Quota, Quotas, TenantQuotas, check_payload
from nextfire.domain.schedule import MAX_DELAY, Schedule, ScheduleType, check, occurrences
from nextfire.domain.script import locate
from nextfire.usecases.answer_once import Once
from nextfire.usecases.find_unsent import FindUnsent

_LOOKED_AT = 1_500
"""Occurrences between which a short gap is looked for: more than a day of every minute has."""
_MOMENT = timedelta(milliseconds=1)
_TRIES = 5  # of a change that meets other changes of the same job


@dataclass(frozen=True, slots=True)
class Limits:
    """What a definition may ask for. `pools`: the longest timeout of each pool that there is;
    `quotas`: what each tenant may have at most.
    """

    pools: Mapping[str, timedelta]
    scripts_bucket: str
    quotas: TenantQuotas = NO_QUOTAS


class ManageJobs:
    """The life of a job's definition. Every write of a job carries its first due entry with it.

    *expected*, where a method takes it: versions of the job, see `Job.version`. What the job is, if
    it is none of them, is left as it is: ChangedError. None: whatever it is. *again*: the same was
    asked before, and may have been done: then a job that is as it is to be is as expected.
    """

    def __init__(
        self,
        jobs: JobStore,
        limits: Limits,
        unsent: FindUnsent,
        *,
        check: Callable[[JobDefinition, JobDefinition | None], None] = lambda _new, _old: None,
    ) -> None:
        """*check*: raises if the caller may not store a definition in place of another, or of
        None.
        """
        self._check_caller = check
        self._jobs = jobs
        self._limits = limits
        self._unsent = unsent

    def register(
        self,
        key: JobKey,
        definition: JobDefinition,
        *,
        uid: str,
        now: datetime,
        asked: Once | None = None,
    ) -> Job:
        """Store a new job and its first due entry. One that was stored with *uid* before stays as
        it is, and is returned so. *asked*: the request, if it may have come before; the job is of
        when it came first, but of no time before the deletion of one that had its id.

        Raises:
            InvalidInputError: The definition cannot be carried out, or never fires.
            ConflictError: The id belongs to a living job, or to a deleted one: of which something
                that was due is not sent yet, or which was made after *asked* came first.
            QuotaUsedUpError: The tenant has as many jobs as it may.
        """
        self._check(definition, key.tenant)
        most = self._limits.quotas.of(key.tenant).jobs

        def born(at: datetime) -> Job:
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
            )

        at = cut((asked and asked.asked_before) or now)
        job = born(at)
        _check_interval(definition, job.schedule, self._limits.quotas.of(key.tenant))
        # Stored where a writer of now stores it: the watcher has left the minutes before behind.
        now = cut(now)
        there = self._jobs.create(job, _first(job), now, most=most)
        while there is not None and there.uid != uid and there.state is JobState.CANCELLED:
            if asked is not None and asked.again:
                _check_made_before(there, asked)
            # Its item is all that the watchers know of it: it stays for as long as they need it.
            self._check_all_sent(there, now)
            # What was due before the deletion was the former's, and has run. So each job of an id
            # is of a later instant than the one before, whatever the clocks say.
            job = born(max(at, there.effective_from + _MOMENT))
            there = self._jobs.create(job, _first(job), now, former=there, most=most)
        if there is not None and there.uid != uid:
            raise ConflictError(
                f"A job {key.job_id!r} exists already ({there.state})",
                "Change it with PATCH, or choose another id.",
            )
        return there or job

    def put(
        self,
        key: JobKey,
        definition: JobDefinition,
        *,
        uid: str,
        now: datetime,
        expected: Collection[str] | None = None,
        only_new: bool = False,
        only_there: bool = False,
    ) -> tuple[Job, bool]:
        """Have a job of this *definition*: stored anew, or changed to it as by `change`. One
        that is defined so already stays as it is.

        Returns:
            The job, and whether it is new, with *uid*.

        Raises:
            ChangedError: It is not as *expected*; with *only_new*: there is one; with *only_there*:
                there is none.
            InvalidInputError: As for `register`; nothing is changed.
        """
        for _ in range(_TRIES):
            job = self._jobs.get(key)
            if job is None or job.state is JobState.CANCELLED:
                if expected is not None or only_there:
                    raise ChangedError(
                        f"There is no living job {key.job_id!r}", "Leave out If-Match to create it."
                    )
                try:
                    return self.register(key, definition, uid=uid, now=now), True
                except ConflictError:
                    there = self._jobs.get(key)
                    if there is None or there.state is JobState.CANCELLED:
                        raise  # not before what the one before left is sent
                    continue  # somebody made one meanwhile
            if only_new:
                raise ChangedError(
                    f"A job {key.job_id!r} exists already ({job.state})",
                    "Leave out If-None-Match to replace it, or choose another id.",
                )
            if _same(job.definition, definition):
                as_expected(job, expected)
                return job, False
            try:
                return self.change(key, lambda _: definition, now=now, expected=expected), False
            except NotFoundError:
                continue  # somebody deleted it meanwhile
        raise UnavailableError(f"Job {key.job_id!r} is being changed by others. Try again.")

    def change(
        self,
        key: JobKey,
        edit: Callable[[JobDefinition], JobDefinition],
        *,
        now: datetime,
        expected: Collection[str] | None = None,
    ) -> Job:
        """Replace the definition by what *edit* makes of it; called again if another change wins.

        A change of *when* takes effect now: occurrences up to now are the old schedule's, later
        ones the new one's. A COMPLETED job whose new schedule fires is ACTIVE again; a PAUSED one
        stays it.

        Raises:
            NotFoundError: There is no such job, or it is CANCELLED.
            InvalidInputError: As for `register`.
            ConflictError: There is no room to remember one more schedule of which something that
                was due is not sent yet.
            QuotaUsedUpError: It was COMPLETED, and the tenant has as many others as it may.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None]:
            definition = edit(job.definition)
            self._check(definition, key.tenant, job.definition)
            changed = revised(job, now, definition=definition)
            if all(getattr(definition, f) == getattr(job.definition, f) for f in SCHEDULE_FIELDS):
                return changed, None
            changed = revised(job.with_new_version(now), now, definition=definition)
            _check_interval(definition, changed.schedule, self._limits.quotas.of(key.tenant))
            if job.state is JobState.PAUSED:
                check(changed.schedule)
                return changed, job.unpaused(now)
            changed = replace(changed, state=JobState.ACTIVE)
            return changed, _first(changed)

        return self._revise(key, next_revision, expected)

    def pause(
        self,
        key: JobKey,
        reason: str | None,
        *,
        now: datetime,
        until: datetime | None = None,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Have nothing of the job due after *now*, until it is resumed; by itself at *until*, if
        that is given. What is due before, and what runs, goes on. Paused already, it stays as it
        is, but for an *until* that is given.

        Raises:
            InvalidInputError: *until* is not in the future, or too far away.
            NotFoundError: There is no such job, or it is CANCELLED.
            ConflictError: It is COMPLETED; or as for `change`.
        """
        self.check_until(until, now)
        end = None if until is None else cut(until)

        def next_revision(job: Job) -> tuple[Job, ResumeEntry | None] | None:
            if job.state is JobState.PAUSED:
                if end is None or end == job.resumes_at:
                    return None
                put_off = replace(revised(job, now), resumes_at=end)
                return put_off, put_off.resume_entry()
            if job.state is not JobState.ACTIVE:
                raise ConflictError(f"The job is {job.state}", "Only an ACTIVE job can be paused.")
            paused = replace(revised(job.paused(now, reason), now), resumes_at=end)
            return paused, paused.resume_entry()

        return self._revise(key, next_revision, expected, again=again)

    @staticmethod
    def check_until(until: datetime | None, now: datetime) -> None:
        """Let *until* pass, if a pause that begins *now* may end then.

        Raises:
            InvalidInputError: It may not.
        """
        if until is not None and not timedelta() < until - now <= MAX_DELAY:
            raise InvalidInputError(
                "until",
                isoformat(until),
                f"not within {MAX_DELAY.days} days from now",
                "Give an instant to come, or leave it out and resume the job yourself.",
            )

    def drain(
        self,
        key: JobKey,
        reason: str | None,
        *,
        now: datetime,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Pause the job, and have it told until when what was due before *now*, and what runs, goes
        on; see `has_outstanding`. Of one that is PAUSED that is told from now on, and nothing else
        changes; drained already, it stays as it is.

        Raises:
            NotFoundError: There is no such job, or it is CANCELLED.
            ConflictError: It is COMPLETED; or as for `change`.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None] | None:
            if job.state is JobState.PAUSED:
                if job.drain_asked_at is not None:
                    return None
                return replace(revised(job, now), drain_asked_at=cut(now)), None
            if job.state is not JobState.ACTIVE:
                raise ConflictError(f"The job is {job.state}", "Only an ACTIVE job can be drained.")
            paused = revised(job.paused(now, reason), now)
            return replace(paused, drain_asked_at=cut(now)), None

        return self._revise(key, next_revision, expected, again=again)

    def resume(
        self,
        key: JobKey,
        *,
        now: datetime,
        expected: Collection[str] | None = None,
        again: bool = False,
    ) -> Job:
        """Have a PAUSED job due again; its misfire policy decides over what was due meanwhile. A
        job that is ACTIVE stays as it is; one that has no occurrence left is COMPLETED.

        Raises:
            NotFoundError: There is no such job, or it is CANCELLED.
            ConflictError: It is COMPLETED.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None] | None:
            if job.state is JobState.ACTIVE:
                return None
            if job.state is not JobState.PAUSED:
                raise ConflictError(f"The job is {job.state}", "Only a PAUSED job can be resumed.")
            return job.resumption(now)

        return self._revise(key, next_revision, expected, again=again)

    def delete(self, key: JobKey, *, now: datetime, expected: Collection[str] | None = None) -> Job:
        """Make the job CANCELLED. Its history stays; what is due later is dropped then.

        Raises:
            NotFoundError: There is no such job, or it is CANCELLED.
        """

        def next_revision(job: Job) -> tuple[Job, FireEntry | None]:
            cancelled = revised(job.with_new_version(now), now, definition=job.definition)
            return replace(cancelled, state=JobState.CANCELLED), job.unpaused(now)

        return self._revise(key, next_revision, expected)

    def get(self, key: JobKey) -> Job:
        """The job, cancelled or not.

        Raises:
            NotFoundError: There never was one.
        """
        job = self._jobs.get(key)
        if job is None:
            raise NotFoundError("job", key.job_id)
        return job

    def _revise(
        self,
        key: JobKey,
        next_revision: Callable[[Job], tuple[Job, DueEntry | None] | None],
        expected: Collection[str] | None = None,
        *,
        again: bool = False,
    ) -> Job:
        """Write what *next_revision* makes of the job; None: it is to stay as it is."""
        for _ in range(_TRIES):
            job = self.get(key)
            if job.state is JobState.CANCELLED:
                raise NotFoundError("living job", key.job_id)
            if again and next_revision(job) is None:
                return job
            as_expected(job, expected)
            revised = next_revision(job)
            if revised is None:
                return job
            most = self._limits.quotas.of(key.tenant).jobs
            counted = not revised[0].state.ended and (job.counted or most is not None)
            changed = self._shortened(replace(revised[0], counted=counted))
            written = self._jobs.update(
                changed,
                revised[1],
                changed.updated_at,
                counts=int(counted) - int(job.counted),
                # One that was there before the quota was is not refused.
                most=most if job.state.ended else None,
            )
            if written:
                return changed
        raise UnavailableError(f"Job {key.job_id!r} is being changed by others. Try again.")

    def _shortened(self, job: Job) -> Job:
        """*job*, as it is to be stored, without versions of which all is sent, where it remembers
        many. A deletion is the last change, and has room in any case.
        """
        replaced = job.replaced
        if job.state is JobState.CANCELLED or _has_room(replaced):
            return job
        unsent = self._unsent.of(job.key, job.uid, job.updated_at)
        while unsent is not None and not _has_room(replaced):
            if not job.is_over(replaced[0], unsent, job.updated_at):
                break
            replaced = replaced[1:]
        if len(replaced) > 1 and bytes_of(replaced) > MAX_REPLACED_BYTES:
            raise ConflictError(
                f"What was due by the last {len(replaced)} schedules is not dispatched yet",
                "Try again in a moment: the dispatcher is behind, or the pool's queue is full.",
            )
        return replace(job, replaced=replaced)

    def _check_all_sent(self, job: Job, now: datetime) -> None:
        """Refuse to take the id of *job*, which is CANCELLED, while it owes something."""
        due_at = (job.as_of(past).all_due_at(past.until) for past in job.replaced)
        all_due_at = max(due_at, default=now)
        if all_due_at > now:
            raise ConflictError(
                f"The deleted job {job.key.job_id!r} has occurrences from before its deletion"
                f" that are due by {isoformat(all_due_at)}",
                "Try again then, or choose another id.",
            )
        if self._unsent.of(job.key, job.uid, now) != []:
            raise ConflictError(
                f"What was due of the deleted job {job.key.job_id!r} is not on record yet",
                "Try again in a moment, or choose another id: the dispatcher is behind, or the"
                " pool's queue is full.",
            )

    def _check(
        self, definition: JobDefinition, tenant: str, was: JobDefinition | None = None
    ) -> None:
        """Refuse a *definition* that cannot be carried out. What *was* so before a quota was may
        stay.
        """
        self._check_caller(definition, was)
        pool = definition.target.pool
        longest = self._limits.pools.get(pool)
        if longest is None:
            known = ", ".join(sorted(self._limits.pools))
            raise InvalidInputError("target.pool", pool, "no such pool", f"There are: {known}.")
        if definition.timeout > longest:
            raise InvalidInputError(
                "timeoutSec",
                definition.timeout_sec,
                f"longer than pool {pool!r} allows",
                f"Give at most {int(longest.total_seconds())}, or a pool with workers.",
            )
        size = definition.payload_bytes()
        if size > MAX_PAYLOAD_BYTES:
            raise InvalidInputError(
                "payload",
                f"{size} bytes",
                f"larger than {MAX_PAYLOAD_BYTES} bytes as JSON",
                "Put the data into S3 and its address into the payload.",
            )
        if was is None or was.payload != definition.payload:
            check_payload(size, self._limits.quotas.of(tenant))
        locate(definition.target, bucket=self._limits.scripts_bucket, tenant=tenant)


def _has_room(replaced: tuple[Replaced, ...]) -> bool:
    """Whether a job may well remember *replaced*; the latest it does in any case."""
    few = len(replaced) <= MAX_REPLACED and bytes_of(replaced) <= MAX_REPLACED_BYTES
    return few or len(replaced) == 1


def as_expected(job: Job, expected: Collection[str] | None) -> None:
    """Let *job* pass, if it is one of the versions *expected*; None: whatever it is.

    Raises:
        ChangedError: It is none of them.
    """
    if expected is not None and job.version not in expected:
        raise ChangedError(
            f"Job {job.key.job_id!r} has changed: its version is {job.version}",
            "Read it again, and decide anew.",
        )


def _check_made_before(former: Job, asked: Once) -> None:
    """Let *asked* come again, if what it made may not have been there before *former*, and be
    forgotten: a job that was deleted does not come back by itself.
    """
    if former.created_at > asked.at:
        raise ConflictError(
            f"A job {former.key.job_id!r} was made and deleted after this was asked first",
            "If the job is still wanted, ask with a new Idempotency-Key.",
        )


def _check_interval(definition: JobDefinition, schedule: Schedule, quotas: Quotas) -> None:
    """Let *schedule*, that of *definition*, pass, if no two of its next occurrences are too close.

    Raises:
        BeyondQuotaError: Two are.
        InvalidInputError: The schedule cannot be read.
    """
    if quotas.shortest_interval_sec is None:
        return
    shortest = timedelta(seconds=quotas.shortest_interval_sec)
    found = occurrences(schedule, schedule.effective_from)
    # All gaps of an interval are alike.
    looked_at = 2 if definition.type is ScheduleType.INTERVAL else _LOOKED_AT
    for one, other in pairwise(islice(found, looked_at)):
        if other.at - one.at < shortest:
            gap = f"{(other.at - one.at) / timedelta(seconds=1):g} s"
            raise BeyondQuotaError(
                Quota.SHORTEST_INTERVAL_SEC,
                "schedule",
                definition.schedule,
                f"has occurrences {gap} apart, and your quota is {shortest.total_seconds():g} s",
                "Have it due less often.",
            )


def _same(one: JobDefinition, other: JobDefinition) -> bool:
    # As JSON: true is 1 in Python.
    texts = (json.dumps(each.document(), sort_keys=True) for each in (one, other))
    return len({*texts}) == 1


def _first(job: Job) -> FireEntry | None:
    """The first due entry; a MANUAL job has none."""
    at = check(job.schedule)
    return None if at is None else job.fire_entry(at, 1)


def revised(job: Job, now: datetime, *, definition: JobDefinition | None = None) -> Job:
    """*job*, changed at *now*, as its next revision."""
    return replace(
        job,
        definition=definition or job.definition,
        revision=job.revision + 1,
        updated_at=max(cut(now), job.updated_at),
    )
