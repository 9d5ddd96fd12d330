"""What keeps a history's processes running: timers, an event source, and restarts of workers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from nextfire.domain.instants import MINUTE

if TYPE_CHECKING:
    from tests.simulation.history import History

_AUDIT_EVERY = timedelta(minutes=15)


def timer(history: History, group: int) -> None:
    """EventBridge's rule of a group: about once a minute, occasionally not at all or twice."""
    dice, aws = history.kernel.dice, history.system.aws
    while True:
        if history.system.timers:
            for _ in range(dice.choice([1, 1, 1, 1, 1, 1, 0, 2])):
                history.system.invoke_watcher(group)
        aws.sleep(timedelta(seconds=60 + dice.choice([0, 0, -0.5, 0.5, 8])))


def auditor_timer(history: History) -> None:
    while True:
        every = MINUTE if history.wide else 5 * MINUTE if history.calls else _AUDIT_EVERY
        history.system.aws.sleep(every)
        if history.system.timers:
            history.system.invoke_auditor(restart=history.wide or history.calls)


def supervise(history: History) -> None:
    """ECS: keeps the desired number of workers running."""
    system, setting = history.system, history.setting
    pools = ["batch"] if setting.on_lambda else ["default", "default", "batch"]
    while True:
        alive = [w for w in system.workers if w.alive and not w.stopping and w.tasks]
        if system.works:
            for number in range(len(alive), setting.workers + 1):
                system.start_worker(pools[number % len(pools)])
        system.aws.sleep(timedelta(seconds=history.kernel.dice.choice([1, 5, 20])))


def event_source(history: History) -> None:
    """SQS's poller for a pool on Lambda."""
    dice, system = history.kernel.dice, history.system
    while True:
        if system.works:
            system.invoke_executor("default")
        system.aws.sleep(timedelta(seconds=dice.choice([0.2, 1, 2])))
