"""Whether the occurrences of a job with a schedule and parents can meet runs of its parents."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from nextfire.domain.awaited import MAX_AWAITED, MAX_INTERVAL, Above, logical_times
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Edge, Which
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import MOMENT, isoformat

_CHECKED = 3  # next occurrences


def check_alignment(
    definition: JobDefinition, counted_from: datetime, now: datetime, above: Above
) -> None:
    """Check the next occurrences of *definition* after *now* against its parents.

    Args:
        definition: A job with a schedule and parents.
        counted_from: Start of the count for DELAY, INTERVAL and `maxRuns`: *now*, unless the
            schedule is unchanged.
        now: When it becomes effective.
        above: Its parents, and the parents of those that have no schedule.

    Raises:
        InvalidInputError: With `same`: the parent does not run at one of the occurrences. With
            `all`: the parent has no runs until the last of them, or too many between two of them,
            or two of them are too far apart. Or the schedule is invalid.
    """
    upcoming = definition.next_occurrences(counted_from, now, _CHECKED)
    for edge in definition.after:
        if edge.which is Which.SAME:
            _check_same(edge, upcoming, above)
        elif edge.which is Which.ALL:
            _check_all(edge, upcoming, now, above, definition.join_timeout + edge.delay)


def _check_same(edge: Edge, upcoming: list[datetime], above: Above) -> None:
    parent = above.get(edge.job)
    if parent is None:
        return
    for at in upcoming:
        if not logical_times(parent, above, at - MOMENT, at):
            raise InvalidInputError(
                "after",
                edge.job,
                f"does not run at {isoformat(at)}, an occurrence of this job, as `same` needs",
                "Use the schedule of the parent, or another `which`. For example "
                f'`{{"job": "{edge.job}", "which": "latest", "withinSec": 86400}}`.',
            )


def _check_all(
    edge: Edge, upcoming: list[datetime], now: datetime, above: Above, wait: timedelta
) -> None:
    """*wait*: how long a run waits for its parents after its occurrence."""
    parent = above.get(edge.job)
    if parent is None:
        return
    for since, at in pairwise([now, *upcoming]):
        if at - since + wait > MAX_INTERVAL and since != now:
            raise InvalidInputError(
                "after",
                edge.job,
                f"the occurrences of this job, {isoformat(since)} and {isoformat(at)}, are more "
                f"than {MAX_INTERVAL.days} days apart, with joinTimeoutSec and delaySec: records "
                "of the runs between them expire",
                'Use `"which": "latest"`, a schedule with a shorter interval, or a shorter '
                "joinTimeoutSec.",
            )
        times = logical_times(parent, above, since, at, limit=MAX_AWAITED + 1)
        if len(times) > MAX_AWAITED:
            raise InvalidInputError(
                "after",
                edge.job,
                f"has more than {MAX_AWAITED:,} runs between {isoformat(since)} and "
                f"{isoformat(at)}, two occurrences of this job",
                'Use `"which": "latest"`, or a schedule with a shorter interval.',
            )
    # One of the intervals may be empty, e.g. that of a parent that does not run on Sundays.
    if upcoming and not logical_times(parent, above, now, upcoming[-1], limit=1):
        raise InvalidInputError(
            "after",
            edge.job,
            f"has no scheduled run until {isoformat(upcoming[-1])}, as `all` needs",
            "Use a parent with a schedule, or another `which`. For example "
            f'`{{"job": "{edge.job}", "which": "latest", "withinSec": 86400}}`.',
        )
