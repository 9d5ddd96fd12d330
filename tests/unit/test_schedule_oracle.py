"""`occurrences`, compared with the rules applied to every minute, in zones of all kinds."""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile

import pytest

from nextfire.domain.recurrence import next_instant, occurrences
from nextfire.domain.schedule import Dst, Schedule, ScheduleType
from nextfire.domain.zones import zone
from tests.crons import cases, walked

WINDOW = timedelta(hours=36)


@pytest.mark.parametrize("seed", range(4))
def test_occurrences_are_those_of_a_walk_over_every_minute(seed: int) -> None:
    fired = dict.fromkeys(Dst, 0)
    for number, (cron, name, after) in enumerate(cases(seed, 60)):
        dst = Dst.EACH if number % 3 == 0 else Dst.ONCE
        until = after + WINDOW
        schedule = Schedule(ScheduleType.CRON, cron.text, name, after, dst=dst)

        found = list(takewhile(lambda each: each.at <= until, occurrences(schedule, after)))  # noqa: B023

        expected = list(walked(cron, zone(name), dst.value, after, until))
        case = f"{cron.text} in {name}, {dst}, from {after.isoformat()}"
        assert [each.at for each in found] == expected, case
        fired[dst] += len(expected)
    assert min(fired.values()) > 100, "these cases hardly fire at all"


def test_a_chain_of_next_instants_is_the_list_of_occurrences() -> None:
    for cron, name, after in cases(99, 60):
        schedule = Schedule(ScheduleType.CRON, cron.text, name, after)
        at, until = next_instant(schedule, after), after + WINDOW
        listed = takewhile(lambda each: each.at <= until, occurrences(schedule, after))  # noqa: B023
        for each in listed:
            assert at == each.at, (cron.text, name, after)
            at = next_instant(schedule, at)
        assert at is None or at > until
