"""How long dispatching stops when a watcher is killed, and whether all runs arrive."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta

from benchmarks.figures import worst
from benchmarks.load import Load, Planned, interval
from benchmarks.report import Result, tell
from benchmarks.stack import Child, Stack, wait_until
from benchmarks.stack import stack as running_stack

KILLS = 5
BOUND_GAP = 4.0
JOBS = 100
EVERY = 5  # seconds between the runs of a job; 20 runs/s in total
SETTLE = timedelta(seconds=12)
"""Time between two kills: the standby takes over and catches up, and a new standby starts."""
INVOKED_EVERY = timedelta(minutes=1)
_AFTER = timedelta(seconds=30)


class Watchers:
    """Real processes of the watcher's handler, identified by process id."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        # Longer than the benchmark: a watcher ends only when it is killed.
        self._environment = {**stack.watcher_environment(), "NEXTFIRE_LIFE": "PT1H"}
        self._alive: list[Child] = []
        self._started = 0

    def start(self) -> None:
        """Invoke the function, as EventBridge does."""
        self._started += 1
        name = f"watcher-{self._started}"
        child = self._stack.spawn("benchmarks.invoke", name=name, environment=self._environment)
        self._alive.append(child)

    def holder(self) -> Child | None:
        """The live watcher whose log shows the lease epoch that is stored; None if there is not
        one.
        """
        item = self._stack.client("dynamodb").get_item(
            TableName=self._stack.info.tables["control"],
            Key={"id": {"S": "lease#0"}},
            ConsistentRead=True,
        )
        epoch = int(item.get("Item", {}).get("epoch", {}).get("N", 0))
        return next((child for child in self._alive if epoch in _epochs(child)), None)

    def kill(self, child: Child) -> datetime:
        """Send SIGKILL. Returns the time of the kill."""
        os.kill(child.record.pid, signal.SIGKILL)
        at = datetime.now(UTC)
        self._stack.end(child)
        self._alive.remove(child)
        return at

    def standbys(self) -> list[Child]:
        holder = self.holder()
        return [child for child in self._alive if child is not holder]


def measure() -> Result:
    """Kill watchers under load, five with a standby and one without; account for all runs."""
    result = Result()
    span = SETTLE * (KILLS + 1) + INVOKED_EVERY + SETTLE + _AFTER
    with running_stack(watcher=False) as stack:
        first_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
        load = Load(stack, plan(first_at, span))
        load.store()
        load.consume()
        watchers = Watchers(stack)
        for _ in range(2):
            watchers.start()
            wait_until(lambda: watchers.holder() is not None, most=SETTLE, what="a lease holder")
        time.sleep((first_at + SETTLE - datetime.now(UTC)).total_seconds())
        killed_at = [_kill_holder(watchers, number) for number in range(KILLS)]
        alone_at, back_at = _kill_both(watchers)
        time.sleep((first_at + span - datetime.now(UTC)).total_seconds())
        load.await_all(most=timedelta(minutes=2))
        found = load.account()
    late = found.dispatch_lateness
    gaps = [worst(late, at - timedelta(seconds=1), at + SETTLE) for at in killed_at]
    alone = worst(late, alone_at - timedelta(seconds=1), back_at + SETTLE)
    result.say("worst run after each kill", ", ".join(f"{gap:.2f} s" for gap in gaps))
    result.add("worst_gap_s", "worst gap, standby alive", max(gaps), most=BOUND_GAP, unit="s")
    result.add("worst_gap_no_standby_s", "worst gap, no standby", alone, unit="s")
    result.add("runs", "runs", len(load.expected))
    for key in ("lost", "duplicated", "unfinished", "sent_twice", "unexpected"):
        most = 0 if key in {"lost", "duplicated"} else None
        result.add(key, key.replace("_", " "), len(getattr(found, key)), most=most)
    result.notes.append(
        f"{JOBS} INTERVAL jobs of {EVERY} s, misfire RUN_ALL: {JOBS / EVERY:g} runs/s, evenly. "
        "Watchers are processes of the function's handler with the credentials of its role: a "
        "lease "
        f"holder and a standby. The holder was killed with SIGKILL {KILLS} times, and a new "
        "watcher was "
        "started at once. Gap: the lateness, due → accepted by the queue, of the latest run around "
        "the kill."
    )
    result.notes.append(
        "Without a standby: the standby was killed, then the holder; "
        f"{(back_at - alone_at).total_seconds():.1f} s later one watcher was started, which is "
        "the longest interval between two invocations of the EventBridge rule. That watcher still "
        "has to see the lease of the dead holder unrenewed for 3 s."
    )
    return result


def plan(first_at: datetime, span: timedelta) -> list[Planned]:
    """`JOBS` jobs, whose runs are spread evenly over *span*."""
    times = int(span.total_seconds()) // EVERY
    starts = [first_at + timedelta(seconds=EVERY * number / JOBS) for number in range(JOBS)]
    return [interval(f"failover-{n}", at, EVERY, times) for n, at in enumerate(starts)]


def _kill_holder(watchers: Watchers, number: int) -> datetime:
    wait_until(
        lambda: watchers.holder() is not None and len(watchers.standbys()) == 1,
        most=SETTLE,
        what="a lease holder and its standby",
    )
    holder = watchers.holder()
    assert holder is not None  # noqa: S101 — just waited for
    tell(f"kill {number + 1} of {KILLS}: process {holder.record.pid}")
    at = watchers.kill(holder)
    watchers.start()
    time.sleep((at + SETTLE - datetime.now(UTC)).total_seconds())
    return at


def _kill_both(watchers: Watchers) -> tuple[datetime, datetime]:
    """The times at which the last watcher was killed and the next one was started."""
    tell("killing standby and holder")
    for standby in watchers.standbys():
        watchers.kill(standby)
    holder = watchers.holder()
    assert holder is not None, "no live watcher holds the lease"  # noqa: S101
    at = watchers.kill(holder)
    time.sleep((at + INVOKED_EVERY - datetime.now(UTC)).total_seconds())
    watchers.start()
    return at, datetime.now(UTC)


def _epochs(child: Child) -> set[int]:
    """The epochs under which *child* held the lease, from its log."""
    epochs: set[int] = set()
    for line in child.log.read_text().splitlines():
        if line.startswith("{") and '"holds the lease"' in line:
            epochs.add(int(json.loads(line)["epoch"]))
    return epochs
