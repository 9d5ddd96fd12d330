"""What users do to runs in a history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nextfire.domain.backfill import Order
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.run import RunState
from nextfire.testing.kernel import SECOND
from nextfire.usecases.manage_backfills import BackfillRange
from tests.simulation.client import Client
from tests.simulation.flow import TENANTS, ManualRunRequest

if TYPE_CHECKING:
    from tests.simulation.history import History


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
    if key is not None:
        backfill_key(history, key, since=[60, 600, 3_600], lasting=[45, 600, 4_000])


def backfill_key(
    history: History, key: JobKey, *, since: Sequence[int], lasting: Sequence[int]
) -> None:
    """Backfill the job *key*. *since*, *lasting*: how many seconds ago the range may begin, and how
    long it may be.
    """
    dice = history.kernel.dice
    now = history.kernel.clock.now()
    first = now - timedelta(seconds=dice.choice(since))
    to = first + timedelta(seconds=dice.choice(lasting))
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
