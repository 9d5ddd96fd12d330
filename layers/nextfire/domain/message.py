"""The queue message that dispatches a run to an executor. It identifies the run; the executor reads
the job definition when it claims the run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import AwareDatetime, Field, ValidationError

from nextfire.domain.document import Document
from nextfire.domain.errors import UndecodableError, UnknownVersionError
from nextfire.domain.ids import RUN_ID, TENANT, JobKey, RunKey, dedup_id, group_id

ORDINARY = "occurrence is due"
"""The default reason for a dispatch."""
MAX_RECORDED_REASON = 500
TIME_DISPATCH = 1_000_001
"""Number of the dispatch that says that the time of a run with parents has come. As the end of a
join, it never starts the run."""
HAND_OVER_DISPATCH = 1_000_002
"""Number of the dispatch that repeats the hand-over of a run that has ended. It never starts the
run, which may have been redriven."""
MAX_RANGES = 3
"""Maximum number of ranges of missed occurrences in a message."""


def recordable(reason: str) -> str:
    """*reason*, cut to `MAX_RECORDED_REASON` characters: a run keeps up to a hundred reasons."""
    if len(reason) <= MAX_RECORDED_REASON:
        return reason
    return f"{reason[: MAX_RECORDED_REASON - 1]}…"


class SkippedRange(Document):
    """A range of `count` skipped occurrences of a job, from `first` to `last`, both included.
    `version`: their schedule version. `ordinal`: number of the first occurrence in that version,
    from 1; always 1 for jobs without `maxRuns`. `reason`: why they are skipped.
    """

    first: AwareDatetime
    last: AwareDatetime
    count: int = Field(ge=1)
    version: int = Field(ge=0)
    ordinal: int = Field(default=1, ge=1)
    reason: str = Field(max_length=MAX_RECORDED_REASON)


class RunMessage(Document):
    """One dispatch of one run. `dispatch`: number of the dispatch, from 1; resending the same
    dispatch does not increment it. `exclusive`: the runs of the job share a message group, so they
    run one after the other. `reason`: why the run was dispatched. `max_concurrent`: maximum number
    of concurrent runs of the tenant, if limited; it determines the message group and is not part of
    the body. `resumed_as`: the schedule version, if the job was resumed after the run was due; the
    run may have been sent before, and the queue must not drop this message as a duplicate: it
    completes the job if no run is left. Not part of the body. `missed`: skipped occurrences that
    were due before the run; the executor records them first. `removed_pool`: the pool of the job,
    if it no longer exists; the message is in the queue of another pool, whose executor ends the run
    unless the job has moved since.
    """

    v: Literal[1] = 1
    tenant: str = Field(pattern=rf"^{TENANT.pattern}$")
    job_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    run_id: str = Field(pattern=f"^{RUN_ID.pattern}$")
    dispatch: int = Field(ge=1)
    dispatched_at: AwareDatetime
    exclusive: bool = False
    reason: str = Field(default=ORDINARY, max_length=MAX_RECORDED_REASON)
    missed: tuple[SkippedRange, ...] = Field(default=(), max_length=MAX_RANGES)
    removed_pool: str | None = Field(default=None, max_length=MAX_RECORDED_REASON)
    max_concurrent: int | None = Field(default=None, ge=1, exclude=True)
    resumed_as: int | None = Field(default=None, exclude=True)

    @classmethod
    def of(
        cls,
        run: RunKey,
        dispatch: int,
        dispatched_at: datetime,
        *,
        exclusive: bool = False,
        reason: str = ORDINARY,
    ) -> Self:
        """The message of this dispatch of *run*."""
        return cls(
            tenant=run.job.tenant,
            job_id=run.job.job_id,
            run_id=run.run_id,
            dispatch=dispatch,
            dispatched_at=dispatched_at,
            exclusive=exclusive,
            reason=reason,
        )

    @property
    def group(self) -> str:
        """The FIFO message group of the message."""
        return group_id(self.key, exclusive=self.exclusive, max_concurrent=self.max_concurrent)

    @property
    def dedup(self) -> str:
        """The FIFO deduplication id of the message."""
        return dedup_id(self.key, self.dispatch, self.resumed_as)

    @property
    def key(self) -> RunKey:
        return RunKey(JobKey(self.tenant, self.job_id), self.run_id)

    def encode(self) -> str:
        usual = {
            "exclusive": not self.exclusive,
            "reason": self.reason == ORDINARY,
            "missed": not self.missed,
            "removed_pool": self.removed_pool is None,
        }
        return self.model_dump_json(
            by_alias=True, exclude={name for name, left_out in usual.items() if left_out}
        )


def decode_message(body: str) -> RunMessage:
    """Decode a message body. Unknown fields are ignored: a newer version may send them.

    Raises:
        UnknownVersionError: *body* has a version (`v`) that this code does not know.
        UndecodableError: *body* is not a run message.
    """
    try:
        message = RunMessage.model_validate_json(body, extra="ignore")
        _ = message.key.scheduled_at  # reject an invalid date here, not during the run
    except ValidationError as error:
        version = _unknown_version(error)
        if version is not None:
            raise UnknownVersionError(version) from error
        raise UndecodableError(
            f"not a run message: {error.error_count()} errors, {error}"
        ) from error
    except ValueError as error:
        raise UndecodableError(f"not a run message: {error}") from error
    return message


def _unknown_version(error: ValidationError) -> int | None:
    """The version of a message that fails with *error*, if it is a later one."""
    for each in error.errors():
        version = each["input"]
        if each["loc"] == ("v",) and type(version) is int and version > 1:
            return version
    return None
