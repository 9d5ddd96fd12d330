"""Ticks of the watcher: entries, its lease, and what it cannot send."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from nextfire.adapters.dynamodb.items import to_item
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState
from nextfire.domain.zones import ZoneReading
from nextfire.usecases.hold_lease import LIFE
from tests.builders import RUN_LATEST, at
from tests.crashes.flow import ONCE, SECOND, Flow, WatcherFlow, attempt, dispatch, watch
from tests.crashes.names import GONE, POOL
from tests.crashes.run_flows import BeginBackfill
from tests.crashes.stack import Stack
from tests.fakes import Script


class Tick(WatcherFlow):
    name = "tick"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.register("once", **ONCE)
        stack.register("alone", overlap="QUEUE")
        stack.at("12:00")

    def check(self, stack: Stack) -> None:
        for job_id in ("report", "once", "alone"):
            run = stack.run(job_id=job_id)
            assert run.state is RunState.SUCCEEDED
            stack.assert_attempts(run, 1)
        assert stack.job("once").state is JobState.COMPLETED


class TickOfBackfill(Flow):
    """The watcher begins the first runs; when they have ended, it continues the backfill to its
    end.
    """

    name = "tick: a backfill continues"
    until = "12:00:40"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:40")
        BeginBackfill().ask(stack.api(), stack)

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)
        stack.worker().work()
        stack.clock.advance(seconds=6)
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        BeginBackfill().check(stack)
        for time in ("09:00", "10:00", "11:00"):
            stack.assert_attempts(stack.run(time), 1)


class TickOfManyBuckets(Tick):
    """The watcher is late: it closes a bucket and moves the cursor."""

    name = "tick: a bucket is closed"
    until = "12:00:50"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        stack.at("12:00:31")

    def check(self, stack: Stack) -> None:
        super().check(stack)
        cursors = [i for i in stack.cloud.items("control") if i["id"] == "cursor#0"]
        minute = datetime.fromisoformat(cursors[0]["minute"])
        assert at("12:00") <= minute <= stack.now  # later, if more than one watcher died


class TickOfMoved(WatcherFlow):
    """The due entry was stored before new time zone rules moved its local time to 12:30."""

    name = "tick: a local time that was moved"
    until = "12:30:10"
    no_occurrences = frozenset({"12:00"})

    def prepare(self, stack: Stack) -> None:
        local = {"timezone": "Europe/Berlin", "schedule": "2026-05-24T14:30"}
        stack.register(type="ONCE", **local)
        stack.replace_fire("12:00", reading=ZoneReading("2000a", timedelta(hours=2.5)))
        stack.at("12:00")

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.SKIPPED
        run = stack.run("12:30")
        assert run.state is RunState.SUCCEEDED
        stack.assert_attempts(run, 1)
        assert stack.job().state is JobState.COMPLETED


class TickOfRetry(WatcherFlow):
    name = "tick: a retry"
    lives = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 2, "initialDelayMs": 2_000})
        stack.worker().work()
        stack.at("12:00:02")

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0)


class TakeLease(Tick):
    """The holder vanished; the standby takes over its lease and dispatches."""

    name = "watcher: takes over the lease"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        stack.at("11:59:58")
        stack.watcher().step()

    def act(self, stack: Stack) -> None:
        stack.watcher().live(4 * SECOND)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        takeover = stack.lease().takeover
        assert takeover is not None, "the lost holder is reported"
        assert takeover.taken_at - takeover.lost_at >= LIFE


class ReleaseLease(Tick):
    name = "watcher: the invocation ends"

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)


class Quarantine(WatcherFlow):
    """An entry does not decode: its chain is restored, and it is quarantined."""

    name = "watcher: an entry does not decode"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        (entry,) = stack.cloud.raw("due")
        database = stack.system.database
        database.put_item(TableName="due", Item=entry | to_item({"kind": "BROKEN"}))
        stack.at("12:00")

    def check(self, stack: Stack) -> None:
        super().check(stack)
        kept = [i for i in stack.cloud.items("due") if i["bucket"] == "quarantine"]
        assert len(kept) == 1


class Straggler(WatcherFlow):
    """An entry is in a bucket that the cursor has passed."""

    name = "watcher: a straggler"
    until = "12:00:50"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        watch(stack, "11:59:55")
        (entry,) = stack.cloud.raw("due")
        database = stack.system.database
        for name in ("bucket", "entry"):
            assert name in entry
        key: Any = {name: entry[name] for name in ("bucket", "entry")}
        database.delete_item(TableName="due", Key=key)
        moved: Any = entry | to_item({"bucket": "2026-05-24T11:57Z#000"})
        database.put_item(TableName="due", Item=moved)
        stack.at("12:00")


class CarryAlong(Flow):
    """The pool does not exist: the entry waits and is carried to the current bucket."""

    name = "watcher: a waiting entry is carried along"
    pool = GONE
    until = "12:01:30"

    def prepare(self, stack: Stack) -> None:
        stack.register(target={"handler": "report", "pool": GONE}, misfire=RUN_LATEST)
        stack.at("12:00:30")

    def act(self, stack: Stack) -> None:
        stack.pools = [POOL]
        watcher = stack.watcher()
        stack.pools = [POOL, GONE]
        watcher.step()
        stack.at("12:01:32")
        watcher.step()


class RemovedPool(Flow):
    """The pool of a retry was removed: the executor of another pool ends the run."""

    name = "tick: a retry of a removed pool"
    until = "12:01:30"

    def prepare(self, stack: Stack) -> None:
        policy = {"maxAttempts": 2, "initialDelayMs": 2_000}
        dispatch(stack, **ONCE, target={"handler": "report", "pool": GONE}, retryPolicy=policy)
        stack.pool = GONE
        stack.worker().work()
        stack.at("12:01:03")

    def act(self, stack: Stack) -> None:
        stack.pools = [POOL]
        stack.watcher().live(SECOND)
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        run = stack.run()
        assert (run.state, run.pool) == (RunState.DEAD, GONE)
        # Of an attempt whose claim had no answer, the lease expires first.
        lost = stack.cloud.died["worker"] or "worker lost" in (run.reason or "")
        assert lost or "no longer exists" in (run.reason or "")
        assert not stack.starts
        assert stack.job().state is JobState.COMPLETED
