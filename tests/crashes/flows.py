"""The flows whose processes are killed at each call. A new flow is an entry of `FLOWS`.

Each flow begins where its `prepare` has brought the system, on the day of `builders.NOON`. After
`act`, `Stack.settle` lets the system continue.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.adapters.worker.journal import HeldMessage
from nextfire.domain.chain import Batch, verify
from nextfire.domain.change import ItemChange
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import (
    ConflictError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
)
from nextfire.domain.ids import RunFolder, RunKey, run_id
from nextfire.domain.instants import parse_instant
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.quotas import NO_QUOTAS, Quotas, TenantQuotas
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.zones import ZoneReading
from nextfire.targets.http.messages import Request, Response
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.hold_lease import LIFE
from nextfire.usecases.manage_backfills import BackfillRange
from nextfire.usecases.manage_runs import Redriven
from nextfire.usecases.record_changes import RecordChanges
from tests.accounting import covered, ran
from tests.builders import LEASE, RUN_ALL, RUN_LATEST, SKIP, a_definition, at, job_key
from tests.callbacks import response
from tests.crashes.cloud import Process
from tests.crashes.stack import GONE, POOL, Api, Stack, Worker
from tests.fakes import Killed, Script
from tests.integration.deployment import Answer

SECOND = timedelta(seconds=1)
ONE_ATTEMPT = {"maxAttempts": 1}
EVERY_TEN = {"schedule": "*/10 * * * *"}
ONCE = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
LARGE = b'"' + 9000 * b"x" + b'"'
"""JSON that is too large for a record."""
ONE_JOB = TenantQuotas(default=Quotas(jobs=1))
HOURLY = {"type": "CRON", "schedule": "0 * * * *", "target": {"handler": "report"}}


class Flow:
    """One path through the system. `until`: the system runs at least to this time after it."""

    name = ""
    until = "12:00:10"
    job_role = False
    """Whether executors have a role for their scripts."""
    pool = POOL
    """The pool of the executors."""
    quotas = NO_QUOTAS
    """The quotas of the tenants."""
    allow_late_starts = False
    """See `assert_all_accounted_for`."""
    no_occurrences: frozenset[str] = frozenset()
    """Times with records that no longer match an occurrence."""
    lives = 3
    """After the death of this number of workers, the run has no attempt left."""

    def prepare(self, stack: Stack) -> None:
        """Bring the system to where the flow begins; processes do not die here."""

    def act(self, stack: Stack) -> None:
        """The flow itself: each of its calls is a crash point."""
        raise NotImplementedError

    def repeat(self, stack: Stack) -> None:
        """What a caller without an answer does; called a few times. No-op after an answer."""

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002 — for flows that use it
        """The behaviour of a script."""
        return Script()

    def respond(self, request: Request, number: int) -> Response:  # noqa: ARG002
        """The response to the request *number*, from 1, of a callback; see `Stack.respond`."""
        return response()

    def check(self, stack: Stack) -> None:
        """Check what is specific to this flow at rest; `Stack.assert_sound` checks what holds for
        all flows.
        """
        run = stack.run()
        lost = run.state is RunState.DEAD and stack.cloud.died["worker"] >= self.lives
        assert lost or run.state is RunState.SUCCEEDED, f"{run.state}: {run.reason}"


class RequestFlow(Flow):
    """A flow of an API request that the caller repeats until there is an answer."""

    def ask(self, api: Api, stack: Stack) -> object:
        raise NotImplementedError

    def act(self, stack: Stack) -> None:
        stack.ask(lambda api: self.ask(api, stack))

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            stack.ask(lambda api: self.ask(api, stack))


def dates(*times: str) -> dict[str, Any]:
    """The schedule of a job that is due at *times*."""
    return {"type": "DATES", "schedule": [f"2026-05-24T{time}:00Z" for time in times]}


def attempt(call: ScriptCall) -> int:
    return int(call.environment["NEXTFIRE_ATTEMPT"])


def die() -> None:
    raise Killed


def dispatch(stack: Stack, time: str = "12:00", **job: Any) -> Job:
    """Register a job and send its occurrence at *time* to the queue."""
    registered = stack.register(**job)
    watch(stack, time)
    return registered


def watch(stack: Stack, time: str) -> None:
    """Run a watcher at *time* until nothing is due, then release its lease."""
    stack.at(time)
    watcher = stack.watcher()
    watcher.step()
    watcher.end()


def lose_worker(stack: Stack) -> None:
    """Let a worker die during the script; the flow's script raises `Killed`."""
    with suppress(Killed):
        stack.worker().work()


def run_key(time: str = "12:00", job_id: str = "report") -> RunKey:
    return RunKey(job_key(job_id), run_id(f"uid{job_id:0<6}", at(time)))


# The API


class Register(RequestFlow):
    name = "register"

    def ask(self, api: Api, stack: Stack) -> object:
        uid = stack.new_name("uid0000000")
        return api.jobs.register(job_key(), a_definition(), uid=uid, now=stack.now)

    def check(self, stack: Stack) -> None:
        assert isinstance(stack.answered, Job | ConflictError)
        super().check(stack)
        stack.assert_attempts(stack.run(), 1)


class Change(RequestFlow):
    """At the very second at which an occurrence of the old schedule is due."""

    name = "change: schedule"
    until = "12:30:10"
    fields: dict[str, Any] = {"schedule": "30 * * * *"}  # noqa: RUF012 — read only
    runs: tuple[str, ...] = ("12:00", "12:30")

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("12:00")

    def ask(self, api: Api, stack: Stack) -> object:
        def edit(definition: JobDefinition) -> JobDefinition:
            return JobDefinition.model_validate(definition.document() | self.fields)

        return api.jobs.change(job_key(), edit, now=stack.now)

    def check(self, stack: Stack) -> None:
        assert ran(stack.snapshot(), stack.job()) == list(self.runs)


class ChangePayload(Change):
    name = "change: payload"
    until = "12:00:10"
    fields = {"payload": {"a": 1}}  # noqa: RUF012
    runs = ("12:00",)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.job().definition.payload == {"a": 1}


class Pause(RequestFlow):
    name = "pause"
    until = "12:15"

    def prepare(self, stack: Stack) -> None:
        stack.register(**EVERY_TEN)
        stack.at("12:00")

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.pause(job_key(), "a reason", now=stack.now)

    def check(self, stack: Stack) -> None:
        job = stack.job()
        assert job.state is JobState.PAUSED
        assert ran(stack.snapshot(), job) == ["12:00"]


class Drain(RequestFlow):
    """The occurrence that was due before is sent and runs, and the drain waits for it."""

    name = "drain"
    until = "12:15"

    def prepare(self, stack: Stack) -> None:
        stack.register(**EVERY_TEN)
        stack.at("12:00")

    def ask(self, api: Api, stack: Stack) -> object:
        job = api.jobs.drain(job_key(), "a reason", now=stack.now)
        return job, has_outstanding(api.runs, job, stack.now)

    def check(self, stack: Stack) -> None:
        job = stack.job()
        assert (job.state, job.drain_asked_at) == (JobState.PAUSED, job.effective_from)
        assert ran(stack.snapshot(), job) == ["12:00"]
        assert not has_outstanding(stack.system.runs, job, stack.now)


class Resume(RequestFlow):
    name = "resume"
    until = "12:10:10"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:35")
        stack.register(**EVERY_TEN, misfire=RUN_LATEST)
        stack.api().jobs.pause(job_key(), None, now=stack.now)
        stack.at("12:05")

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.resume(job_key(), now=stack.now)

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert ran(books, job) == ["12:00", "12:10"]
        assert covered(books, job) == ["11:40-11:50 (2)"]


class PauseUntil(Pause):
    name = "pause: until"
    until = "12:20:10"

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.pause(job_key(), "a reason", now=stack.now, until=at("12:15"))

    def check(self, stack: Stack) -> None:
        job = stack.job()
        assert (job.state, job.resumed_at) == (JobState.ACTIVE, at("12:15"))
        assert ran(stack.snapshot(), job) == ["12:00", "12:10", "12:20"]


class EndOfPause(Flow):
    """The watcher resumes the job."""

    name = "tick: a pause ends"
    until = "12:10:10"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:35")
        stack.register(**EVERY_TEN, misfire=RUN_LATEST)
        stack.api().jobs.pause(job_key(), None, now=stack.now, until=at("12:05"))
        stack.at("12:05")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert (job.revision, job.resumed_at) == (3, at("12:05"))
        assert ran(books, job) == ["12:00", "12:10"]
        assert covered(books, job) == ["11:40-11:50 (2)"]


class Delete(RequestFlow):
    name = "delete"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("12:00")

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.delete(job_key(), now=stack.now)

    def check(self, stack: Stack) -> None:
        assert stack.job().state is JobState.CANCELLED
        assert stack.run().state is RunState.CANCELLED
        assert not stack.starts


class DeletePaused(Delete):
    """Occurrences that were due during the pause are recorded."""

    name = "delete: paused"

    def prepare(self, stack: Stack) -> None:
        Resume().prepare(stack)

    def check(self, stack: Stack) -> None:
        job = stack.job()
        assert job.state is JobState.CANCELLED
        assert covered(stack.snapshot(), job) == ["11:40-12:00 (3)"]


class Cancel(RequestFlow):
    """After an answer, no further attempt begins."""

    attempts_before = 0

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.executions.cancel(run_key(), None)

    def check(self, stack: Stack) -> None:
        run = stack.run()
        # A repeated request, for lack of an answer, may find that the run is already CANCELLED.
        assert isinstance(stack.answered, Run | ConflictError)
        assert run.state is RunState.CANCELLED
        stack.assert_attempts(run, stack.starts.total() + self.attempts_before)
        assert stack.starts.total() == stack.starts_at_answer


class CancelUnclaimed(Cancel):
    name = "cancel: not taken yet"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)


class CancelWaiting(Cancel):
    name = "cancel: waits for its retry"
    attempts_before = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 30_000})
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)


class CancelLost(Cancel):
    name = "cancel: its worker vanished"
    attempts_before = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        lose_worker(stack)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die)


class CancelRunning(Cancel):
    """A worker runs the script while the API process dies; the script fails and may be retried."""

    name = "cancel: runs"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 30_000})

    def act(self, stack: Stack) -> None:
        worker = Worker(stack.process("worker", bystander=True))

        def meanwhile() -> None:
            with suppress(Killed):
                super(CancelRunning, self).act(stack)
            stack.clock.advance(seconds=5)  # the worker checks for a cancel every 4 s

        stack.meanwhile = meanwhile
        worker.work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)


class Redrive(RequestFlow):
    name = "redrive: one"
    job_ids: tuple[str, ...] = ("report",)

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, retryPolicy=ONE_ATTEMPT)
        watch(stack, "12:00")
        stack.worker().work()

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.executions.redrive(run_key(), None)

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0)

    def check(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            run = stack.run(job_id=job_id)
            # It has one attempt only, which a killed worker may have used up.
            died = stack.cloud.died["worker"] and run.state is RunState.DEAD
            assert died or run.state is RunState.SUCCEEDED
            stack.assert_attempts(run, 2)


class RedrivePool(Redrive):
    name = "redrive: a pool"
    job_ids: tuple[str, ...] = ("first", "second", "third")

    def ask(self, api: Api, stack: Stack) -> object:
        done = api.executions.redrive_dead(
            "acme",
            "default",
            first=at("11:00"),
            last=stack.now,
            cursor=None,
            limit=100,
            reason=None,
            until=stack.now + SECOND,
        )
        assert isinstance(done, Redriven)
        # after a refusal in the result, the caller repeats the request
        return None if done.skipped else done


class RunNow(RequestFlow):
    """A caller without an answer repeats the request with the same id."""

    name = "run now"

    def prepare(self, stack: Stack) -> None:
        stack.register(payload={"a": 1}, overlap="QUEUE")
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.request_runs.run_now(
            job_key(), payload="7", reason=None, request="r", asked_at=at("11:59:55")
        )

    def script(self, call: ScriptCall) -> Script:
        scheduled = call.environment["NEXTFIRE_SCHEDULED_AT"]
        assert (call.payload == "7") == (scheduled == "2026-05-24T11:59:55.001Z")
        return Script()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        runs = stack.snapshot().runs.all.values()
        states = [run.state for run in runs if run.request == "r"]
        assert states == [RunState.SUCCEEDED]


class SkipNext(RequestFlow):
    name = "skip next"
    until = "12:10:10"

    def prepare(self, stack: Stack) -> None:
        stack.register(**EVERY_TEN)
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.skips.skip_next(job_key(), "a reason")

    def check(self, stack: Stack) -> None:
        skipped = stack.job().skips
        assert stack.run().skip_requested == (at("12:00") in skipped)
        assert isinstance(stack.answered, ConflictError) or skipped
        # A caller that has no answer before 12:00 skips the next occurrence instead.
        runs = [time for time in ("12:00", "12:10") if at(time) not in skipped]
        assert ran(stack.snapshot(), stack.job()) == runs


class Unskip(RequestFlow):
    name = "skip next: undone"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:55")
        stack.register()
        stack.api().skips.skip_next(job_key(), None)

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        return api.skips.unskip(job_key())

    def check(self, stack: Stack) -> None:
        # A repeated request, for lack of an answer, may find that the undo is done.
        assert isinstance(stack.answered, Job | NotFoundError)
        super().check(stack)


class BeginBackfill(RequestFlow):
    """A caller without an answer repeats the request with the same id."""

    name = "backfill: begun"
    until = "12:00:30"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:55")

    def ask(self, api: Api, stack: Stack) -> object:
        wanted = BackfillRange(at("09:00"), at("12:00"))
        return api.backfills.begin(
            job_key(), wanted, backfill_id="b", asked_at=at("11:59:55"), now=stack.now
        )

    def check(self, stack: Stack) -> None:
        super().check(stack)
        for time in ("09:00", "10:00", "11:00"):
            run = stack.run(time)
            assert (run.state, run.trigger) == (RunState.SUCCEEDED, Trigger.BACKFILL)
        assert stack.job().backfill is None


class StopBackfill(BeginBackfill):
    name = "backfill: stopped"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        super().ask(stack.api(), stack)

    def ask(self, api: Api, stack: Stack) -> object:
        return api.backfills.stop(job_key(), now=stack.now)

    def check(self, stack: Stack) -> None:
        # A repeated request, for lack of an answer, may find that the backfill is stopped or
        # complete.
        assert isinstance(stack.answered, Job | NotFoundError)
        Flow.check(self, stack)
        assert stack.job().backfilling is None


# The watcher


class Tick(Flow):
    name = "tick"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.register("once", **ONCE)
        stack.register("alone", overlap="QUEUE")
        stack.at("12:00")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

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


class TickOfMoved(Flow):
    """The due entry was stored before new time zone rules moved its local time to 12:30."""

    name = "tick: a local time that was moved"
    until = "12:30:10"
    no_occurrences = frozenset({"12:00"})

    def prepare(self, stack: Stack) -> None:
        local = {"timezone": "Europe/Berlin", "schedule": "2026-05-24T14:30"}
        stack.register(type="ONCE", **local)
        stack.replace_fire("12:00", reading=ZoneReading("2000a", timedelta(hours=2.5)))
        stack.at("12:00")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.SKIPPED
        run = stack.run("12:30")
        assert run.state is RunState.SUCCEEDED
        stack.assert_attempts(run, 1)
        assert stack.job().state is JobState.COMPLETED


class TickOfRetry(Flow):
    name = "tick: a retry"
    lives = 1

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 2, "initialDelayMs": 2_000})
        stack.worker().work()
        stack.at("12:00:02")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

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


class CoverLatest(Flow):
    name = "cover missed: RUN_LATEST"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00", "12:01"), misfire=RUN_LATEST)
        stack.at("12:01:50")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert covered(books, job) == ["11:58-12:00 (3)"]
        assert ran(books, job) == ["12:01"]


class SendLatest(CoverLatest):
    """The watcher sends the latest run with the list of missed ones; a worker records these, then
    runs it.
    """

    name = "send with missed: RUN_LATEST"

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)
        stack.worker().work()


class SendFresh(SendLatest):
    name = "send with missed: SKIP"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00", "12:01"), misfire=SKIP)
        stack.at("12:01:05")

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        if ran(books, job) == ["12:01"]:
            assert covered(books, job) == ["11:58-12:00 (3)"]
        else:  # it was late, too, by the time the dead were replaced
            assert stack.cloud.died["watcher"]
            assert "12:01" in covered(books, job)[-1]


class CoverBefore(CoverLatest):
    """A watcher stored a successor and vanished before it sent the first occurrence and deleted its
    entry. The first is missed now; its successor is not.
    """

    name = "cover missed: the successor is stored"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:57")
        stack.register(**dates("11:58", "11:59", "12:00"), misfire=RUN_LATEST)
        (first,) = stack.cloud.raw("due")
        watch(stack, "11:58")
        stack.system.database.put_item(TableName="due", Item=first)
        stack.purge()
        stack.at("11:59:30")

    def check(self, stack: Stack) -> None:
        books, job = stack.snapshot(), stack.job()
        assert covered(books, job) == ["11:58-11:58 (1)"]
        assert ran(books, job) == ["11:59", "12:00"]


class CoverLast(CoverLatest):
    """The job has no further run: the watcher completes it."""

    name = "cover missed: SKIP, the last"

    def prepare(self, stack: Stack) -> None:
        stack.register(**ONCE, misfire=SKIP)
        stack.at("12:02")

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED


class Quarantine(Flow):
    """An entry does not decode: its chain is restored, and it is quarantined."""

    name = "watcher: an entry does not decode"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        (entry,) = stack.cloud.raw("due")
        database = stack.system.database
        database.put_item(TableName="due", Item=entry | to_item({"kind": "BROKEN"}))
        stack.at("12:00")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        kept = [i for i in stack.cloud.items("due") if i["bucket"] == "quarantine"]
        assert len(kept) == 1


class Straggler(Flow):
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

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)


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
        assert stack.cloud.died["worker"] or "no longer exists" in (run.reason or "")
        assert not stack.starts
        assert stack.job().state is JobState.COMPLETED


class Replace(Flow):
    """The previous run has not ended when the next one is due; its worker vanished."""

    name = "overlap REPLACE: the previous run is running"
    until = "12:01:10"

    def prepare(self, stack: Stack) -> None:
        policy = {"maxAttempts": 3, "initialDelayMs": 600_000}
        dispatch(stack, **dates("12:00", "12:01"), overlap="REPLACE", retryPolicy=policy)
        lose_worker(stack)
        stack.at("12:01")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def script(self, call: ScriptCall) -> Script:
        first = call.environment["NEXTFIRE_SCHEDULED_AT"] == "2026-05-24T12:00:00Z"
        return Script(meanwhile=die) if first else Script()

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.CANCELLED
        assert stack.run("12:01").state is RunState.SUCCEEDED
        assert stack.job().state is JobState.COMPLETED


class ReplaceWaiting(Replace):
    name = "overlap REPLACE: the previous run waits"

    def script(self, call: ScriptCall) -> Script:
        first = call.environment["NEXTFIRE_SCHEDULED_AT"] == "2026-05-24T12:00:00Z"
        return Script(exit_code=int(first))


# The executor


class Succeed(Flow):
    name = "claim, finish: success"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)

    def act(self, stack: Stack) -> None:
        stack.worker().work()


class SucceedInLambda(Succeed):
    name = "claim, finish: on Lambda"

    def act(self, stack: Stack) -> None:
        stack.invoked().work()


class InTurn(Succeed):
    """Two runs of a job without overlap arrive at Lambda in one batch."""

    name = "claim, finish: in turn, on Lambda"
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **dates("12:00", "12:01"), overlap="QUEUE", misfire=RUN_ALL)
        watch(stack, "12:01")

    def act(self, stack: Stack) -> None:
        stack.invoked().work()

    def check(self, stack: Stack) -> None:
        first, second = stack.run("12:00"), stack.run("12:01")
        assert {first.state, second.state} <= {RunState.SUCCEEDED, RunState.DEAD}
        if stack.cloud.died["worker"] < self.lives:
            assert first.state is second.state is RunState.SUCCEEDED


class SucceedWithSecrets(Succeed):
    """The script's environment refers to a secret and to a parameter; the script assumes a role."""

    name = "claim, finish: secrets and a role"
    job_role = True

    def prepare(self, stack: Stack) -> None:
        process = Process(stack.cloud, "test", counted=False)
        process.secrets.create_secret(Name="nextfire/pools/default/acme/db", SecretString="xyz")
        process.parameters.put_parameter(
            Name="/nextfire/pools/default/acme/url", Value="abc", Type="String"
        )
        env = {"A": {"secret": "db"}, "B": {"parameter": "url"}}
        dispatch(stack, target={"handler": "report", "env": env})


class Heartbeat(Succeed):
    """A long script that prints, saves a checkpoint and returns a result."""

    name = "heartbeat"

    def script(self, call: ScriptCall) -> Script:
        lasts = timedelta(seconds=25 if attempt(call) == 1 else 0)
        return Script(lasts=lasts, stdout="a line\n" * 500, saves=LARGE, result=LARGE)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        result = stack.run().result
        assert result is not None
        assert result.file is not None
        answer = stack.system.files.get(RunFolder(run_key(), "default"), result.file)
        assert answer == LARGE


class Retry(Succeed):
    name = "finish: failure, a retry"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy={"maxAttempts": 3, "initialDelayMs": 2_000})

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if attempt(call) == 1 else 0, stdout="a line\n")


class Death(Succeed):
    name = "finish: death"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy=ONE_ATTEMPT)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        # assert_sound checks that the death was published
        assert stack.run().state is RunState.DEAD


class Settle(Succeed):
    name = "settle: the last run"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.job().state is JobState.COMPLETED


class SettleDeath(Death):
    name = "settle: the last run dies"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE, retryPolicy=ONE_ATTEMPT)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.job().state is JobState.COMPLETED


class HandBack(Succeed):
    """The worker gets SIGTERM while its script runs."""

    name = "hand-back"

    def act(self, stack: Stack) -> None:
        worker = stack.worker()
        stack.meanwhile = worker.stop
        worker.work()


class TakeOver(Succeed):
    name = "takeover of a lost worker's run"
    lives = 2
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        lose_worker(stack)
        stack.at("12:01:01")

    def script(self, call: ScriptCall) -> Script:
        return Script(meanwhile=die) if attempt(call) == 1 else Script()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert stack.run().attempt >= 2


class BuryLost(TakeOver):
    name = "death of a lost worker's run"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, retryPolicy=ONE_ATTEMPT)
        lose_worker(stack)
        stack.at("12:01:01")

    def check(self, stack: Stack) -> None:
        run = stack.run()
        assert (run.state, run.attempt) == (RunState.DEAD, 1)


class GiveBack(Flow):
    """The supervisor hands back what a dead worker held: a run, and a message without a claim."""

    name = "lost worker: hand back what it held"
    job_ids = ("first", "second")
    held: tuple[HeldMessage, ...] = ()
    loses = False

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id)
        watch(stack, "12:00")
        worker, self.loses = stack.worker(), True
        with suppress(Killed):
            worker.work(most=1)
        self.loses = False
        worker.receive()
        self.held = tuple(worker.journal.held())
        assert len(self.held) == len(self.job_ids)

    def act(self, stack: Stack) -> None:
        stack.supervisor(self.held)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die) if self.loses else Script()

    def check(self, stack: Stack) -> None:
        runs = [stack.run(job_id=job_id) for job_id in self.job_ids]
        lost = stack.cloud.died["worker"] >= self.lives - 1
        assert lost or {run.state for run in runs} == {RunState.SUCCEEDED}
        more = stack.cloud.died["worker"]
        assert 3 <= sum(run.attempt for run in runs) <= 3 + more
        if not stack.cloud.died:
            assert_before_the_lease_ends(*runs)


class DieSupervised(Succeed):
    """The worker dies at any of its calls. What it held is retried before the lease ends."""

    name = "lost worker: its supervisor survives"
    held: tuple[HeldMessage, ...] | None = None

    def act(self, stack: Stack) -> None:
        self.held, worker = None, stack.worker()
        try:
            worker.work()
        except Killed:
            self.held = tuple(worker.journal.held())
            stack.supervisor(self.held)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        # A message is hidden until the lease ends if the worker never saw its receipt.
        if self.held and stack.cloud.died.total() == 1:
            assert_before_the_lease_ends(stack.run())


def assert_before_the_lease_ends(*runs: Run) -> None:
    for run in runs:
        assert run.finished_at is not None
        assert run.finished_at < at("12:00") + LEASE / 2, f"{run.key.run_id}: {run.finished_at}"


class OverlapSkip(Flow):
    """The previous run had not ended when this one was due."""

    name = "overlap SKIP"
    until = "12:01:40"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **dates("12:00", "12:01"), overlap="SKIP")

        def meanwhile() -> None:
            watch(stack, "12:01")
            stack.clock.advance(seconds=1)

        stack.meanwhile = meanwhile
        stack.worker().work(most=1)

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(lasts=30 * SECOND)

    def check(self, stack: Stack) -> None:
        assert stack.run("12:00").state is RunState.SUCCEEDED
        assert stack.run("12:01").state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED


class TooLate(Flow):
    """The message waited longer than the run's relevancy window."""

    name = "skip: too late"
    until = "12:01:10"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE, misfire={"policy": "SKIP", "relevancyWindowSec": 30})
        stack.at("12:01")

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.SKIPPED
        assert stack.job().state is JobState.COMPLETED
        assert not stack.starts


class JobDeleted(Flow):
    """A worker vanished, and then the job was deleted."""

    name = "claim: the job was deleted"
    until = "12:01:20"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        lose_worker(stack)
        stack.api().jobs.delete(job_key(), now=stack.now)
        stack.at("12:01:01")

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(meanwhile=die)

    def check(self, stack: Stack) -> None:
        assert stack.run().state is RunState.CANCELLED
        assert stack.starts.total() == 0


class Undecodable(Flow):
    name = "a message does not decode"

    def prepare(self, stack: Stack) -> None:
        dispatch(stack)
        stack.system.send("rubbish", group="a", dedup="a")

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert "rubbish" in stack.letters
        assert "Message Undecodable" in stack.published


# The auditor


class Audit(Flow):
    """The auditor is invoked until its audit is done."""

    until = "12:40"

    def lose(self, stack: Stack) -> None:
        raise NotImplementedError

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, schedule="0 */6 * * *")
        self.lose(stack)
        watch(stack, "12:30:40")  # the cursor catches up

    def act(self, stack: Stack) -> None:
        report = stack.auditor()
        stack.answered = report if report.done else None

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            self.act(stack)

    def script(self, call: ScriptCall) -> Script:
        return Script(meanwhile=die) if attempt(call) == 1 and self.dies else Script()

    dies = False


class AuditEntry(Audit):
    name = "audit: a job without its entry"

    def lose(self, stack: Stack) -> None:
        stack.worker().work()
        (entry,) = stack.cloud.raw("due")
        key: Any = {name: entry[name] for name in ("bucket", "entry")}
        stack.system.database.delete_item(TableName="due", Key=key)


class AuditBackfill(Audit):
    name = "audit: a backfill without its entry"
    until = "12:00:40"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:40")
        BeginBackfill().ask(stack.api(), stack)
        (entry,) = [item for item in stack.cloud.items("due") if item["kind"] == "BACKFILL"]
        key: Any = {name: {"S": entry[name]} for name in ("bucket", "entry")}
        stack.system.database.delete_item(TableName="due", Key=key)
        watch(stack, "11:59:50")  # the cursor catches up

    def check(self, stack: Stack) -> None:
        assert stack.job().backfilling is None
        for time in ("09:00", "10:00", "11:00"):
            stack.assert_attempts(stack.run(time), 1)


class AuditMessage(Audit):
    name = "audit: a run without its message"

    def lose(self, stack: Stack) -> None:
        stack.purge()


class AuditRevive(Audit):
    name = "audit: a run without its worker"
    dies = True

    def lose(self, stack: Stack) -> None:
        lose_worker(stack)
        stack.purge()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        stack.assert_attempts(stack.run(), 2)


# Quotas. `Stack.assert_sound` checks the count of jobs for every flow.


class RegisterCounted(Register):
    name = "quota of jobs: register"
    quotas = ONE_JOB


class DeleteCounted(Delete):
    """Afterwards the quota has room for exactly one other job."""

    name = "quota of jobs: delete"
    quotas = ONE_JOB

    def check(self, stack: Stack) -> None:
        super().check(stack)
        stack.register("other")
        with pytest.raises(QuotaUsedUpError):
            stack.register("beyond")


class DeleteRunning(CancelRunning):
    """The only run of the job runs while the job is deleted: the job is completed once or not at
    all.
    """

    name = "quota of jobs: delete, the last run runs"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)

    def ask(self, api: Api, stack: Stack) -> object:
        return api.jobs.delete(job_key(), now=stack.now)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script()

    def check(self, stack: Stack) -> None:
        assert isinstance(stack.answered, Job | NotFoundError)
        assert stack.job().state is JobState.CANCELLED


class SettleCounted(Settle):
    name = "quota of jobs: settle"
    quotas = ONE_JOB


class CoverLastCounted(CoverLast):
    name = "quota of jobs: cover missed, the last"
    quotas = ONE_JOB


class Revive(RequestFlow):
    """A COMPLETED job is changed so that it fires again, and completes again."""

    name = "quota of jobs: a completed job is revived"
    until = "12:10:10"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, **ONCE)
        stack.worker().work()

    def ask(self, api: Api, stack: Stack) -> object:
        def edit(definition: JobDefinition) -> JobDefinition:
            again = {"schedule": "2026-05-24T12:10:00Z"}
            return JobDefinition.model_validate(definition.document() | again)

        return api.jobs.change(job_key(), edit, now=stack.now)

    def check(self, stack: Stack) -> None:
        assert ran(stack.snapshot(), stack.job()) == ["12:00", "12:10"]
        assert stack.job().state is JobState.COMPLETED


class EndOfLastPause(EndOfPause):
    """The last run ended during the pause: on resumption, the job is COMPLETED."""

    name = "quota of jobs: a job ends with its pause"
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        stack.at("11:54")
        dispatch(stack, "11:55", **dates("11:55"))
        stack.api().jobs.pause(job_key(), None, now=stack.now, until=at("12:05"))
        stack.worker().work()
        stack.at("12:05")

    def check(self, stack: Stack) -> None:
        assert stack.job().state is JobState.COMPLETED
        assert ran(stack.snapshot(), stack.job()) == ["11:55"]


class TickWithRates(Flow):
    """Of three due runs, one waits for the next minute, or longer if its watcher died between
    counting and sending.
    """

    name = "quotas of runs: tick"
    until = "12:01:10"
    quotas = TenantQuotas(default=Quotas(runs_per_minute=2, concurrent_runs=1))
    job_ids: tuple[str, ...] = ("first", "second", "third")

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, misfire=RUN_LATEST)
        stack.at("12:00")

    def act(self, stack: Stack) -> None:
        stack.watcher().live(SECOND)

    def check(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            run = stack.run(job_id=job_id)
            assert run.state is RunState.SUCCEEDED
            stack.assert_attempts(run, 1)
        assert max(stack.sent_per_minute.values()) <= 2


class TickOfWaiting(TickWithRates):
    """The next minute has begun for the waiting run."""

    name = "quotas of runs: the next minute"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        watch(stack, "12:00")
        stack.at("12:01")


class Park(TickWithRates):
    """Of four runs, one can be sent per minute. The last one is parked twice, the second time for
    two minutes, and is sent earlier, when the quota of the third minute is free.
    """

    name = "watcher: a parked entry is sent before its minute"
    until = "12:05:30"
    quotas = TenantQuotas(default=Quotas(runs_per_minute=1))
    job_ids = ("first", "second", "third", "fourth")

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, misfire=RUN_LATEST)
        for time in ("12:00", "12:01"):
            watch(stack, time)
        stack.at("12:02")

    def act(self, stack: Stack) -> None:
        watcher = stack.watcher()
        watcher.live(SECOND)
        stack.at("12:03:06")
        watcher.live(SECOND)

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert max(stack.sent_per_minute) <= at("12:04"), stack.sent_per_minute


class TakeOverWithRates(TickWithRates):
    """The holder sent all runs of the minute and vanished: the watcher that takes over sends no
    more in it.
    """

    name = "quotas of runs: a takeover of the lease"

    def prepare(self, stack: Stack) -> None:
        for job_id in ("first", "second"):
            stack.register(job_id, misfire=RUN_LATEST)
        late = {"type": "ONCE", "schedule": "2026-05-24T12:00:02Z"}
        stack.register("third", misfire=RUN_LATEST, **late)
        stack.at("12:00")
        stack.watcher().step()

    def act(self, stack: Stack) -> None:
        stack.watcher().live(4 * SECOND)

    def check(self, stack: Stack) -> None:
        runs = [stack.run(job_id="first"), stack.run(job_id="second")]
        runs.append(stack.run("12:00:02", "third"))
        assert {run.state for run in runs} == {RunState.SUCCEEDED}
        minutes = stack.sent_per_minute
        assert minutes == {at("12:00"): 2, at("12:01"): 1}, f"sent: {minutes}"


# Repeated requests to the API's handler


class Sent(Flow):
    """A request with an `Idempotency-Key`. Its caller repeats it every second until there is an
    answer, and then once more.
    """

    method = "POST"
    path = "/v1/jobs"
    body: Any = None
    key: str | None = "k"
    status = HTTPStatus.CREATED

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:52")

    def act(self, stack: Stack) -> None:
        answer = stack.send(self.method, self.path, self.body, key=self.key)
        if answer is not None and self.is_whole(answer):
            stack.answers.append(answer)

    def repeat(self, stack: Stack) -> None:
        if len(stack.answers) < 2:
            stack.clock.advance(seconds=1)
            self.act(stack)

    def is_whole(self, answer: Answer) -> bool:  # noqa: ARG002 — for flows with partial answers
        """Whether the answer is complete, so that the caller need not repeat the request."""
        return True

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert first == second
        assert first.status == self.status
        self.check_audit(stack)

    def check_audit(self, stack: Stack) -> None:
        """Each answer left its audit event; a request that died left none."""
        events = [each for each in stack.audited if each["status"] == self.status]
        assert len(events) == len(stack.answers)
        assert {each["idempotencyKey"] for each in events} == {self.key}


class CreateAgain(Sent):
    """The request has no job id to identify it: one job is created and counted once."""

    name = "sent again: create a job"
    body = HOURLY
    quotas = ONE_JOB

    def prepare(self, stack: Stack) -> None:
        """Start with an empty store."""

    def check(self, stack: Stack) -> None:
        super().check(stack)
        [job] = stack.snapshot().jobs.values()
        assert job.key.job_id == stack.answers[0].document["jobId"]
        assert job.revision == 1
        assert stack.run(job_id=job.key.job_id).state is RunState.SUCCEEDED
        [named] = {each["resource"]["jobId"] for each in stack.audited}
        assert named == job.key.job_id


class CreateRefused(Sent):
    name = "sent again: create a job beyond the quota"
    body = HOURLY
    quotas = ONE_JOB
    status = HTTPStatus.TOO_MANY_REQUESTS

    def check(self, stack: Stack) -> None:
        super().check(stack)
        assert [*stack.snapshot().jobs] == [job_key()]
        Flow.check(self, stack)


class CreateManyAgain(Sent):
    """The jobs are counted once: the quota has no room for more."""

    name = "sent again: create many jobs"
    path = "/v1/jobs:batch"
    body = {"jobs": [HOURLY, HOURLY]}  # noqa: RUF012 — read only
    quotas = TenantQuotas(default=Quotas(jobs=2))
    status = HTTPStatus.OK

    def prepare(self, stack: Stack) -> None:
        """Start with an empty store."""

    def is_whole(self, answer: Answer) -> bool:
        return not any("problem" in result for result in answer.document["results"])

    def check(self, stack: Stack) -> None:
        super().check(stack)
        listed = [result["job"]["jobId"] for result in stack.answers[0].document["results"]]
        jobs = stack.snapshot().jobs.values()
        assert sorted(job.key.job_id for job in jobs) == sorted(listed)
        for job_id in listed:
            assert stack.run(job_id=job_id).state is RunState.SUCCEEDED

    def check_audit(self, stack: Stack) -> None:
        # Partial answers left their events, too.
        assert len(stack.audited) >= len(stack.answers)
        assert {each["idempotencyKey"] for each in stack.audited} == {self.key}


class RunNowAgain(Sent):
    name = "sent again: run now"
    path = "/v1/jobs/report/run"
    body = {"payload": 7}  # noqa: RUF012

    def check(self, stack: Stack) -> None:
        super().check(stack)
        runs = stack.snapshot().runs.all.values()
        [run] = [run for run in runs if run.trigger is Trigger.MANUAL]
        assert run.state is RunState.SUCCEEDED
        stack.assert_attempts(run, 1)
        assert {each["resource"]["executionId"] for each in stack.audited} == {run.key.execution_id}
        Flow.check(self, stack)


class RedriveAgain(Sent):
    """The run would die again before a second redrive."""

    name = "sent again: redrive"
    status = HTTPStatus.OK

    def prepare(self, stack: Stack) -> None:
        stack.register(retryPolicy=ONE_ATTEMPT)
        watch(stack, "12:00")
        stack.worker().work()
        self.path = f"/v1/executions/{stack.run().key.execution_id}/redrive"

    def repeat(self, stack: Stack) -> None:
        if len(stack.answers) < 2:
            stack.clock.advance(seconds=1)
            stack.watcher().live(SECOND)
            stack.worker().work()
            self.act(stack)

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert {first.status, second.status} == {self.status}
        self.check_audit(stack)
        run = stack.run()
        assert run.state is RunState.DEAD
        stack.assert_attempts(run, 2)


class SkipNextAgain(Sent):
    """The request names no occurrence: whenever it arrives, another occurrence is the next."""

    name = "sent again: skip next"
    path = "/v1/jobs/report/skip-next"
    status = HTTPStatus.OK
    until = "12:02:10"

    def prepare(self, stack: Stack) -> None:
        stack.register(schedule="* * * * *")
        stack.at("11:59:52")

    def repeat(self, stack: Stack) -> None:
        if len(stack.answers) < 2:
            stack.clock.advance(minutes=1)
            self.act(stack)

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert {first.status, second.status} == {self.status}
        self.check_audit(stack)
        assert len(stack.job().skips) == 1


class BackfillAgain(Sent):
    name = "sent again: backfill"
    until = "12:00:30"
    path = "/v1/jobs/report/backfill"
    body = {"from": "2026-05-24T10:00:00Z", "to": "2026-05-24T12:00:00Z"}  # noqa: RUF012
    status = HTTPStatus.ACCEPTED

    def check(self, stack: Stack) -> None:
        super().check(stack)
        Flow.check(self, stack)
        for time in ("10:00", "11:00"):
            run = stack.run(time)
            assert (run.state, run.trigger) == (RunState.SUCCEEDED, Trigger.BACKFILL)
            stack.assert_attempts(run, 1)
        assert stack.job().backfill is None
        assert stack.job().revision == 3


class ManyAgain(Sent):
    """A call processes two of three jobs and returns a token to continue. A caller without an
    answer repeats the same call; each call has its own key.
    """

    name = "sent again: pause many jobs"
    path = "/v1/jobs:pause"
    job_ids = ("first", "second", "third")
    becomes = JobState.PAUSED
    status = HTTPStatus.OK

    def prepare(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            stack.register(job_id, labels={"team": "a"})
        stack.at("11:59:52")

    def act(self, stack: Stack) -> None:
        where: dict[str, Any] = {"labels": {"team": "a"}}
        if stack.answers:
            where["progressToken"] = stack.answers[0].document["progressToken"]
        answer = stack.send(self.method, self.path, where, key=f"k{len(stack.answers)}")
        if answer is not None and not answer.document["failed"]:
            stack.answers.append(answer)
            if len(stack.answers) == 1:
                self.act(stack)

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert (first.document["matched"], second.document["matched"]) <= (2, 1)
        assert "progressToken" not in second.document
        for job in stack.snapshot().jobs.values():
            assert (job.state, job.revision) == (self.becomes, 2)
        assert len(stack.audited) >= len(stack.answers)
        assert {each["idempotencyKey"] for each in stack.audited} == {"k0", "k1"}


class ResumeManyAgain(ManyAgain):
    name = "sent again: resume many jobs"
    path = "/v1/jobs:resume"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        for job_id in self.job_ids:
            stack.api().jobs.pause(job_key(job_id), None, now=stack.now)

    def check(self, stack: Stack) -> None:
        for job_id in self.job_ids:
            assert (stack.job(job_id).state, stack.job(job_id).revision) == (JobState.ACTIVE, 3)
            assert stack.run(job_id=job_id).state is RunState.SUCCEEDED


class CancelManyAgain(ManyAgain):
    name = "sent again: cancel many jobs"
    path = "/v1/jobs:cancel"
    becomes = JobState.CANCELLED
    quotas = TenantQuotas(default=Quotas(jobs=3))


class Put(Sent):
    """A PUT needs no key: repeated, it finds the job in the requested state."""

    name = "put: new"
    method = "PUT"
    path = "/v1/jobs/report"
    body = HOURLY
    key = None
    quotas = ONE_JOB
    revision = 1

    def prepare(self, stack: Stack) -> None:
        """Start with an empty store."""

    def check(self, stack: Stack) -> None:
        first, second = stack.answers
        assert first.status in {HTTPStatus.CREATED, HTTPStatus.OK}
        assert second.status == HTTPStatus.OK
        assert first.document == second.document
        assert stack.job().revision == self.revision
        Flow.check(self, stack)


class PutChanged(Put):
    name = "put: changed"
    body = HOURLY | {"schedule": "30 * * * *"}
    revision = 2
    until = "12:30:10"

    def prepare(self, stack: Stack) -> None:
        stack.register()

    def check(self, stack: Stack) -> None:
        assert stack.run("12:30").state is RunState.SUCCEEDED
        assert ran(stack.snapshot(), stack.job()) == ["12:30"]
        assert stack.job().revision == self.revision


class PutOverDeleted(Put):
    name = "put: in place of a deleted job"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.api().jobs.delete(job_key(), now=stack.now)
        stack.clock.advance(seconds=1)


class CreateKey(Sent):
    """The key's text is returned once, not to repeated requests; the key itself is created once."""

    name = "sent again: create a key"
    path = "/v1/keys"
    body = {"name": "n", "scopes": ["read"]}  # noqa: RUF012

    def prepare(self, stack: Stack) -> None:
        """Start with an empty store."""

    def script(self, call: ScriptCall) -> Script:
        raise AssertionError(call)

    def check(self, stack: Stack) -> None:
        [key] = stack.cloud.items(stack.system.keys_table)
        assert {each.document["keyId"] for each in stack.answers} == {key["key_id"]}
        assert "key" not in stack.answers[1].document
        assert stack.answers[0].document.get("key", key["key_id"])
        self.check_audit(stack)


class RotateKey(CreateKey):
    """The new key exists before the old one ends, and there is only one new key."""

    name = "sent again: rotate a key"
    body = {"overlapSec": 3600}  # noqa: RUF012

    def prepare(self, stack: Stack) -> None:
        made = stack.send("POST", "/v1/keys", CreateKey.body)
        assert made is not None
        stack.audited.clear()
        stack.clock.advance(seconds=1)
        self.path = f"/v1/keys/{made.document['keyId']}/rotate"

    def check(self, stack: Stack) -> None:
        old, new = sorted(
            stack.cloud.items(stack.system.keys_table), key=lambda key: str(key["created_at"])
        )
        assert {each.document["new"]["keyId"] for each in stack.answers} == {new["key_id"]}
        made_at, ends_at = parse_instant(new["created_at"]), parse_instant(old["expires_at"])
        assert ends_at - made_at == timedelta(hours=1)
        self.check_audit(stack)


class AppendChanges(Flow):
    """The function dies while it appends; the stream delivers the batch again, with later changes,
    to another process. Each change is in the chain once.
    """

    name = "audit log: append changes"

    def script(self, call: ScriptCall) -> Script:
        raise AssertionError(call)

    def prepare(self, stack: Stack) -> None:
        self._deliver(stack, "a")

    def act(self, stack: Stack) -> None:
        self._deliver(stack, "b", "c")

    def repeat(self, stack: Stack) -> None:
        # Lambda delivers a batch again until an invocation succeeds.
        if stack.answered != "d":
            self._deliver(stack, "b", "c", "d")

    def check(self, stack: Stack) -> None:
        while stack.answered != "d":
            self._deliver(stack, "b", "c", "d")
        batch: Batch | None = self.log(stack).last()
        batches: list[Batch] = []
        while batch is not None:
            batches.insert(0, batch)
            before = batch.number - 1
            batch = self.log(stack).read(before) if before else None
        verify(batches)
        ids = [event["id"] for batch in batches for event in batch.events]
        assert ids == ["a", "b", "c", "d"]

    @staticmethod
    def log(stack: Stack) -> S3AuditLog:
        adapters = stack.process("auditlog")
        return S3AuditLog(adapters.process.s3, bucket=stack.system.outputs_bucket)

    def _deliver(self, stack: Stack, *ids: str) -> None:
        changes = [ItemChange(each, "jobs", "MODIFY", {"job_id": each}, stack.now) for each in ids]
        with suppress(UnavailableError):
            RecordChanges(self.log(stack), stack.clock).record(changes)
            stack.answered = ids[-1]


FLOWS: list[Flow] = [
    AppendChanges(),
    *(Register(), Change(), ChangePayload(), Pause(), Drain(), Resume(), Delete(), DeletePaused()),
    *(CancelUnclaimed(), CancelWaiting(), CancelLost(), CancelRunning(), Redrive(), RedrivePool()),
    *(RunNow(), SkipNext(), Unskip(), PauseUntil(), EndOfPause()),
    *(BeginBackfill(), StopBackfill(), TickOfBackfill()),
    *(Tick(), TickOfManyBuckets(), TickOfMoved(), TickOfRetry(), TakeLease(), ReleaseLease()),
    *(SendLatest(), SendFresh()),
    *(CoverLatest(), CoverBefore(), CoverLast(), Quarantine(), Straggler(), CarryAlong()),
    RemovedPool(),
    *(Replace(), ReplaceWaiting()),
    *(Succeed(), SucceedInLambda(), InTurn(), SucceedWithSecrets(), Heartbeat(), Retry()),
    *(Death(), Settle(), SettleDeath()),
    *(GiveBack(), DieSupervised()),
    *(HandBack(), TakeOver(), BuryLost(), OverlapSkip(), TooLate(), JobDeleted(), Undecodable()),
    *(AuditEntry(), AuditBackfill(), AuditMessage(), AuditRevive()),
    *(RegisterCounted(), DeleteCounted(), DeleteRunning(), SettleCounted(), CoverLastCounted()),
    *(Revive(), EndOfLastPause(), TickWithRates(), TickOfWaiting(), TakeOverWithRates(), Park()),
    *(CreateAgain(), CreateRefused(), CreateManyAgain(), RunNowAgain(), BackfillAgain()),
    *(RedriveAgain(), SkipNextAgain()),
    *(ManyAgain(), ResumeManyAgain(), CancelManyAgain()),
    *(Put(), PutChanged(), PutOverDeleted(), CreateKey(), RotateKey()),
]
