"""Occurrences that a release of the IANA time zone database has moved to another instant.

Their due entries were stored with the rules of an earlier release. The wall-clock time runs once:
where it was, if that run has started; otherwise where it is now.
"""

from __future__ import annotations

from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.due import FireEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState, owned
from nextfire.domain.zones import release


@dataclass(frozen=True, slots=True)
class Move:
    """Record `run`, at the former instant, as skipped, and store `to`; if it has a record that is
    not skipped, or a user skipped it, store `following` instead.

    `owner`: the job with the schedule version of the entry. `is_current`: whether that is the
    current version, which completes the job if nothing is left to store.
    """

    run: RunKey
    to: FireEntry | None
    following: FireEntry | None
    owner: Job
    is_current: bool
    reason: str


def decide_move(entry: FireEntry, owner: Job, owned_until: datetime | None) -> Move | None:
    """Decide whether the time zone rules have moved the occurrence of *entry*, an entry of the
    schedule version of *owner*, which ended at *owned_until*. None: it is where it was.
    """
    if owner.state is JobState.PAUSED:
        return None  # all that was due in the pause is covered anyway
    moved = owner.moved(entry)
    if moved is None:
        return None
    now_at = f"at {isoformat(moved.to.occurs_at)}" if moved.to else "after the end of its schedule"
    return Move(
        entry.run_key,
        owned(moved.to, owned_until),
        owned(moved.following, owned_until),
        owner,
        owned_until is None,
        f"now {now_at}, by the time zone rules of {release()}",
    )
