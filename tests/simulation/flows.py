"""What users and the environment do to the system in a history. `FLOWS` lists the flows.

A flow is a function of the history that begins at a random moment. Its API requests go through
`History.request`: each is a separate process, interleaved with all others at each port call, and
may die like them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from nextfire.domain.backfill import Order
from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import FireEntry, Slot, bucket_name
from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import floor_minute, to_ms
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.testing.kernel import SECOND
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.manage_backfills import BackfillRange
from tests.simulation.system import Client
from tests.simulation.vandals import vandal

if TYPE_CHECKING:
    from tests.simulation.history import History

REFUSALS = (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
"""Errors that the API may raise to a caller."""

TENANTS = ("acme", "bolt")
_MOST_CHANGES = 12
"""Changes of a schedule in one history: more than the eight versions that a job remembers."""


@dataclass(frozen=True, slots=True)
class Flow:
    """`weight`: its frequency relative to the others."""

    name: str
    weight: int
    begin: Callable[[History], None]


@dataclass(slots=True)
class ManualRunRequest:
    """A manual run, requested once or more. `answers`: the execution ids returned; `requests`: the
    request tokens used.
    """

    job: JobKey
    payload: str | None
    requests: set[str] = field(default_factory=set)
    answers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class KeyedCreation:
    """A job created under an idempotency key, in any number of requests. `bodies`: the two request
    bodies; `uids`: the uids used; `answers`: by index of the body.
    """

    name: str
    tenant: str
    bodies: list[JobDefinition]
    uids: set[str] = field(default_factory=set)
    answers: dict[int, list[str]] = field(default_factory=lambda: {0: [], 1: []})


# Jobs


def register(history: History) -> None:
    dice = history.kernel.dice
    history.register(JobKey(dice.choice(TENANTS), f"job{dice.randrange(3)}"))


def create_once(history: History) -> None:
    """A client creates a job under an idempotency key and repeats the request: immediately, soon,
    much later; with or without an answer; whatever happened to the job. Another request uses the
    key with another body.
    """
    dice = history.kernel.dice
    tenant, name = dice.choice(TENANTS), f"key {len(history.keyed)}"
    job_id = dice.choice([None, *(f"job{number}" for number in range(4))])
    keyed = KeyedCreation(name, tenant, [history.a_definition() for _ in range(2)])
    history.keyed.append(keyed)

    def ask(client: Client, body: int) -> None:
        def do(asked: IdempotentRequest) -> str:
            keyed.uids.add(asked.token("uid"))
            key = JobKey(tenant, job_id or f"job_{asked.token('job')}")
            job = client.jobs.register(
                key,
                keyed.bodies[body],
                uid=asked.token("uid"),
                now=client.actor.now(),
                asked=asked,
            )
            history.monitor.acknowledged(job)
            return f"{job.key.job_id} {job.uid}, created by {client.actor.name}"

        keyed.answers[body].append(client.once(name, str(body), do))

    def ask_again(body: int = 0) -> None:
        request = f"{name}: create {job_id} {keyed.bodies[body].document()}"
        history.request(tenant, request, lambda client: ask(client, body))

    def gone() -> None:
        """Delete the job; another job may take its id for a while."""
        for key in [key for key, uid in history.ever if uid in keyed.uids]:
            delete_key(history, key)
            if dice.random() < 0.5:
                again = timedelta(seconds=dice.choice([2, 70]))
                history.later(again, partial(history.register, key))
                history.later(again + timedelta(seconds=20), partial(delete_key, history, key))

    ask_again()
    for seconds in (0, dice.choice([0, 0.02, 1, 5]), 12, dice.choice([100, 200, 1_500])):
        if dice.random() < 0.7:
            history.later(timedelta(seconds=seconds), ask_again)
    if dice.random() < 0.5:
        seconds = dice.choice([0, 0.02, 3, 100])
        history.later(timedelta(seconds=seconds), lambda: ask_again(1))
    if dice.random() < 0.5:
        history.later(timedelta(seconds=dice.choice([0.3, 2, 8])), gone)


def crowd(history: History) -> None:
    """Jobs of a tenant with a job quota are created and deleted concurrently."""
    dice = history.kernel.dice

    def come(key: JobKey) -> None:
        # Some of them end soon.
        history.register(key, dice.choice([None, {"type": "DELAY", "schedule": "PT2S"}]))

    for _ in range(dice.randint(3, 6)):
        key = JobKey(TENANTS[0], f"job{dice.randrange(4)}")
        actions: list[Callable[[JobKey], None]] = [
            come,
            come,
            partial(delete_key, history),
            partial(_revive, history),
        ]
        action = dice.choice(actions)
        seconds = dice.choice([0, 0, 0.02, 3])
        history.later(timedelta(seconds=seconds), partial(action, key))


def _revive(history: History, key: JobKey) -> None:
    """Make it fire again, even if it has ended."""
    if history.changes[key] < _MOST_CHANGES:
        history.changes[key] += 1
        change_key(history, key, {"type": "INTERVAL", "schedule": "PT10S"})


def change_when(history: History) -> None:
    key = history.any_job()
    if key is None or history.changes[key] >= _MOST_CHANGES:
        return
    history.changes[key] += 1
    change_key(history, key, history.a_schedule())


def change_what(history: History) -> None:
    """Change parts of a definition other than its schedule."""
    key = history.any_job()
    if key is None:
        return
    dice = history.kernel.dice
    what: dict[str, Any] = dice.choice(
        [
            {"timeoutSec": dice.randint(30, 200)},
            {"overlap": dice.choice(["ALLOW", "QUEUE", "SKIP", "REPLACE"])},
            {"priority": dice.choice(["LOW", "NORMAL", "HIGH"])},
            {"target": {"handler": "report", "pool": dice.choice(["default", "batch"])}},
            {"misfire": {"policy": dice.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}},
        ]
    )
    change_key(history, key, what)


def change_key(history: History, key: JobKey, what: dict[str, Any]) -> None:
    def change(client: Client) -> None:
        def edit(definition: JobDefinition) -> JobDefinition:
            return JobDefinition.model_validate(definition.document() | what)

        client.jobs.change(key, edit, now=client.actor.now())

    history.request(key.tenant, f"change {key.job_id} {what}", change)


def pause(history: History) -> None:
    key = history.any_job()
    if key is None or history.changes[key] >= _MOST_CHANGES:
        return
    history.changes[key] += 1
    history.request(
        key.tenant,
        f"pause {key.job_id}",
        lambda client: client.jobs.pause(key, "a reason", now=client.actor.now()),
    )


def pause_until(history: History) -> None:
    """The job resumes by itself unless a request resumes it earlier."""
    key = history.any_job()
    if key is None or history.changes[key] >= _MOST_CHANGES:
        return
    history.changes[key] += 1
    pause_for = timedelta(seconds=history.kernel.dice.choice([1, 5, 40, 130, 900]))

    def ask(client: Client) -> None:
        now = client.actor.now()
        client.jobs.pause(key, None, now=now, until=now + pause_for)

    history.request(key.tenant, f"pause {key.job_id} for {pause_for}", ask)


def drain(history: History) -> None:
    """Drain a job and check from time to time whether it has drained."""
    key = history.any_job()
    if key is None or history.changes[key] >= _MOST_CHANGES:
        return
    history.changes[key] += 1

    def ask(client: Client) -> None:
        client.jobs.drain(key, None, now=client.actor.now())

    def see(client: Client) -> None:
        job = client.jobs.get(key)
        asked = job.state is JobState.PAUSED and job.drain_asked_at is not None
        if asked and not has_outstanding(client.runs_port, job, client.actor.now()):
            history.drained.append((job, history.kernel.clock.now()))

    history.request(key.tenant, f"drain {key.job_id}", ask)
    for seconds in (1, 20, 90, history.kernel.dice.choice([5, 300])):
        history.later(
            timedelta(seconds=seconds),
            lambda: history.request(key.tenant, f"has {key.job_id} drained?", see),
        )


def resume(history: History) -> None:
    key = history.any_job()
    if key is not None:
        history.request(
            key.tenant,
            f"resume {key.job_id}",
            lambda client: client.jobs.resume(key, now=client.actor.now()),
        )


def delete(history: History) -> None:
    key = history.any_job()
    if key is not None:
        delete_key(history, key)


def delete_key(history: History, key: JobKey) -> None:
    history.request(
        key.tenant,
        f"delete {key.job_id}",
        lambda client: client.jobs.delete(key, now=client.actor.now()),
    )


# Runs


def cancel(history: History) -> None:
    key = history.any_run(RunState.PENDING, RunState.RUNNING) or history.recent_run()
    if key is None:
        return

    def ask(client: Client) -> None:
        history.asked_to_cancel.add(key)
        run = client.runs.cancel(key, "enough")
        history.cancelled.setdefault(key, len(run.attempts))

    history.request(key.job.tenant, f"cancel {key.execution_id}", ask)


def redrive(history: History) -> None:
    key = history.any_run(RunState.DEAD)
    if key is None:
        return

    def ask(client: Client) -> None:
        run = client.runs.redrive(key, None)
        history.redriven[key] = max(run.dispatch, history.redriven.get(key, 0))

    history.request(key.job.tenant, f"redrive {key.execution_id}", ask)


def redrive_pool(history: History) -> None:
    """Redrive everything that died in the last hour."""
    tenant = history.kernel.dice.choice(TENANTS)

    def ask(client: Client) -> None:
        now = client.actor.now()
        done = client.runs.redrive_dead(
            tenant,
            "default",
            first=now - timedelta(hours=1),
            last=now,
            cursor=None,
            limit=10,
            reason=None,
            until=now + timedelta(seconds=15),
        )
        for key in done.redriven:
            history.redriven.setdefault(key, 0)

    history.request(tenant, f"redrive {tenant}'s dead", ask)


def run_now(history: History) -> None:
    key = history.any_job()
    if key is not None:
        run_key_now(history, key)


def burst(history: History) -> None:
    """Request many runs at once, more than may be sent within a minute, while watchers die."""
    keys = [key for key in history.stores.jobs.items if key.tenant == TENANTS[0]]
    dice = history.kernel.dice
    for _ in range(dice.randint(4, 12) if keys else 0):
        run_key_now(history, dice.choice(keys))
    for seconds in dice.sample(range(2, 70), dice.choice([0, 1, 3])):
        history.later(timedelta(seconds=seconds), lambda: _end_watchers(history))


def _end_watchers(history: History) -> None:
    """Others take over at once, by the next minute, or when the lease has expired."""
    for watcher in history.system.watchers:
        watcher.kill()
    if history.system.timers:
        for group in range(history.system.setting.groups):
            history.system.invoke_watcher(group)


def run_key_now(history: History, key: JobKey) -> None:
    """Request a run and repeat the request until there is an answer; under an idempotency key,
    repeat it after the answer, too.
    """
    dice = history.kernel.dice
    history.asked.append(asked := ManualRunRequest(key, dice.choice([None, None, '{"a":1}'])))
    request, asked_at = f"request {len(history.asked)}", history.kernel.clock.now()
    keyed = dice.random() < 0.5
    asked_at += timedelta(microseconds=dice.randint(-SECOND, SECOND))
    occurrence = history.recent_run(key)
    if occurrence is not None and dice.random() < 0.4:
        # In the same millisecond: the manual run must not take the place of the occurrence.
        asked_at = min(asked_at, occurrence.scheduled_at)

    def do(client: Client, request: str, asked_at: datetime) -> str:
        asked.requests.add(request)
        run = client.request_runs.run_now(
            key, payload=asked.payload, reason=None, request=request, asked_at=asked_at
        )
        return run.key.execution_id

    def ask(client: Client) -> None:
        if not keyed:
            asked.answers.append(do(client, request, asked_at))
            return
        asked.answers.append(
            client.once(request, f"run {key}", lambda once: do(client, once.token("run"), once.at))
        )

    def ask_again() -> None:
        if keyed or not asked.answers:
            history.request(key.tenant, f"{request}: run {key.job_id} now", ask)

    ask_again()
    for seconds in (dice.choice([0, 1, 5]), 12):
        history.later(timedelta(seconds=seconds), ask_again)


def skip_next(history: History) -> None:
    """Skip the next occurrence, and perhaps undo it."""
    key = history.any_job()
    if key is None:
        return

    def ask(client: Client) -> None:
        history.asked_to_skip.add(key)
        job = client.skips.skip_next(key, None)
        skipped = [at for at in job.skips if at > client.actor.now() - timedelta(minutes=1)]
        history.skipped.update(RunKey(key, run_id(job.uid, at)) for at in skipped[-1:])

    def undo(client: Client) -> None:
        # It may undo a skip that another request is just making.
        history.asked_to_unskip.add(key)
        client.skips.unskip(key)

    history.request(key.tenant, f"skip the next of {key.job_id}", ask)
    if history.kernel.dice.random() < 0.5:
        seconds = history.kernel.dice.choice([1, 4, 30])
        history.later(
            timedelta(seconds=seconds),
            lambda: history.request(key.tenant, f"undo the skip of {key.job_id}", undo),
        )


def backfill(history: History) -> None:
    """Backfill a range before the job existed, or one that it did not run; perhaps stop the
    backfill.
    """
    key = history.any_job()
    if key is None:
        return
    dice = history.kernel.dice
    now = history.kernel.clock.now()
    first = now - timedelta(seconds=dice.choice([60, 600, 3_600]))
    to = first + timedelta(seconds=dice.choice([45, 600, 4_000]))
    wanted = BackfillRange(first, to, order=dice.choice([*Order]))
    name = f"backfill{len(history.backfills)}"
    history.backfills[name] = None

    def ask(client: Client) -> None:
        history.backfills[name], _ = client.backfills.begin(
            key, wanted, backfill_id=name, asked_at=now, now=client.actor.now()
        )

    def stop(client: Client) -> None:
        client.backfills.stop(key, now=client.actor.now())

    history.request(key.tenant, f"{name} of {key.job_id} from {first} to {to}", ask)
    if dice.random() < 0.3:
        seconds = dice.choice([1, 8, 40])
        history.later(
            timedelta(seconds=seconds),
            lambda: history.request(key.tenant, f"stop the backfill of {key.job_id}", stop),
        )


def look(history: History) -> None:
    """Reading changes nothing."""
    key = history.any_run(*RunState) or history.recent_run()
    if key is not None:
        history.request(
            key.job.tenant, f"find {key.execution_id}", lambda client: client.find_run.find(key)
        )


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


FLOWS = [
    Flow("register", 6, register),
    Flow("create once", 4, create_once),
    Flow("crowd", 2, crowd),
    Flow("change when", 6, change_when),
    Flow("change what", 3, change_what),
    Flow("pause", 4, pause),
    Flow("pause until", 5, pause_until),
    Flow("drain", 4, drain),
    Flow("resume", 4, resume),
    Flow("delete", 1, delete),
    Flow("cancel", 8, cancel),
    Flow("redrive", 6, redrive),
    Flow("redrive a pool", 1, redrive_pool),
    Flow("run now", 6, run_now),
    Flow("burst", 2, burst),
    Flow("skip next", 5, skip_next),
    Flow("backfill", 5, backfill),
    Flow("look", 1, look),
    Flow("kill", 5, kill),
    Flow("kill soon", 10, kill_soon),
    Flow("terminate a worker", 3, terminate_worker),
    Flow("clock step", 2, clock_step),
    Flow("invoke a watcher twice", 2, invoke_watcher_twice),
    Flow("skip minutes", 1, skip_minutes),
    Flow("outage of watchers", 2, dispatch_outage),
    Flow("outage of workers", 2, worker_outage),
    Flow("black-out", 1, black_out),
    Flow("storm", 8, storm),
    Flow("calm", 4, calm),
    Flow("spoil a job", 1, spoil_job),
    Flow("junk entry", 1, junk_entry),
    Flow("junk message", 1, junk_message),
    Flow("doubled message", 2, doubled_message),
    Flow("vandal", 4, vandal),
    Flow("audit", 1, audit),
]

REMOVE_POOL = Flow("remove a pool", 12, remove_pool)
"""In some histories only: another flow in all of them would change the course of each seed."""
