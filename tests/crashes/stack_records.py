"""The records of a history of the system on moto, and what must hold for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from time_machine import Traveller

from nextfire.adapters.dynamodb.control_items import decode_lease
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.domain.due import StoredEntry
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import JobKey, RunKey, dedup_id
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.targets.http.messages import Request, Response
from tests.accounting import assert_all_accounted_for, format_time
from tests.builders import at, job_key
from tests.callbacks import response
from tests.crashes.adapters import Adapters
from tests.crashes.cloud import Cloud
from tests.crashes.names import DEAD_LETTERS, GONE, LISTENER, POOL, QUEUE
from tests.crashes.process import Process
from tests.fakes import Clock, Script
from tests.integration.deployment import Answer, Deployment
from tests.snapshot import Records, Snapshot

_COUNT = "#"
_LIVING = {JobState.ACTIVE.value, JobState.PAUSED.value}


class TravelClock(Clock):
    """A clock that also moves the machine's clock, and so moto's."""

    def __init__(self, traveller: Traveller, start: datetime) -> None:
        super().__init__(start)
        self._traveller = traveller

    def move_to(self, at: datetime) -> datetime:
        self._traveller.move_to(at)
        return super().move_to(at)


@dataclass
class StackRecords:
    """What a history of a system has, records and remembers.

    `job_role`: the executors have a role for scripts; `pool`: the pool of the executors; `quotas`:
    the quotas of the tenants; `pools`: those that watchers know; `counted`: processes created from
    now on may die.

    `respond`: the response of the receiver of callbacks to a request and its number, from 1; raises
    CallFailedError if it sends none; `sent`: the headers of these requests.

    `answered`: the answer to the flow's caller, None before it; `answers`: the API handler's
    answers to the flow's requests; `audited`: its audit events for changes; `meanwhile`: called
    once while the next script runs; `starts`: starts of scripts by execution; `saved`: the
    checkpoints whose save was acknowledged.
    """

    system: Deployment
    cloud: Cloud
    clock: TravelClock
    script: Callable[[ScriptCall], Script]
    job_role: bool = False
    pool: str = POOL
    quotas: TenantQuotas = NO_QUOTAS
    pools: Collection[str] = (POOL, GONE)
    counted: bool = False
    answered: object = None
    answers: list[Answer] = field(default_factory=list)
    audited: list[dict[str, Any]] = field(default_factory=list)
    starts_at_answer: int = 0
    meanwhile: Callable[[], object] | None = None
    starts: Counter[str] = field(default_factory=Counter)
    saved: dict[str, bytes] = field(default_factory=dict)
    respond: Callable[[Request, int], Response] = lambda *_: response()
    sent: list[Mapping[str, str]] = field(default_factory=list)
    _ended: dict[RunKey, Run] = field(default_factory=dict)
    _read: tuple[list[Item], dict[RunKey, Run]] = field(default_factory=lambda: ([], {}))
    names: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self._adapters = Adapters(self, Process(self.cloud, "test", counted=False))
        self.jobs, self.runs = self._adapters.jobs, self._adapters.runs
        self.due, self.endpoints = self._adapters.due, self._adapters.endpoints

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def _due_items(self) -> list[dict[str, Any]]:
        items = self.cloud.items(self.system.due_table)
        return [item for item in items if item["bucket"] != "quarantine"]

    def new_name(self, what: str) -> str:
        return f"{what}{next(self.names)}"

    def memory(self) -> object:
        """What the checks remember: a death may leave it different although AWS is in the same
        state.
        """
        answered = self.answered is not None, len(self.answers), self.starts_at_answer
        return sorted(self.starts.items()), sorted(self.saved), answered

    def started(self, execution_id: str, checkpoint: bytes | None) -> None:
        """Check the start of a script: its run is RUNNING and had not ended, and it finds its
        checkpoint.
        """
        self.observe()
        saved = self.saved.get(execution_id, checkpoint)
        assert checkpoint == saved, f"{execution_id} does not find its checkpoint"
        self.starts[execution_id] += 1
        (run,) = [r for k, r in self._all_runs().items() if k.execution_id == execution_id]
        assert run.state is RunState.RUNNING, f"{execution_id} starts, but is {run.state}"
        assert run.key not in self._ended, f"{execution_id} starts again after its end"

    def redriven(self, key: RunKey) -> None:
        """A DEAD run, or one that was SKIPPED because of a parent, may start again."""
        self._ended.pop(key, None)

    def observe(self) -> None:
        """Remember the runs that ended, and check that they stay unchanged."""
        runs = self._all_runs()
        for key, was in [*self._ended.items()]:
            now = runs[key]
            if was.state is RunState.DEAD and now.attempt_base == was.attempt > was.attempt_base:
                self.redriven(key)
                continue
            if was.skipped_by_parents and now.dispatch > was.dispatch:
                self.redriven(key)  # reopened: a parent ended again
                continue
            same = (was.state, was.attempt) == (now.state, now.attempt)
            assert same, f"{key.execution_id} had ended {was.state}, but is {now.state}"
        self._ended.update({key: run for key, run in runs.items() if run.state.ended})

    def _all_runs(self) -> dict[RunKey, Run]:
        raw = [i for i in self.cloud.raw(self.system.runs_table) if "state" in i]  # not of joins
        if raw != self._read[0]:  # it is asked for often
            self._read = raw, {run.key: run for run in map(decode_run, raw)}
        return self._read[1]

    def snapshot(self) -> Snapshot:
        items = self.cloud.items(self.system.jobs_table)
        keys = [JobKey(i["tenant"], i["job_id"]) for i in items if i["job_id"] != _COUNT]
        jobs = {key: self.jobs.get(key) for key in keys}
        buckets = {item["bucket"] for item in self._due_items()}
        stored = [
            entry
            for bucket in buckets
            for entry in self.due.read(minute_of(bucket), 0, before=None, consistent=True)
        ]
        return Snapshot(
            self.now,
            {key: job for key, job in jobs.items() if job is not None},
            Records(self._all_runs()),
            [each.entry for each in stored if isinstance(each, StoredEntry)],
        )

    def job(self, job_id: str = "report") -> Job:
        found = self.jobs.get(job_key(job_id))
        assert found is not None
        return found

    def run(self, time: str = "12:00", job_id: str = "report") -> Run:
        """The record of the run scheduled for *time*."""
        runs = [r for k, r in self._all_runs().items() if k.job.job_id == job_id]
        (run,) = [run for run in runs if run.key.scheduled_at == at(time)]
        return run

    def lease(self) -> Lease:
        """The lease of the watchers."""
        items = self.cloud.raw(self.system.control_table)
        (found,) = [item for item in items if item["id"]["S"] == "lease#0"]
        return decode_lease(found)

    def assert_attempts(self, run: Run, attempts: int) -> None:
        """Check that *run* had *attempts* attempts, and at most one more per killed worker."""
        most = attempts + self.cloud.died["worker"]
        assert attempts <= run.attempt <= most, f"{run.attempt} attempts, not {attempts} … {most}"

    @property
    def letters(self) -> list[str]:
        """The bodies in the dead-letter queue."""
        return [message.body for message in self.cloud.messages(DEAD_LETTERS)]

    @property
    def published(self) -> str:
        """The events on the event bus, one per line."""
        return "\n".join(message.body for message in self.cloud.messages(LISTENER))

    def purge(self) -> None:
        """Purge the pool's queue, as an operator may do."""
        self.cloud.purge(QUEUE)

    def assert_sound(
        self, *, allow_late_starts: bool = False, no_occurrences: Collection[str] = ()
    ) -> None:
        """Check what holds for every system at rest."""
        self.observe()
        books = self.snapshot()
        for job in books.jobs.values():
            if job.definition.type is ScheduleType.AFTER:
                continue  # it has no occurrences: its flow checks its runs
            assert_all_accounted_for(
                books,
                job,
                allow_late_starts=allow_late_starts,
                stray=lambda run: format_time(run.scheduled_at) in no_occurrences,
            )
        for key, run in books.runs.all.items():
            most = books.jobs[key.job].definition.retry_policy.max_attempts
            assert run.tries <= most, f"{key.execution_id} had {run.tries} attempts, limit {most}"
            assert self.starts[key.execution_id] <= run.fence
            if run.state is RunState.DEAD:
                self._assert_death_published(run)
        self._assert_counted()

    def _assert_counted(self) -> None:
        """A tenant's counter equals its number of live jobs if it has a quota of jobs."""
        counts: Counter[str] = Counter()
        living: Counter[str] = Counter()
        for item in self.cloud.items(self.system.jobs_table):
            if item["job_id"] == _COUNT:
                counts[item["tenant"].removeprefix(_COUNT)] = int(item["jobs"])
                continue
            lives = item["state"] in _LIVING
            limited = self.quotas.of(item["tenant"]).jobs is not None
            assert item.get("counted", False) == (lives and limited), item
            living[item["tenant"]] += lives and limited
        assert +counts == +living, f"{counts} counted, but {living} exist"
        assert min(counts.values(), default=0) >= 0

    @property
    def sent_per_minute(self) -> dict[datetime, int]:
        """Number of runs that arrived in the queue per minute of the clock."""
        return Counter(floor_minute(sent) for sent in self.cloud.sent(QUEUE))

    def _assert_death_published(self, run: Run) -> None:
        mine = []
        for body in self.letters:
            try:
                message = decode_message(body)
            except UndecodableError:
                continue
            mine += [message] if message.key == run.key else []
        assert run.dispatch in {m.dispatch for m in mine}, f"no dead letter of {run.key}"
        assert dedup_id(run.key, run.dispatch) in self.published, f"no event of {run.key}"
        assert run.buried == run.dispatch


def minute_of(bucket: str) -> datetime:
    return datetime.fromisoformat(bucket.partition("#")[0])
