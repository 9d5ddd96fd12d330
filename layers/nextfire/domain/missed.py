"""Ranges of missed occurrences, as messages list them and executors record them."""

from __future__ import annotations

from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.due import FireEntry
from nextfire.domain.job import Job
from nextfire.domain.message import SkippedRange


@dataclass(frozen=True, slots=True)
class Missed:
    """Missed occurrences, from the occurrence of an entry to `until`. `except_latest`: without the
    latest one.
    """

    until: datetime
    except_latest: bool = False


def missed_row(
    entry: FireEntry, owner: Job, missed: Missed, owned_until: datetime | None, reason: str
) -> SkippedRange:
    last, count = missed_from(entry, owner, missed, owned_until)
    return SkippedRange(
        first=entry.occurs_at,
        last=last,
        count=count,
        version=entry.version,
        ordinal=entry.ordinal,
        reason=reason,
    )


def without_skips(row: SkippedRange, entry: FireEntry, owner: Job) -> list[SkippedRange]:
    """Split *row*, which begins with the occurrence of *entry*, at the occurrences that a user
    skipped: they have records. Executors split ranges at records, too, but only if the job still
    exists. Otherwise they would have to drop the whole range.
    """
    parts: list[SkippedRange] = []
    start: FireEntry | None = entry
    for skip in sorted(at for at in owner.skips if row.first <= at <= row.last):
        if start is None or start.occurs_at > row.last:
            break
        upto = owner.stretch(start, skip)
        if upto.last != skip:
            continue  # an occurrence of another schedule version
        if upto.before_last is not None:
            parts.append(_part(row, start, upto.before_last, upto.count - 1))
        start = owner.following(skip, start.ordinal + upto.count - 1)
    if start is not None and start.occurs_at <= row.last:
        rest = owner.stretch(start, row.last)
        parts.append(_part(row, start, rest.last, rest.count))
    return parts


def _part(row: SkippedRange, start: FireEntry, last: datetime, count: int) -> SkippedRange:
    new = {"first": start.occurs_at, "last": last, "count": count, "ordinal": start.ordinal}
    return row.model_copy(update=new)


def missed_from(
    entry: FireEntry, owner: Job, missed: Missed, owned_until: datetime | None
) -> tuple[datetime, int]:
    """The last of the *missed* occurrences, starting with that of *entry*, and their number."""
    stretch = owner.stretch(entry, min(missed.until, owned_until or missed.until))
    if missed.except_latest and stretch.before_last is not None:
        return stretch.before_last, stretch.count - 1
    return stretch.last, stretch.count
