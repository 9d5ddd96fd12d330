"""Groups of watchers: what each reads, and changes of their number."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from functions.watcher import handler as watcher_function
from nextfire.domain.instants import MINUTE
from nextfire.settings import WatcherSettings
from tests.crons import LONG
from tests.integration.shards_and_groups.fleet import LIFE, ON_TIME, Fleet, under_load

CHANGES = [
    ((1, 3, 1), 23),
    ((3, 1, 8), 0),
    ((2, 5, 3), 23),
    ((1, 3, 1), 0),
    ((3, 1, 8), 23),
    ((2, 5, 3), 0),
]
"""Numbers of groups one after the other, and the stagger of the watchers. The last four: with
NEXTFIRE_LONG only.
"""


@given(st.integers(1, 999).flatmap(lambda n: st.tuples(st.integers(1, min(n, 100)), st.just(n))))
@settings(max_examples=60 if LONG else 20)
def test_each_shard_is_read_by_exactly_one_group(counts: tuple[int, int]) -> None:
    groups, reads = counts
    with pytest.MonkeyPatch.context() as patch:
        read = [shard for group in range(groups) for shard in shards_read(patch, group, *counts)]

    assert sorted(read) == list(range(reads))


def test_three_groups_on_eight_shards_send_each_run_once_and_in_time(fleet: Fleet) -> None:
    fleet.reads, fleet.writes, fleet.groups = 8, 8, 3

    under_load(fleet, lasts=280, then={})

    fleet.check()
    assert fleet.lateness[-1] <= ON_TIME
    sent = Counter((message.key, message.dispatch) for message in fleet.world.queue.log)
    assert set(sent.values()) == {1}


@pytest.mark.parametrize(("counts", "stagger"), CHANGES if LONG else CHANGES[:2])
def test_the_number_of_groups_is_changed_and_nothing_is_lost(
    fleet: Fleet, counts: tuple[int, int, int], stagger: int
) -> None:
    fleet.reads = fleet.writes = 8
    fleet.stagger = stagger
    fleet.groups, second, third = counts

    under_load(
        fleet,
        lasts=420,
        then={
            70: lambda: setattr(fleet, "groups", second),
            230: lambda: setattr(fleet, "groups", third),
        },
    )

    fleet.check()
    # A removed group ends with its last invocation. Until the last invocation of the others
    # with the old setting has also ended, its shards may have no reader.
    assert fleet.lateness[-1] <= LIFE
    behind = {fleet.now - minute for minute, _ in fleet.world.control.moved.values()}
    assert max(behind) <= 3 * MINUTE, "the last reader of a shard moves its cursor"


def test_a_holder_of_an_unplanned_group_does_no_harm(fleet: Fleet) -> None:
    intruder = fleet.start("intruder", group=77)

    under_load(fleet, lasts=200, then={})

    assert intruder.holds
    fleet.check()
    assert fleet.lateness[-1] <= ON_TIME
    sent = Counter((message.key, message.dispatch) for message in fleet.world.queue.log)
    assert max(sent.values()) == 2, "both must send for a meaningful test"


def shards_read(patch: pytest.MonkeyPatch, group: int, groups: int, reads: int) -> list[int]:
    """The shards of *group*, as computed by the deployed function."""
    environment = {
        **dict.fromkeys(("jobs_table", "due_table", "runs_table", "control_table"), "t"),
        "pools": "{}",
        "write_shards": str(reads),
        "read_shards": str(reads),
        "groups": str(groups),
    }
    for name, value in environment.items():
        patch.setenv(f"NEXTFIRE_{name.upper()}", value)
    config = watcher_function.config_of(WatcherSettings.read(), group)
    return list(config.shards)
