"""What happens to processes, AWS and stored data in a history."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from nextfire.domain.due import FireEntry, Slot, bucket_name
from nextfire.domain.instants import floor_minute, to_ms
from nextfire.testing.kernel import SECOND

if TYPE_CHECKING:
    from tests.simulation.history import History


# Processes


def kill(history: History) -> None:
    processes = history.system.processes
    if processes:
        history.kernel.dice.choice(processes).kill()


def kill_soon(history: History) -> None:
    """A process dies within its next steps."""
    processes = history.system.processes
    if processes:
        history.kernel.dice.choice(processes).dies_in = history.kernel.dice.randrange(12)


def terminate_worker(history: History) -> None:
    """SIGTERM, then SIGKILL after 30 s."""
    workers = [each for each in history.system.processes if each in history.system.workers]
    if not workers:
        return
    worker = history.kernel.dice.choice(workers)
    worker.stop()
    history.kernel.log(worker.name, "gets SIGTERM")
    history.later(timedelta(seconds=30), worker.kill)


def clock_step(history: History) -> None:
    """A machine's clock is adjusted to within a second of the true time."""
    processes = history.system.processes
    if processes:
        actor = history.kernel.dice.choice(processes)
        actor.skew = timedelta(microseconds=history.kernel.dice.randint(-SECOND, SECOND))
        history.kernel.log(actor.name, f"clock is {actor.skew.total_seconds():+.3f} s off")


# EventBridge, and outages


def invoke_watcher_twice(history: History) -> None:
    group = history.kernel.dice.randrange(history.system.setting.groups)
    history.system.invoke_watcher(group)


def skip_minutes(history: History) -> None:
    """EventBridge invokes no watcher for a while; running processes continue."""
    history.outage(timers=True, seconds=history.kernel.dice.choice([60, 120, 200]))


def dispatch_outage(history: History) -> None:
    """No watcher runs for a long time."""
    for watcher in history.system.watchers:
        watcher.kill()
    history.outage(timers=True, seconds=history.kernel.dice.choice([90, 400, 1_500]))


def worker_outage(history: History) -> None:
    for worker in history.system.workers:
        worker.kill()
    history.outage(workers=True, seconds=history.kernel.dice.choice([20, 100, 500, 1_200]))


def black_out(history: History) -> None:
    """No process runs."""
    for process in history.system.processes:
        process.kill()
    seconds = history.kernel.dice.choice([100, 700, 2_400])
    history.outage(timers=True, workers=True, seconds=seconds)


def storm(history: History) -> None:
    """AWS calls fail more often for a while."""
    dice, weather = history.kernel.dice, history.weather
    kind = dice.choice(["refused", "unanswered", "unsent", "partial", "stale", "slow"])
    odds = (
        dice.choice([0.1, 0.3, 0.6]) if kind in {"partial", "stale"} else dice.choice([0.05, 0.2])
    )
    setattr(weather, kind, odds)
    history.kernel.log("weather", f"{kind} {odds}")
    history.later(timedelta(seconds=dice.choice([2, 10, 60])), lambda: calm(history))


def calm(history: History) -> None:
    history.weather.clear()
    history.kernel.log("weather", "calm")


# Undecodable data


def spoil_job(history: History) -> None:
    """A job's item does not decode for a while."""
    key = history.any_job()
    if key is None:
        return
    jobs = history.stores.jobs
    history.unreadable.add(key)
    history.kernel.log("operator", f"spoils {key.job_id}")
    jobs.spoil(key)
    history.later(
        timedelta(seconds=history.kernel.dice.choice([3, 40, 100])), lambda: jobs.repair(key)
    )


def junk_entry(history: History) -> None:
    """An undecodable item in the due table, new or in place of a FIRE entry."""
    dice, due = history.kernel.dice, history.stores.due
    now = history.kernel.clock.now()
    soon = now + timedelta(minutes=2)
    fires = [e for e in due.entries if isinstance(e, FireEntry) and e.at < soon]
    if fires and dice.random() < 0.5:
        entry = dice.choice(fires)
        (slot, *_) = [slot for slot, item in due.items.items() if item is entry]
        history.monitor.tampered.add(entry.job)
        history.kernel.log("operator", f"spoils the entry {entry.sort_key}")
        due.spoil(slot, tenant=entry.job.tenant, job_id=entry.job.job_id)
        return
    history.junk_entries += 1
    at = now + timedelta(seconds=dice.choice([-100, -1, 1, 50]))
    bucket = bucket_name(floor_minute(max(at, now)), dice.randrange(history.system.setting.shards))
    key = dice.choice([f"{to_ms(at):013d}#junk", f"{to_ms(at):013d}#{history.junk_entries}", "x"])
    slot = Slot(bucket, key)
    if slot in due.items:
        history.junk_entries -= 1
        return
    history.kernel.log("operator", f"puts junk into {bucket} {key}")
    due.spoil(slot, nonsense="yes")


def junk_message(history: History) -> None:
    """A message that does not decode."""
    history.junk_messages += 1
    body = f"junk {history.junk_messages}"
    history.kernel.log("operator", f"sends {body!r}")
    history.stores.queue.queues["default"].send(body, group=body, dedup=body)


def doubled_message(history: History) -> None:
    """An accepted message is delivered again, past the queue's deduplication."""
    log = history.stores.queue.log
    if not log:
        return
    message = history.kernel.dice.choice(log[-20:])
    history.copies += 1
    history.kernel.log("operator", f"doubles {message.key.execution_id} d{message.dispatch}")
    history.stores.queue.queues["default"].send(
        message.encode(),
        group=message.group,
        dedup=f"copy {history.copies}",
    )


def remove_pool(history: History) -> None:
    """A deployment without the pool `batch`; another one brings it back. In between, processes with
    either setting run at the same time.
    """
    system, dice = history.system, history.kernel.dice
    with_all, without = history.all_pools, replace(history.all_pools, names=frozenset({"default"}))
    history.kernel.log("operator", "removes the pool batch")
    system.pools = without

    def bring_back() -> None:
        history.kernel.log("operator", "adds the pool batch")
        system.pools = with_all

    history.later(timedelta(seconds=dice.choice([20, 150, 300])), bring_back)
    history.patience = timedelta(seconds=dice.choice([0, 60, 200]))


def audit(history: History) -> None:
    history.system.invoke_auditor(restart=history.kernel.dice.random() < 0.5)
