"""Requests that register, change, pause, resume and delete jobs."""

from __future__ import annotations

from typing import Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ConflictError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.find_outstanding import has_outstanding
from tests.accounting import covered, ran
from tests.builders import RUN_LATEST, a_definition, at, job_key
from tests.crashes.flow import EVERY_TEN, RequestFlow, WatcherFlow
from tests.crashes.processes import Api
from tests.crashes.stack import Stack


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


class EndOfPause(WatcherFlow):
    """The watcher resumes the job."""

    name = "tick: a pause ends"
    until = "12:10:10"

    def prepare(self, stack: Stack) -> None:
        stack.at("11:35")
        stack.register(**EVERY_TEN, misfire=RUN_LATEST)
        stack.api().jobs.pause(job_key(), None, now=stack.now, until=at("12:05"))
        stack.at("12:05")

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
