"""What a history of two versions recorded, read with this version's adapters, and what must hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nextfire.adapters.dynamodb.due_items import decode_entry
from nextfire.adapters.dynamodb.job_items import decode_job
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.due import DispatchEntry, DueEntry, StoredEntry
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import Overlap
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for
from tests.evidence import Evidence, Stored, first_sent, reported_missed

TENANT = "default"
_WRITING = timedelta(seconds=15)


@dataclass
class Script:
    """A script that is running: its `worker`, and the end of its lease."""

    worker: str
    run: Run
    until: datetime


@dataclass
class _Records:
    all: Mapping[RunKey, Run]


@dataclass
class _AtRest:
    """`SystemState`."""

    now: datetime
    jobs: Mapping[JobKey, Job]
    runs: _Records
    entries: Collection[DueEntry]

    def job(self, key: JobKey) -> Job:
        return self.jobs[key]


@dataclass
class Books:
    """What happened: `ever`: all stored versions of each job; `log`: all messages."""

    database: Database
    now: Callable[[], datetime]
    wrong: list[str] = field(default_factory=list)
    ever: dict[tuple[JobKey, str], list[Stored]] = field(default_factory=dict)
    log: list[RunMessage] = field(default_factory=list)
    started: dict[tuple[str, int], str] = field(default_factory=dict)
    """By execution id and fence: the worker whose script began."""
    scripts: dict[str, Script] = field(default_factory=dict)
    _jobs: dict[str, str] = field(default_factory=dict)
    _last_message: int = 0

    # What processes report

    def note(self, process: str, events: Sequence[tuple[str, ...]]) -> None:
        """Note what *process* did in a step."""
        for what, *details in events:
            if what == "DEFECT":
                self.wrong.append(f"{process}: {details}")
            elif what == "SCRIPT" and details[0] == "begins":
                self._begins(process, details[1], int(details[2]))
            elif what == "SCRIPT":
                self.scripts.pop(details[1], None)
            elif what == "AUDIT" and details[0] != "0":
                self.wrong.append(f"an audit repaired something: {details[1]}")
            elif what == "queue.send":
                self._note_messages()
            elif what.startswith("runs."):
                self._note_leases(process)
            if what.startswith(("jobs.", "joins.")):
                self._note_jobs()

    def gone(self, process: str) -> None:
        """*process* has ended."""
        self.scripts = {k: each for k, each in self.scripts.items() if each.worker != process}

    def _begins(self, worker: str, execution_id: str, attempt: int) -> None:
        run = self.run(execution_id)
        owned = run is not None and (run.state, run.worker, run.attempt) == (
            RunState.RUNNING,
            worker,
            attempt,
        )
        if run is None or not owned or run.lease_until is None:
            self.wrong.append(f"{execution_id}: {worker} began attempt {attempt} of {run}")
            return
        if (execution_id, run.fence) in self.started:
            self.wrong.append(f"{execution_id}: a claim began two scripts: {run}")
        self.started[execution_id, run.fence] = worker
        alone = self._is_alone(run.key)
        for other in self.scripts.values():
            same = other.run.key == run.key
            together = alone and (other.run.key.job, other.run.key.uid) == (
                run.key.job,
                run.key.uid,
            )
            if (same or together) and other.until > self.now():
                self.wrong.append(
                    f"{execution_id}: began on {worker} while {other.run.key.execution_id} ran on "
                    f"{other.worker}"
                )
        self.scripts[execution_id] = Script(worker, run, run.lease_until)

    def _is_alone(self, key: RunKey) -> bool:
        """Whether runs of the job never might overlap."""
        ever = self.ever.get((key.job, key.uid), [])
        return all(each.job.definition.overlap is not Overlap.ALLOW for each in ever)

    def _note_leases(self, worker: str) -> None:
        for execution_id, script in self.scripts.items():
            if script.worker == worker and (run := self.run(execution_id)) is not None:
                if run.worker == worker and run.lease_until is not None:
                    script.until = run.lease_until

    def _note_jobs(self) -> None:
        for job_id, item in self._rows("SELECT job_id, item FROM jobs ORDER BY job_id"):
            if self._jobs.get(job_id) != item:
                self._jobs[job_id] = item
                job = decode_job(json.loads(item))
                self.ever.setdefault((job.key, job.uid), []).append(Stored(self.now(), job))

    def _note_messages(self) -> None:
        query = "SELECT number, body FROM messages WHERE number > ? AND queue NOT LIKE '%#dead'"
        for number, body in self._rows(query, self._last_message):
            self._last_message = number
            self.log.append(decode_message(body))

    # What is stored

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self.database.reading("judge") as connection:
            return connection.execute(query, values).fetchall()

    def run(self, execution_id: str) -> Run | None:
        key = parse_execution_id(TENANT, execution_id)
        query = "SELECT item FROM runs WHERE job = ? AND run_id = ?"
        rows = self._rows(query, f"{TENANT}/{key.job.job_id}", key.run_id)
        return decode_run(json.loads(rows[0][0])) if rows else None

    def runs(self) -> list[Run]:
        items = [json.loads(item) for (item,) in self._rows("SELECT item FROM runs ORDER BY run_id")]
        return [decode_run(item) for item in items if "state" in item]  # not of joins

    def jobs(self) -> dict[JobKey, Job]:
        items = self._rows("SELECT item FROM jobs ORDER BY job_id")
        found = [decode_job(json.loads(item)) for (item,) in items]
        return {job.key: job for job in found}

    def _entries(self) -> Iterator[DueEntry]:
        for (item,) in self._rows("SELECT item FROM due ORDER BY bucket, entry"):
            entry = decode_entry(json.loads(item))
            assert isinstance(entry, StoredEntry), f"an entry is set aside: {item}"
            yield entry.entry

    def _messages(self, *, dead: bool) -> list[RunMessage]:
        where = "LIKE" if dead else "NOT LIKE"
        rows = self._rows(f"SELECT body FROM messages WHERE queue {where} '%#dead'")  # noqa: S608
        return [decode_message(body) for (body,) in rows]

    def open(self) -> list[object]:
        """What is due, queued or running."""
        now = self.now()
        due = [e for e in self._entries() if e.at <= now or isinstance(e, DispatchEntry)]
        return [*due, *self._messages(dead=False), *(r for r in self.runs() if not r.state.ended)]

    # What must hold in the end

    def judge(self) -> None:
        """Check that everything is accounted for. The system is at rest."""
        state = _AtRest(
            self.now(),
            self.jobs(),
            _Records({run.key: run for run in self.runs()}),
            [*self._entries()],
        )
        sent = first_sent(self.log)
        for stored in self.ever.values():
            job = stored[-1].job
            if job.definition.after:
                self._judge_child(job)
                continue
            assert_all_accounted_for(
                state,
                job,
                allow_late_starts=True,
                stray=lambda key: self._is_stray(key, sent),
                evidence=Evidence(stored, sent, missed=reported_missed(self.log, job)),
            )
        letters = {message.key for message in self._messages(dead=True)}
        for run in state.runs.all.values():
            if run.state is RunState.DEAD:
                assert run.key in letters, f"{run.key.execution_id} is DEAD without a letter"
            if run.state is RunState.SUCCEEDED:
                began = (run.key.execution_id, run.fence) in self.started
                assert began, f"{run.key.execution_id} SUCCEEDED, but did not run"
        for key in letters:
            run = state.runs.all[key]
            was_dead = run.state is RunState.DEAD or run.attempt_base
            assert was_dead, f"{key.execution_id} is a dead letter, but {run.state}"

    def _is_stray(self, key: RunKey, sent: Mapping[RunKey, datetime]) -> bool:
        """Whether the run was sent while a change of its job was being written, and some version of
        the job has its occurrence.
        """
        ever, at = self.ever[key.job, key.uid], sent.get(key)
        before = key.scheduled_at - timedelta(milliseconds=1)
        return (
            at is not None
            and any(abs(each.written_at - at) <= _WRITING for each in ever[1:])
            and any(each.job.next_after(before) == key.scheduled_at for each in ever)
        )

    def _judge_child(self, child: Job) -> None:
        """Check that *child* has a record for each run of its parent, and no other."""
        [edge] = child.definition.after
        runs = self.runs()
        begins = self.ever[child.key, child.uid][0].written_at
        of_parent = {
            run.key.scheduled_at: run
            for run in runs
            if run.key.job.job_id == edge.job and run.attempts
        }
        mine = {
            run.key.scheduled_at: run
            for run in runs
            if run.key.job == child.key and not run.on_request
        }
        for at, run in mine.items():
            assert at in of_parent or not run.attempts, f"{run.key} ran without its parent"
        for at, run in of_parent.items():
            if at <= begins:
                continue
            assert at in mine, f"{child.key.job_id} has no record of {run.key.execution_id}"
            ran, state = mine[at].state is not RunState.SKIPPED, run.state
            right = ran == (state is RunState.SUCCEEDED) or mine[at].state is RunState.CANCELLED
            assert right, f"{mine[at].key.execution_id}: {mine[at].state}, but its parent: {state}"
