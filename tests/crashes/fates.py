"""The fates of calls, and the points at which they happen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What happens to a call."""

    BEFORE = "killed before it"
    AFTER = "killed after it"
    PART = "killed when all but one part of it was done"
    REPEATED = "done, its answer lost: the SDK retries it"
    LOST = "done, its answer lost at each retry of the SDK"
    REFUSED = "throttled at each retry of the SDK"


KILLS = (Fate.BEFORE, Fate.AFTER)
FAULTS = (Fate.REPEATED, Fate.LOST, Fate.REFUSED)


@dataclass(frozen=True, slots=True)
class Point:
    """The *call*-th call, from 0, since the last kill, and its fate. `part`: the part of a batch,
    from 0, that was not done.
    """

    call: int
    fate: Fate
    part: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The content of AWS and what the test remembers; `moment`: the time and the beats of leases,
    which are all that an idle system changes.
    """

    content: str
    moment: str


@dataclass(frozen=True, slots=True)
class Call:
    """A counted call. `process` made it; `before`, `after`: the state of AWS around it, if states
    were recorded; `parts`: number of parts of a batch, otherwise 1; `site`: the adapter's function
    that makes the call.
    """

    name: str
    process: str
    parts: int = 1
    site: str = ""
    before: State | None = None
    after: State | None = None
