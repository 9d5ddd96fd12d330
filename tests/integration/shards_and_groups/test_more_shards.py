"""The number of shards is raised, by readers and writers together or one after the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import at
from tests.integration.shards_and_groups.fleet import LIFE, ON_TIME, Fleet, under_load


def test_readers_first_then_writers_a_life_later_delays_nothing(fleet: Fleet) -> None:
    under_load(
        fleet,
        lasts=400,
        then={
            70: lambda: setattr(fleet, "reads", 8),
            # An invocation that started just before the deployment lives for 130 s.
            70 + 130: lambda: setattr(fleet, "writes", 8),
        },
    )

    fleet.check()
    assert fleet.used == set(range(8))
    assert fleet.lateness[-1] <= ON_TIME


@pytest.mark.parametrize("new_api", [True, False], ids=["api seeds", "watchers seed"])
def test_readers_and_writers_by_one_deploy_delay_and_lose_nothing(
    fleet: Fleet, *, new_api: bool
) -> None:
    def deploy() -> None:
        fleet.reads = fleet.writes = 8

    under_load(fleet, lasts=400, then={70: deploy}, new_api=new_api)

    fleet.check()
    assert fleet.used == set(range(8))
    # The standby started at 60 took over at 130 and held the lease with its old setting until
    # 190.
    assert timedelta(seconds=100) < fleet.lateness[-1] <= LIFE


def test_writers_long_before_readers_delay_and_lose_nothing(fleet: Fleet) -> None:
    """No deployment does this (the settings are rejected). Its entries are still found, as long
    as the cursors are seeded before they are written.
    """
    fleet.world.control.seed_cursors(8, at("12:00"))
    under_load(
        fleet,
        lasts=400,
        then={
            10: lambda: setattr(fleet, "writes", 8),
            200: lambda: setattr(fleet, "reads", 8),
        },
    )

    fleet.check()
    assert fleet.lateness[-1] > timedelta(seconds=180)
