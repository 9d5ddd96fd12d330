"""Random histories of jobs, watchers and workers: whatever happens, every occurrence is accounted
for once it has quietened down.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job, JobState
from nextfire.domain.run import RunState
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import Dispatch
from tests.accounting import assert_all_accounted, evidence_of, settle
from tests.crons import LONG
from tests.fakes import InlineExecutor, Killed, LateExecutor
from tests.judgement import Evidence
from tests.world import World

SEEDS = 1_500 if LONG else 10
STEPS = 40

SCHEDULES: list[dict[str, Any]] = [
    {"type": "CRON", "schedule": "* * * * *"},
    {"type": "CRON", "schedule": "*/5 * * * *"},
    {"type": "CRON", "schedule": "7 * * * *"},
    {"type": "CRON", "schedule": "30 13 * * *", "timezone": "Europe/Berlin"},
    {"type": "INTERVAL", "schedule": "PT10S"},
    {"type": "INTERVAL", "schedule": "PT45S"},
    {"type": "INTERVAL", "schedule": "PT7M"},
    {"type": "ONCE", "schedule": "2026-05-24T13:00:00Z"},
    {"type": "DELAY", "schedule": "PT20M"},
    {
        "type": "DATES",
        "schedule": [f"2026-05-24T{h}:{m}:00Z" for h in range(12, 20) for m in (10, 11, 40)],
    },
]
CALLS = [
    *("jobs.get_many", "jobs.get", "jobs.complete", "due.put", "due.delete", "due.read"),
    *("queue.send", "queue.backlog", "runs.skip", "runs.between", "runs.stop", "runs.claim"),
    *("runs.advance", "control.move_cursor", "dead_letters.put", "runs.extend", "runs.peek"),
    *(
        "runs.mark_death_published",
        "runs.redrive",
        "runs.save",
        "runs.get",
        "events.put",
        "files.put",
    ),
]


def maybe(random: random.Random, odds: float, **fields: Any) -> dict[str, Any]:
    return fields if random.random() < odds else {}


@dataclass
class History:
    """What happens to a world by the dice of *seed*."""

    seed: int
    told: list[str] = field(default_factory=list)
    cancelled: dict[RunKey, int] = field(default_factory=dict)
    """The runs whose cancelling was answered, with the attempts that they had by then."""
    held_up: dict[datetime, datetime] = field(default_factory=dict)
    """When something that took its time happened amid what a watcher did: by its end, its
    beginning.
    """

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 — no secret
        executor = self.random.choice([InlineExecutor(), LateExecutor()])
        self.world = World("11:59", executor=executor, shards=self.random.choice([1, 1, 3]))
        if self.random.random() < 0.3:
            self.world.shares = Shares(backlogs={"default": self.random.choice([1, 3, 10])})
            self.world.new_watcher()
        self.jobs = [self.register(n) for n in range(self.random.choice([1, 1, 2, 4]))]
        self.others: list[Dispatch] = []
        self.world.tick()  # the cursors are there; the API sees to that

    def definition(self) -> dict[str, Any]:
        """Of a job that may do anything."""
        rng = self.random
        misfire: dict[str, Any] = {"policy": rng.choice(["RUN_ALL", "RUN_LATEST", "SKIP"])}
        misfire |= maybe(rng, 0.25, relevancyWindowSec=rng.choice([5, 90, 1_800]))
        fields = rng.choice(SCHEDULES) | {"misfire": misfire}
        fields |= maybe(rng, 0.5, overlap=rng.choice(["QUEUE", "SKIP", "REPLACE"]))
        fields |= maybe(rng, 0.3, jitterSec=rng.choice([5, 50, 400]))
        fields |= maybe(rng, 0.2, maxRuns=rng.choice([1, 2, 7, 60]))
        fields |= maybe(rng, 0.2, endAt=f"2026-05-24T{rng.choice([12, 13, 15, 18])}:33:00Z")
        policy: dict[str, Any] = {"maxAttempts": rng.choice([1, 2, 3]), "initialDelayMs": 5_000}
        policy |= maybe(rng, 0.3, retryOn={"states": ["FAILED"]})
        policy |= maybe(rng, 0.3, jitter="FULL")
        fields |= maybe(rng, 0.5, retryPolicy=policy)
        return fields

    def register(self, number: int) -> Job:
        while True:
            fields = self.definition()
            try:
                job = self.world.register(f"job{number}", **fields)
            except InvalidInputError:
                continue  # it would never fire
            self.told.append(f"register {fields}")
            return job

    def any_job(self) -> Job:
        return self.random.choice(self.jobs)

    # What may happen

    def moments(self) -> None:
        self.world.advance(seconds=self.random.choice([0.5, 0.5, 2, 9, 31, 61, 100]))

    def outage(self) -> None:
        self.world.advance(minutes=self.random.choice([2, 10, 45, 180 if LONG else 20]))

    def watch(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            self.tick()
            self.world.advance(seconds=self.random.choice([0.5, 1, 6, 20]))

    def tick(self) -> None:
        try:
            self.world.tick()
        except UnavailableError:
            self.told.append("  unavailable")

    def work(self) -> None:
        for _ in range(self.random.randint(0, 6)):
            rng = self.random
            self.world.runner.scripts.clear()
            self.world.script(
                exit_code=rng.choice([0, 0, 0, 1, 1]),
                lasts=timedelta(seconds=rng.choice([0, 0, 3, 25, 90])),
                frozen=rng.random() < 0.1,
                saves=rng.choice([None, b"1"]),
                meanwhile=rng.choice([lambda: None] * 5 + [self.cancel]),
            )
            worker = self.world.worker(rng.choice("ab"))
            delivery = worker.receive()
            if delivery is None:
                return
            try:
                worker.handle(delivery, rng.choice([lambda: False] * 5 + [lambda: True]))
            except UnavailableError:
                self.told.append("  unavailable")

    def faulty(self, act: Callable[[], None]) -> None:
        """Do *act* while something goes wrong."""
        rng, faults = self.random, self.world.faults
        fault = rng.choice(["kill", "kill", "refuse", "lose"])
        if fault == "kill":
            calls = rng.randint(0, 14)
            self.told.append(f"  dies after {calls}")
            faults.kill_after(calls)
        else:
            call, times = rng.choice(CALLS), rng.choice([1, 1, 3])
            self.told.append(f"  {fault} {call} {times}")
            (faults.refuse if fault == "refuse" else faults.lose_answer)(call, times)
        try:
            act()
        except Killed:
            self.told.append("  died")
            faults.clear()
            if act == self.watch:
                self.world.new_watcher()
        finally:
            faults.clear()

    def faulty_watch(self) -> None:
        self.faulty(self.watch)

    def faulty_work(self) -> None:
        self.faulty(self.work)

    def hand_over(self) -> None:
        """A new watcher; the former one still believes it is the holder."""
        self.others = [self.world.watcher]
        self.world.new_watcher()

    def two_watch(self) -> None:
        """Two holders for a moment, each at its own pace."""
        both = [*self.others, self.world.watcher]
        for _ in range(self.random.randint(2, 8)):
            watcher = self.random.choice(both)
            try:
                if self.random.random() < 0.5:
                    watcher.poll(self.world.now)
                else:
                    watcher.release(self.world.now)
            except UnavailableError:
                self.told.append("  unavailable")

    def deletes_fail(self) -> None:
        """For less than it takes until an entry that has been dispatched counts as missed."""
        self.world.due.deletes = False
        for _ in range(self.random.randint(1, 5)):
            self.tick()
            self.world.advance(seconds=6)
        self.world.due.deletes = True
        self.tick()
        self.world.advance(seconds=6)
        self.tick()

    def manage(self) -> None:
        job, rng = self.any_job(), self.random
        acts: list[Callable[[], object]] = [
            lambda: self.world.pause(job, "a reason"),
            lambda: self.world.pause(job),
            lambda: self.world.resume(job),
            lambda: self.world.resume(job),
            lambda: self.world.change(job, **rng.choice(SCHEDULES)),
            lambda: self.world.change(job, timeoutSec=rng.randint(100, 200)),
        ]
        if rng.random() < 0.1:
            acts = [lambda: self.world.delete(job)]
        try:
            rng.choice(acts)()
        except (ConflictError, InvalidInputError, NotFoundError) as error:
            self.told.append(f"  {type(error).__name__}")

    def any_run(self, *states: RunState) -> RunKey | None:
        found = [key for key, run in self.world.runs.all.items() if run.state in states]
        return self.random.choice(found) if found else None

    def cancel(self) -> None:
        key = self.any_run(RunState.PENDING, RunState.RUNNING)
        if key is None:
            key = run_key_of(self.any_job(), self.world.now - timedelta(minutes=1))
        try:
            run = self.world.manage_runs.cancel(key, "enough")
        except (ConflictError, NotFoundError, UnavailableError) as error:
            self.told.append(f"  {type(error).__name__}")
        else:
            self.told.append(f"  cancelled {key.execution_id}: {run.state}")
            self.cancelled.setdefault(key, len(run.attempts))

    def redrive(self) -> None:
        key = self.any_run(RunState.DEAD)
        if key is None:
            return
        try:
            self.world.manage_runs.redrive(key, None)
        except (ConflictError, NotFoundError, UnavailableError) as error:
            self.told.append(f"  {type(error).__name__}")
        else:
            self.told.append(f"  redriven {key.execution_id}")

    def assert_cancelled(self) -> None:
        """What was cancelled was not tried again. It may have done well before that was seen."""
        for key, attempts in self.cancelled.items():
            run = self.world.runs.all[key]
            assert run.state in {RunState.CANCELLED, RunState.SUCCEEDED}, key.execution_id
            assert len(run.attempts) <= attempts, f"{key.execution_id} was tried again"

    def rival(self) -> None:
        """A former holder that does not know it yet."""
        watcher = self.world.dispatcher(0)
        with suppress(UnavailableError):
            watcher.poll(self.world.now)
            watcher.release(self.world.now)

    def meddle(self) -> None:
        """Something else happens amid what a watcher or a worker does."""
        act = self.random.choice(
            [self.manage, self.manage, self.work, self.rival, self.cancel, self.redrive]
        )
        self.told.append(f"  {act.__name__}")

        def amid() -> None:
            began_at = self.world.now
            act()
            self.held_up[self.world.now] = began_at

        self.world.faults.once_before(self.random.choice(CALLS), amid)
        self.random.choice([self.watch, self.work])()
        self.world.faults.clear()

    def play(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self.moments: 6,
            self.outage: 2,
            self.watch: 8,
            self.work: 8,
            self.faulty_watch: 5,
            self.faulty_work: 3,
            self.hand_over: 1,
            self.two_watch: 2,
            self.deletes_fail: 1,
            self.manage: 3,
            self.meddle: 3,
            self.cancel: 2,
            self.redrive: 3,
        }
        for _ in range(STEPS):
            (act,) = self.random.choices([*acts], [*acts.values()])
            self.told.append(f"{self.world.now:%H:%M:%S} {act.__name__}")
            act()
        self.told.append(f"{self.world.now:%H:%M:%S} quiet")
        for job in self.jobs:
            if self.world.job(job.key).state is JobState.PAUSED:
                self.world.resume(job)
        self.world.runner.scripts.clear()
        self.world.new_watcher()
        settle(self.world, step=timedelta(seconds=2))
        for job in self.jobs:
            assert_all_accounted(self.world, job, picked_up_late=True, evidence=self.evidence(job))
        self.assert_cancelled()

    def evidence(self, job: Job) -> Evidence:
        """What is known of *job*: what was held up had been decided before."""
        known = evidence_of(self.world, job)
        decided = {key: self.held_up[at] for key, at in known.sent.items() if at in self.held_up}
        return replace(known, decided=decided)


def run_key_of(job: Job, until: datetime) -> RunKey:
    """The run of an occurrence of *job* up to *until*, or of one that is none."""
    at = next((each.occurrence.at for each in job.upcoming(until - timedelta(minutes=9), 1)), until)
    return RunKey(job.key, run_id(job.uid, at))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_every_occurrence_is_accounted_for(seed: int) -> None:
    history = History(seed)
    try:
        history.play()
    except BaseException as error:
        error.add_note("\n".join(history.told))
        raise
