"""The message that carries a run to an executor. It holds who and which, never what: that is read
at the claim.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field, ValidationError

from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import TENANT, JobKey, RunKey, group_id
from nextfire.domain.job import Document

ORDINARY = "occurrence is due"
"""Why most runs are dispatched."""
MAX_REASON = 500
MAX_RANGES = 3
"""Rows of missed occurrences that one message may tell of."""


class SkippedRange(Document):
    """Occurrences of a job that do not run, from `first` to `last`, both included: `count` of them,
    of the schedule version `version`, in which the first is the `ordinal`-th (from 1; counted only
    of a job with `maxRuns`). `reason`: why.
    """

    first: AwareDatetime
    last: AwareDatetime
    count: int = Field(ge=1)
    version: int = Field(ge=0)
    ordinal: int = Field(default=1, ge=1)
    reason: str = Field(max_length=MAX_REASON)


class RunMessage(Document):
    """One dispatch of one run. `dispatch` numbers the sendings that are meant to be new ones, from
    1. `exclusive`: the job's runs share one message group, so that they wait for each other.
    `reason`: why it was dispatched. `abreast`: how many runs of its tenant may be in work at a
    time, where that is bounded; it makes the message's group, and is not in its body. `missed`:
    what was due before the run and does not run; whoever has the message puts that on record first.
    """

    v: Literal[1] = 1
    tenant: str = Field(pattern=rf"^{TENANT.pattern}$")
    job_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    run_id: str = Field(pattern=r"^[0-9]{8}T[0-9]{9}Z-[a-z0-9]{8,32}$")
    dispatch: int = Field(ge=1)
    dispatched_at: AwareDatetime
    exclusive: bool = False
    reason: str = Field(default=ORDINARY, max_length=MAX_REASON)
    missed: tuple[SkippedRange, ...] = Field(default=(), max_length=MAX_RANGES)
    abreast: int | None = Field(default=None, ge=1, exclude=True)

    @property
    def group(self) -> str:
        """The message group to send it in."""
        return group_id(self.key, exclusive=self.exclusive, abreast=self.abreast)

    @property
    def key(self) -> RunKey:
        return RunKey(JobKey(self.tenant, self.job_id), self.run_id)

    def encode(self) -> str:
        usual = {
            "exclusive": not self.exclusive,
            "reason": self.reason == ORDINARY,
            "missed": not self.missed,
        }
        return self.model_dump_json(
            by_alias=True, exclude={name for name, left_out in usual.items() if left_out}
        )


def decode_message(body: str) -> RunMessage:
    """The message that *body* holds.

    Raises:
        UndecodableError: It holds none, or one of a version this code does not know.
    """
    try:
        message = RunMessage.model_validate_json(body)
        _ = message.key.scheduled_at  # digits that are no date are found here, not in mid-run
    except ValidationError as error:
        raise UndecodableError(
            f"not a run message: {error.error_count()} errors, {error}"
        ) from error
    except ValueError as error:
        raise UndecodableError(f"not a run message: {error}") from error
    return message
