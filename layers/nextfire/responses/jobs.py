"""Responses about jobs, their occurrences and backfills."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from nextfire.domain.awaited import Above, Awaited, awaited
from nextfire.domain.backfill import Order
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Which
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import RunState
from nextfire.domain.schedule import Upcoming
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.domain.when import WhenDocument
from nextfire.responses.base import UNREADABLE, AllFields, ApiResponse, field, one_line

NEXT = 5
"""Number of next occurrences in the details of a job."""
_WALL = len("2026-05-24T10:00:00")


class BackfillResponse(ApiResponse):
    """A backfill: it runs the `count` past occurrences from `first` to `last`. Occurrences that
    already have an execution record are skipped.
    """

    backfill_id: str
    job_id: str = field(lambda _, job: job.key.job_id)
    first: datetime
    last: datetime
    count: int
    order: Order
    asked_at: datetime
    reason: str | None


def _draining(_job: Job, _now: datetime, draining: bool = False, *_: object) -> bool | None:  # noqa: FBT001, FBT002
    return draining or None


def _next_fire_at(job: Job, now: datetime, *_: object) -> datetime | None:
    if job.state is not JobState.ACTIVE:
        return None
    try:
        return job.next_to_run(now)
    except InvalidInputError:
        return None  # the time zone no longer exists; the job can still be read and repaired


def _skips(job: Job, now: datetime, *_: object) -> list[datetime] | None:
    """Without occurrences of an earlier schedule: the job keeps them, and they have no effect."""
    try:
        return [at for at in job.skips if at > now and job.next_after(at - MOMENT) == at] or None
    except InvalidInputError:
        return None  # as for `_next_fire_at`


def _backfill(job: Job, *_: object) -> BackfillResponse | None:
    asked = job.backfilling
    return None if asked is None else BackfillResponse.of(asked, job)


def _while_paused(name: str) -> Any:  # noqa: ANN401 — a function of a field
    """The attribute *name* of a job, only if the job is PAUSED."""
    return lambda job, *_: getattr(job, name) if job.state is JobState.PAUSED else None


class JobResponse(ApiResponse):
    """A job: its definition with all defaults, and its current state."""

    # of(job, now, draining=False)
    job_id: str = field(lambda job, *_: job.key.job_id)
    state: JobState
    pause_reason: str | None = field(_while_paused("pause_reason"))
    paused_by: str | None = field(
        _while_paused("paused_by"),
        description="Who asked for the pause: the id of an API key, the ARN of a signed request, "
        "or the subject of a token. Absent if the target of the job did, or if it is unknown.",
    )
    paused_at: datetime | None = field(
        _while_paused("effective_from"),
        description="Occurrences due after this instant do not run.",
    )
    resumes_at: datetime | None = field(
        _while_paused("resumes_at"), description="When the pause ends automatically."
    )
    drain_asked_at: datetime | None = field(
        _while_paused("drain_asked_at"),
        description="When a drain was requested. Present only while the job is PAUSED.",
    )
    draining: Literal[True] | None = field(
        _draining,
        description="Present while executions that were in flight when the drain was requested "
        "have not ended. Listings never show it.",
    )
    revision: int = field(description="Incremented by every change to the job.")
    next_fire_at: datetime | None = field(
        _next_fire_at, description="The next occurrence. Absent after the last one."
    )
    skips: list[datetime] | None = field(
        lambda job, *rest: None if job.state.ended else _skips(job, *rest),
        description="Future occurrences that are skipped on request.",
    )
    backfill: BackfillResponse | None = field(
        _backfill, description="The backfill in progress. Absent if none is in progress."
    )
    created_at: datetime
    updated_at: datetime
    definition = AllFields(JobDefinition, lambda job, *_: job.definition)

    @property
    def reason(self) -> str | None:
        """Why the stored job cannot be decoded, if `state` is UNREADABLE."""
        return self.document.get("reason")

    if TYPE_CHECKING:  # the fields of JobDefinition

        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401


class UnreadableJob(ApiResponse):
    """A stored job that cannot be decoded."""

    job_id: str = field(lambda found: found.identity)
    state: Literal["UNREADABLE"] = field(lambda _: UNREADABLE)
    reason: str = field(lambda found: one_line(found.problem))


def _job_items(page: Page[Job], now: datetime) -> list[ApiResponse]:
    readable = [JobResponse.of(each, now) for each in page.items]
    unreadable = [UnreadableJob.of(each) for each in page.unreadable]
    return sorted([*readable, *unreadable], key=lambda each: str(each.document["jobId"]))


class JobPage(ApiResponse):
    """Jobs, ordered by id. A page may hold fewer items than `limit`, or none, although more
    follow: if `cursor` is present, there may be more.
    """

    items: list[JobResponse] = field(_job_items, schema=list[JobResponse | UnreadableJob])
    cursor: str | None


def _local(found: Upcoming, *_: object) -> str:
    local = found.occurrence.local
    precision = "milliseconds" if local.microsecond else "seconds"
    return local.replace(tzinfo=None).isoformat(timespec=precision)


def _offset(found: Upcoming, *_: object) -> str:
    return found.occurrence.local.isoformat(timespec="seconds")[_WALL:]


def _due_at(found: Upcoming, schedule: WhenDocument, *_: object) -> datetime | None:
    """Also if it is of an earlier schedule, which had jitter."""
    return found.due_at if schedule.jitter_sec or found.due_at != found.occurrence.at else None


MAX_AWAITED_RUNS = 10_000
"""Awaited runs after which a list of occurrences has no more: hundreds of occurrences of a job can
wait for a thousand runs of each of its parents.
"""


class AwaitedResponse(ApiResponse):
    """The runs of a parent that an occurrence waits for. `scheduledAt`: their logical times. For
    `latest` instead `succeededSince`: one that succeeded and ended then or later.
    """

    job: str = field(lambda found: found.edge.job)
    which: Which = field(lambda found: found.edge.which)
    scheduled_at: list[datetime] | None = field(
        lambda found: None if found.since is not None else list(found.times)
    )
    succeeded_since: datetime | None = field(lambda found: found.since)


class UpcomingResponse(ApiResponse):
    """An occurrence. `at`: in UTC. `local` and `offset`: local time in the schedule's time zone.
    `dueAt`: the instant including jitter. `executionId`: id of the future execution, if the
    occurrence belongs to a job.
    """

    # of(upcoming, schedule, job or None, what it waits for or None)
    execution_id: str | None = field(
        lambda found, _, job, *__: job and job.run_key(found.occurrence.at).execution_id
    )
    at: datetime = field(lambda found, *_: found.occurrence.at)
    local: str = field(_local)
    offset: str = field(_offset)
    due_at: datetime | None = field(_due_at)
    skipped: bool | None = field(
        lambda found, _, job, *__: True if job and found.occurrence.at in job.skips else None,
        description="True if the occurrence is skipped on request, absent otherwise.",
    )
    parents: list[AwaitedResponse] | None = field(
        lambda _found, _schedule, _job, parents: (
            None if parents is None else [AwaitedResponse.of(each) for each in parents]
        ),
        description="The runs of its parents that it waits for. Only in the list of a job's next "
        f"occurrences; absent after {MAX_AWAITED_RUNS:,} of them.",
    )
    note: str | None = field(lambda found, *_: found.occurrence.note or None)


def _upcoming(
    found: Iterable[Upcoming],
    schedule: WhenDocument,
    job: Job | None = None,
    above: Above | None = None,
) -> list[UpcomingResponse]:
    left = MAX_AWAITED_RUNS if job is not None and job.definition.is_timed_join else 0
    items = []
    for each in found:
        parents: list[Awaited] | None = None
        if job is not None and above is not None and left > 0:
            parents = awaited(job, each.occurrence.at, above)
            left -= sum(max(len(parent.times), 1) for parent in parents)
        items.append(UpcomingResponse.of(each, schedule, job, parents))
    return items


class UpcomingList(ApiResponse):
    """Occurrences, earliest first."""

    items: list[UpcomingResponse] = field(_upcoming)


class LastRun(ApiResponse):
    """Summary of the newest execution of a job; not of an occurrence skipped in advance."""

    execution_id: str = field(lambda run: run.key.execution_id)
    state: RunState
    scheduled_at: datetime = field(lambda run: run.key.scheduled_at)
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None


def _next_occurrences(job: Job, now: datetime, *_: object) -> list[UpcomingResponse]:
    try:
        return _upcoming(upcoming_runs(job, now, NEXT), job.definition, job)
    except InvalidInputError:
        return []  # the time zone no longer exists


class JobDetail(JobResponse):
    """A job with its newest execution, if any, and its next occurrences."""

    # of(job, now, draining, newest run or None)
    upcoming: list[UpcomingResponse] = field(_next_occurrences)
    last_run: LastRun | None = field(lambda _job, _now, _draining, run: run and LastRun.of(run))
