"""Shards, groups and watchers that are changed, doubled, killed and skewed, under load.

The stores are the fakes, which pass their adapters' contract suites: these tests cover the order
of calls of many processes, second by second, on one clock.
"""

from __future__ import annotations

import pytest

from tests.integration.shards_and_groups.fleet import Fleet
from tests.world import World


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(World("12:00:20"))
