"""The watcher: invoked every minute per group, dispatches due entries, sleeps if none is soon."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

# Imported where Lambda gives the function a full core. With the twelfth that it has afterwards, the
# import would take 0.15 s before the first run of a cron job.
import croniter  # noqa: F401
from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.domain.removed_pools import Pools
from nextfire.settings import WatcherSettings, function_memory
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.tick import BUDGET
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.telemetry import Telemetry
from nextfire.wiring.watcher import WatcherConfig, build_watcher
from nextfire.wiring.watcher_ports import watcher_ports

_CODE_MIB = 100
_BUDGET_AT_LEAST = 5_000
_CORE_MIB = 1_769
"""Memory with which Lambda gives a function one core. The watcher does not use more cores."""
_DISPATCHED_PER_MIB = 128
"""What a watcher dispatches in a minute per MiB of memory, at 0.26 ms of CPU per run."""

telemetry = Telemetry("watcher")


@cache
def _ports() -> WatcherPorts:
    """The adapters of all watchers in this process. Lambda gives it the invocations of any group:
    with threads and connections for each of 10 groups it would exceed 1,024 threads, Lambda's
    limit.
    """
    return watcher_ports(WatcherSettings.read())


@cache
def _watcher_of(group: int) -> WatcherLife:
    """The watcher of *group* in this process. Invocations in one process are sequential."""
    return build_watcher(_ports(), config_of(WatcherSettings.read(), group), telemetry)


def config_of(settings: WatcherSettings, group: int) -> WatcherConfig:
    """The configuration of a watcher of *group*, with a new holder name."""
    return WatcherConfig(
        group=group,
        holder=f"{group}-{uuid.uuid4().hex[:12]}",
        shards=range(group, settings.read_shards, settings.groups),
        shares=Shares(
            backlogs={name: pool.max_backlog for name, pool in settings.pools.items()},
            weights=settings.tenant_weights,
            quotas=settings.quotas,
        ),
        budget=budget_of(function_memory()),
        pools=Pools(settings.pools.keys()),
        groups=settings.groups,
    )


def budget_of(memory: int | None) -> int:
    """Number of due entries that a function of *memory* MiB may hold; *memory* is None outside
    Lambda.

    Half of the memory that the code leaves, at 1 KB per entry; the other half is for entries that
    are being read. At most what the function dispatches in a minute: an entry that waits for longer
    has been missed when it is decided, and with misfire policy SKIP it does not run.
    """
    if memory is None:
        return BUDGET
    room = (memory - _CODE_MIB) * 1024 // 2
    return max(min(room, _DISPATCHED_PER_MIB * min(memory, _CORE_MIB)), _BUDGET_AT_LEAST)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Watch until the end of this invocation's life, or until nothing is due soon. The next one
    starts a minute before that end.

    Args:
        event: ``{"group": n}``, from the group's EventBridge rule; with ``"woken": true``, from a
            process that stored an entry that is due soon. Does nothing if that group does not
            exist.
        context: The Lambda context; unused.
    """
    settings, group = WatcherSettings.read(), int(event.get("group", 0))
    if group not in range(settings.groups):
        # Its shards would have two watchers: a process from before a change of the number woke it.
        telemetry.logger.warning("unknown watcher group", group=group, groups=settings.groups)
        return {"dispatched": 0}
    woken = bool(event.get("woken", False))
    return {"dispatched": _watcher_of(group).live(settings.life, sleeps=True, woken=woken)}
