"""What users do to jobs in a history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey
from nextfire.domain.occurrences import JobState
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.idempotent_requests import IdempotentRequest
from tests.simulation.client import Client
from tests.simulation.flow import MOST_CHANGES, TENANTS, KeyedCreation
from tests.simulation.random_jobs import random_definition, random_schedule

if TYPE_CHECKING:
    from tests.simulation.history import History


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
    keyed = KeyedCreation(name, tenant, [random_definition(history) for _ in range(2)])
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
    if history.changes[key] < MOST_CHANGES:
        history.changes[key] += 1
        change_key(history, key, {"type": "INTERVAL", "schedule": "PT10S"})


def change_when(history: History) -> None:
    key = history.any_job()
    if key is None or history.changes[key] >= MOST_CHANGES:
        return
    history.changes[key] += 1
    change_key(history, key, random_schedule(history))


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
            try:
                return JobDefinition.model_validate(definition.document() | what)
            except ValidationError as error:
                problem = str(error)
                raise InvalidInputError("job", what, problem, "Change the job.") from error

        client.jobs.change(key, edit, now=client.actor.now())

    history.request(key.tenant, f"change {key.job_id} {what}", change)


def pause(history: History) -> None:
    key = history.any_job()
    if key is None or history.changes[key] >= MOST_CHANGES:
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
    if key is None or history.changes[key] >= MOST_CHANGES:
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
    if key is None or history.changes[key] >= MOST_CHANGES:
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
