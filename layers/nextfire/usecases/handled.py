"""What an executor did with a message."""

from __future__ import annotations

from enum import Enum

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.run import Run


class Disposition(Enum):
    """What the host does with the message."""

    ACKNOWLEDGE = "ACKNOWLEDGE"  # delete it
    LEAVE = "LEAVE"  # it is redelivered when its visibility timeout, already set, ends


@dataclass(frozen=True, slots=True)
class Handled:
    """The result of handling a message. `run`: its record, if known; `outcome`: of an attempt made
    here; `missed`: the new records of occurrences before it that are skipped.
    """

    disposition: Disposition
    reason: str
    run: Run | None = None
    outcome: AttemptOutcome | None = None
    started: bool = False
    lost: bool = False
    quarantined: bool = False
    skipped: bool = False
    missed: tuple[Run, ...] = ()
