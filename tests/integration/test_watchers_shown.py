"""What the API says about the watchers, from the leases that watchers write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.domain.instants import isoformat
from nextfire.domain.ports.control import Lease, Takeover
from tests.integration.deployment import Deployment

SECOND = timedelta(seconds=1)


def watcher_shown(system: Deployment) -> dict[str, Any]:
    answer = system.call("GET", "/v1/overview")
    assert answer.status == 200, answer.document
    [found] = answer.document["watchers"]
    return dict(found)


def test_a_lost_watcher_and_its_takeover_are_shown(system: Deployment) -> None:
    assert watcher_shown(system) == {"group": 0, "state": "NEW"}
    control = DynamoDbControlStore(system.database, table=system.control_table)
    now = SystemClock().now()
    dead = Lease("a", 1, 0, renewed_at=now - 20 * SECOND)
    control.replace_lease(0, None, dead)

    renewed_at = isoformat(now - 20 * SECOND)
    assert watcher_shown(system) == {"group": 0, "state": "LOST", "renewedAt": renewed_at}

    takeover = Takeover(now - 20 * SECOND, now - SECOND)
    control.replace_lease(0, dead, Lease("b", 2, 0, renewed_at=now, takeover=takeover))
    assert watcher_shown(system) == {
        "group": 0,
        "state": "WATCHING",
        "renewedAt": isoformat(now),
        "takeover": {"lostAt": renewed_at, "takenAt": isoformat(now - SECOND)},
    }
