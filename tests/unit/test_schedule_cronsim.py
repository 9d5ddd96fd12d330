"""Comparison with cronsim, which follows Debian's cron. Each kind of difference has a name and must
occur.

Run with ``-s`` to see the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import islice

import pytest
from cronsim import CronSim

from nextfire.domain.schedule import Schedule, ScheduleType
from nextfire.domain.zones import OffsetChange, changes, zone
from tests.crons import Expression, cases
from tests.unit.schedules import next_occurrences

FIRST = 15
NEAR = timedelta(hours=26)
FAR = timedelta(days=500)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Case:
    """`raw`: the answer of cronsim; `theirs`: its distinct instants after `after`."""

    cron: Expression
    zone: str
    after: datetime
    ours: list[datetime]
    raw: list[datetime]

    @property
    def theirs(self) -> list[datetime]:
        return sorted({at for at in self.raw if at > self.after})

    @property
    def differing(self) -> set[datetime]:
        """The instants that only one of both returns, within the range that both cover."""
        ours, theirs = self.ours, self.theirs
        both = min(ours[-1], theirs[-1]) if theirs else self.after
        return {at for at in set(ours) ^ set(theirs) if at <= both}

    def only_near(self, kind: Callable[[OffsetChange], bool]) -> bool:
        """Whether they differ, and only near changes of this kind."""
        turns = [
            change
            for change in changes(self.zone, self.after - NEAR, self.ours[-1] + NEAR)
            if kind(change)
        ]
        return bool(self.differing) and all(
            any(abs(at - change.at) <= NEAR for change in turns) for at in self.differing
        )


def a_second_round_leads_back(case: Case) -> bool:
    """Asked in the repeated hour, cronsim returns times of the first pass, before `after`."""
    return not case.cron.elapsed and any(at <= case.after for at in case.raw)


def a_minute_wildcard_goes_by_elapsed_time(case: Case) -> bool:
    """To cronsim and Debian, ``*/5 2 * * *`` has no fixed time; here the hour field decides."""
    return case.cron.minute_wildcard and not case.cron.elapsed and case.only_near(lambda _: True)


def cronsim_counts_in_whole_hours(case: Case) -> bool:
    """After a clock change at or by a fraction of an hour, cronsim resumes at a wrong minute."""
    return case.cron.elapsed and case.only_near(
        lambda c: bool((c.after - c.before) % HOUR) or c.wall_before.minute > 0
    )


def cronsim_misses_a_skipped_midnight(case: Case) -> bool:
    """After a skipped midnight, cronsim resumes at one that does not exist or is too late."""
    return case.cron.elapsed and case.only_near(
        lambda c: c.after > c.before and c.wall_before.time() == time()
    )


def it_never_returns(cron: Expression, name: str, after: datetime) -> bool:
    """When the clock goes back across midnight, cronsim may search forever, so it is not called."""
    fixed = not cron.elapsed and not cron.minute_wildcard
    return not fixed and any(
        (change.wall_before - SECOND).date() > change.wall_after.date()
        for change in changes(name, after - NEAR, after + FAR)
    )


NAMED = (
    a_second_round_leads_back,
    a_minute_wildcard_goes_by_elapsed_time,
    cronsim_counts_in_whole_hours,
    cronsim_misses_a_skipped_midnight,
)


def test_every_difference_to_cronsim_has_a_name_and_every_name_occurs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hits: Counter[str] = Counter()
    for cron, name, after in cases(2026, 2500):
        if it_never_returns(cron, name, after):
            hits["it_never_returns"] += 1
            continue
        schedule = Schedule(ScheduleType.CRON, cron.text, name, after)
        ours = [each.at for each in next_occurrences(schedule, after, FIRST)]
        simulated = islice(CronSim(cron.text, after.astimezone(zone(name))), 8 * FIRST)
        raw: list[datetime] = []
        for each in simulated:
            raw.append(each.astimezone(UTC))
            if raw[-1] > ours[-1]:
                break
        case = Case(cron, name, after, ours, raw)
        if raw[:FIRST] == ours:
            hits["equal"] += 1
            continue
        reasons = [named.__name__ for named in NAMED if named(case)]
        case_text = f"{cron.text} in {name} after {after.isoformat()}"
        assert reasons, f"{case_text}: {sorted(map(str, case.differing))}"
        if case.differing:
            excuses = {named.__name__ for named in NAMED[1:]}
            assert excuses & set(reasons), f"{case_text}: {sorted(map(str, case.differing))}"
        hits.update(reasons)

    with capsys.disabled():
        print(f"\ncronsim: {dict(hits)}")  # noqa: T201 — the counts are the result
    names = {named.__name__ for named in (*NAMED, it_never_returns)}
    assert names <= set(hits), "a named difference did not occur"
