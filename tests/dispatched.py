"""Runs that have just been sent, for tests of executors."""

from __future__ import annotations

from datetime import timedelta

from nextfire.domain.attempt import MAX_VALUE_BYTES
from nextfire.domain.job import Job
from nextfire.domain.log import decode_part, part_name
from nextfire.domain.run import Run
from tests.builders import a_message
from tests.world import World

FAILS = {"exit_code": 1}
VANISHES = {"lasts": timedelta(minutes=2), "frozen": True}
"""Script and supervisor freeze for longer than the lease."""
TOO_LARGE = b"1" * (MAX_VALUE_BYTES + 1)
NOON_ONLY = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


def dispatched(world: World, **fields: object) -> Job:
    """A job whose run of 12:00 has just been sent."""
    job = world.register(**fields)  # type: ignore[arg-type] # any field of a definition
    world.tick_at("12:00")
    return job


def outcomes(run: Run) -> list[tuple[int, str, str | None]]:
    return [(a.number, a.worker, a.outcome) for a in run.attempts]


def redeliver(world: World, dispatch: int = 1) -> None:
    """Deliver another message of the run of 12:00."""
    run = world.queue.log[0].key
    body = a_message(run, dispatch=dispatch).encode()
    world.queue.queues["default"].send(body, group="again", dedup=f"again {dispatch}")


def die(world: World, **fields: object) -> Job:
    job = dispatched(world, retryPolicy={"maxAttempts": 1}, **fields)
    world.script(**FAILS)
    world.worker().work_one()
    return job


def log(world: World, run: Run) -> list[str]:
    found = []
    for number, attempt in enumerate(run.attempts):
        for part in range(attempt.log_parts):
            data = world.files.get(run.folder_of(run.attempts[number]), part_name(number + 1, part))
            assert data is not None
            found += [f"{attempt.number} {line.text}" for line in decode_part(data)]
    return found
