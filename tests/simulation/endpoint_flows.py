"""What users do to endpoints in histories with calls. `ENDPOINT_FLOWS` lists the flows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.targets.http.outcome import destination_of
from nextfire.usecases.manage_endpoints import ManageEndpoints
from tests.simulation.callbacks import URLS
from tests.simulation.flow import TENANTS, Flow
from tests.world import POOLS

if TYPE_CHECKING:
    from tests.simulation.history import History

Change = Callable[[ManageEndpoints, EndpointKey, datetime], Endpoint]
_LIMITS = [
    CallLimit(per_minute=6),
    CallLimit(per_minute=60, parallel=1),
    CallLimit(parallel=1),
    CallLimit(parallel=2),
    CallLimit(),
]


def _change(history: History, what: str, change: Change) -> None:
    dice = history.kernel.dice
    tenant = dice.choice(TENANTS)
    key = EndpointKey(dice.choice([*POOLS]), tenant, destination_of(dice.choice(URLS)))
    history.request(
        tenant,
        f"{what} {key.pool} {key.destination}",
        lambda client: change(client.endpoints, key, client.actor.now()),
    )


def pause_endpoint(history: History) -> None:
    _change(history, "pause", lambda manage, key, now: manage.pause(key, "maintenance", now))


def resume_endpoint(history: History) -> None:
    _change(history, "resume", lambda manage, key, now: manage.resume(key, now))


def limit_endpoint(history: History) -> None:
    limit = history.kernel.dice.choice(_LIMITS)
    _change(history, f"{limit}", lambda manage, key, now: manage.limit(key, limit, now))


def wait(history: History) -> None:
    """Nothing happens for some minutes, in which calls are made, and endpoints open and close."""
    history.patience = timedelta(seconds=history.kernel.dice.choice([40, 150, 400]))


ENDPOINT_FLOWS = [
    Flow("wait", 25, wait),
    Flow("pause an endpoint", 3, pause_endpoint),
    Flow("resume an endpoint", 6, resume_endpoint),
    Flow("limit an endpoint", 8, limit_endpoint),
]
