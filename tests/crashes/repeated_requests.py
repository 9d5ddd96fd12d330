"""Requests about jobs and keys that are repeated under an idempotency key, to the API's handler."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import Any

from nextfire.domain.instants import parse_instant
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.quotas import Quotas, TenantQuotas
from nextfire.domain.run import RunState
from tests.accounting import ran
from tests.builders import job_key
from tests.crashes.flow import HOURLY, ONE_JOB, Flow
from tests.crashes.stack import Stack
from tests.fakes import Script
from tests.integration.deployment import Answer


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
