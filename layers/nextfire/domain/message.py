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


class RunMessage(Document):
    """One dispatch of one run. `dispatch` numbers the sendings that are meant to be new ones, from
    1. `exclusive`: the job's runs share one message group, so that they wait for each other.
    `reason`: why it was dispatched. `abreast`: how many runs of its tenant may be in work at a
    time, where that is bounded; it makes the message's group, and is not in its body.
    """

    v: Literal[1] = 1
    tenant: str = Field(pattern=rf"^{TENANT.pattern}$")
    job_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    run_id: str = Field(pattern=r"^[0-9]{8}T[0-9]{9}Z-[a-z0-9]{8,32}$")
    dispatch: int = Field(ge=1)
    dispatched_at: AwareDatetime
    exclusive: bool = False
    reason: str = Field(default=ORDINARY, max_length=MAX_REASON)
    abreast: int | None = Field(default=None, ge=1, exclude=True)

    @property
    def group(self) -> str:
        """The message group to send it in."""
        return group_id(self.key, exclusive=self.exclusive, abreast=self.abreast)

    @property
    def key(self) -> RunKey:
        return RunKey(JobKey(self.tenant, self.job_id), self.run_id)

    def encode(self) -> str:
        usual = {"exclusive": not self.exclusive, "reason": self.reason == ORDINARY}
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
