"""What a history of two versions recorded, by this version's adapters, and what must hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from nextfire.domain.policies import Overlap
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for
from tests.evidence import Evidence, Stored, first_sent, reported_missed
from tests.snapshot import Records, Snapshot
from tests.upgrade.planted import PLANTED_NAMES

TENANT = "default"
_WRITING = timedelta(seconds=15)


@dataclass
class Script:
    """A script that is running: its run when it began, and the end of its lease."""

    run: Run
    until: datetime

    @property
    def name(self) -> object:
        return self.run.worker, self.run.key.execution_id, self.run.attempt


@dataclass
class Books:
    """What happened: `ever`: all stored versions of each job; `log`: all messages."""

    database: Database
    now: Callable[[], datetime]
    ever: dict[tuple[JobKey, str], list[Stored]] = field(default_factory=dict)
    log: list[RunMessage] = field(default_factory=list)
    started: dict[tuple[str, int], str] = field(default_factory=dict)
    """By execution id and fence: the worker whose script began."""
    promised: set[str] = field(default_factory=set)
    """The ids of jobs and runs in successful answers."""
    _saved: dict[str, set[str]] = field(default_factory=dict)
    """For each run, the checkpoints of which its next attempt must find one."""
    _scripts: list[Script] = field(default_factory=list)
    _jobs: dict[str, str] = field(default_factory=dict)
    _last_message: int = 0

    # What processes report

    def note(self, process: str, events: Sequence[tuple[str, ...]]) -> None:
        """Note what *process* did in a step.

        Raises:
            AssertionError: It must not do that.
        """
        for what, *details in events:
            match what, *details:
                case "DEFECT", why:
                    raise AssertionError(f"{process}: {why}")
                case "due.quarantine", *_:
                    raise AssertionError(f"{process} sets an entry aside")
                case "AUDIT", repaired, report:
                    assert repaired == "0", f"{process} repaired undamaged data: {report}"
                case "ANSWER", "OK", name if name:
                    self.promised.add(name)
                case "ANSWER", _, text:
                    assert "(500)" not in text, f"{process}: {text}"
                case "queue.send", *_:
                    self._note_messages()
            if what.startswith("SCRIPT"):
                self._note_script(process, what, *details)
            elif what.startswith("runs."):
                self._note_leases(process)
            if what.startswith("jobs.") or what in ("runs.skip_next", "runs.unskip"):
                self._note_jobs()

    def _note_script(self, worker: str, what: str, execution_id: str, *more: str) -> None:
        match what, *more:
            case "SCRIPT saves", checkpoint:
                self._saved.setdefault(execution_id, {"None"}).add(checkpoint)
            case "SCRIPT saved", checkpoint:
                self._saved[execution_id] = {checkpoint}
            case "SCRIPT begins", attempt, checkpoint:
                saved = self._saved.get(execution_id, {"None"})
                assert checkpoint in saved, f"{execution_id} does not find its checkpoint"
                self._begins(worker, execution_id, int(attempt))
            case "SCRIPT ends", attempt:
                ended = worker, execution_id, int(attempt)
                self._scripts = [each for each in self._scripts if each.name != ended]

    def gone(self, process: str) -> None:
        """*process* has ended."""
        self._scripts = [each for each in self._scripts if each.run.worker != process]

    def _begins(self, worker: str, execution_id: str, attempt: int) -> None:
        """A script begins only under a claim of its worker, once, and not while another script runs
        that excludes it, under a valid lease.
        """
        run = self.run(execution_id)
        wanted = (RunState.RUNNING, worker, attempt)
        assert run is not None, f"{execution_id} began without a record"
        assert (run.state, run.worker, run.attempt) == wanted, f"{worker} began, but {run}"
        assert run.lease_until is not None, f"{worker} began without a lease: {run}"
        assert (execution_id, run.fence) not in self.started, f"one claim began two scripts: {run}"
        self.started[execution_id, run.fence] = worker
        alone = self._is_alone(run.key)
        for other in self._scripts:
            key = other.run.key
            excludes = key == run.key or (
                alone and (key.job, key.uid) == (run.key.job, run.key.uid)
            )
            assert not excludes or other.until <= self.now(), (
                f"{execution_id} began on {worker} while {key.execution_id} ran on "
                f"{other.run.worker}"
            )
        self._scripts.append(Script(run, run.lease_until))

    def _is_alone(self, key: RunKey) -> bool:
        """Whether runs of the job never might overlap."""
        ever = self.ever.get((key.job, key.uid), [])
        return all(each.job.definition.overlap is not Overlap.ALLOW for each in ever)

    def _note_leases(self, worker: str) -> None:
        for script in self._scripts:
            if script.run.worker == worker:
                run = self.run(script.run.key.execution_id)
                if run and run.fence == script.run.fence and run.lease_until is not None:
                    script.until = run.lease_until

    def _note_jobs(self) -> None:
        for job_id, item in self._rows("SELECT job_id, item FROM jobs ORDER BY job_id"):
            if self._jobs.get(job_id) != item:
                self._jobs[job_id] = item
                job = decode_job(_item(item))
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
        return decode_run(_item(rows[0][0])) if rows else None

    def runs(self) -> list[Run]:
        items = [_item(item) for (item,) in self._rows("SELECT item FROM runs ORDER BY run_id")]
        return [decode_run(item) for item in items if "state" in item]  # not of joins

    def jobs(self) -> dict[JobKey, Job]:
        items = self._rows("SELECT item FROM jobs ORDER BY job_id")
        found = [decode_job(_item(item)) for (item,) in items]
        return {job.key: job for job in found}

    def _entries(self) -> Iterator[DueEntry]:
        for (item,) in self._rows("SELECT item FROM due ORDER BY bucket, entry"):
            entry = decode_entry(_item(item))
            assert isinstance(entry, StoredEntry), f"an entry does not decode: {item}"
            yield entry.entry

    def _messages(self, *, dead: bool) -> list[RunMessage]:
        where = "LIKE" if dead else "NOT LIKE"
        rows = self._rows(f"SELECT body FROM messages WHERE queue {where} '%#dead'")  # noqa: S608
        return [decode_message(body) for (body,) in rows]

    def open(self) -> list[object]:
        """What is due, queued or running. The end of a join is due a day later."""
        now, soon = self.now(), self.now() + timedelta(hours=1)
        due = [
            e for e in self._entries() if e.at <= (soon if isinstance(e, DispatchEntry) else now)
        ]
        return [*due, *self._messages(dead=False), *(r for r in self.runs() if not r.state.ended)]

    # What must hold in the end

    def judge(self) -> None:
        """Check that everything is accounted for. The system is at rest."""
        state = Snapshot(
            self.now(),
            self.jobs(),
            Records({run.key: run for run in self.runs()}),
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
        runs = {run.key.execution_id for run in state.runs.all.values()}
        lost = self.promised - runs - {key.job_id for key in state.jobs}
        assert not lost, f"{lost} were acknowledged, but do not exist"
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
        """Check that *child* has a record for each logical time at which all its parents have one,
        and that it ran exactly if they succeeded.
        """
        begins = self.ever[child.key, child.uid][0].written_at
        runs: dict[str, dict[datetime, Run]] = defaultdict(dict)
        jobs = self.jobs()
        for run in self.runs():
            requested = run.on_request and run.key.job == child.key
            by_watcher = run.pool is None and not jobs[run.key.job].definition.after
            current = run.key.uid == jobs[run.key.job].uid
            if (
                current and not requested and not by_watcher
            ):  # what a watcher skipped has no children
                runs[run.key.job.job_id][run.key.scheduled_at] = run
        parents = [runs[edge.job] for edge in child.definition.after]
        mine = runs[child.key.job_id]
        for at in {*mine, *parents[0]}:
            states = [each[at].state for each in parents if at in each]
            all_there = len(states) == len(parents)
            assert at in mine or at <= begins or not all_there, f"{child.key} has no record of {at}"
            succeeded = all_there and {*states} == {RunState.SUCCEEDED}
            if at in mine and mine[at].state is not RunState.CANCELLED:
                ran = mine[at].state is not RunState.SKIPPED
                name = mine[at].key.execution_id
                right = ran == succeeded or (not ran and at <= begins)
                assert right, f"{name} is {mine[at].state}, its parents {states}"


def _item(text: str) -> dict[str, Any]:
    return {PLANTED_NAMES.get(name, name): value for name, value in json.loads(text).items()}
