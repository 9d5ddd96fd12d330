"""An apply of a pipeline that dies at any call is completed by the next one."""

from __future__ import annotations

from threading import Lock
from typing import Any

import httpx2
import pytest

from nextfire import Client
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.document import OWNER, Pipeline
from nextfire.client.pipelines.document import read as read_document
from tests.fakes import Killed
from tests.integration.deployment import Deployment
from tests.integration.test_client import Handler

CHANGES = 4


class Dying(Handler):
    """Kills the client before, or after, the change number `at`, from 0."""

    at, after = -1, False

    def __init__(self, system: Deployment) -> None:
        super().__init__(system)
        self._turn = Lock()  # a function handles one request at a time

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        with self._turn:
            return self._handle(request)

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return super().handle_request(request)
        self.at -= 1
        if self.at == -1 and not self.after:
            raise Killed
        response = super().handle_request(request)
        if self.at == -1:
            raise Killed
        return response


@pytest.fixture
def dying(system: Deployment) -> Dying:
    return Dying(system)


@pytest.fixture
def client(dying: Dying) -> Client:
    return Client("https://api.example.com", auth=httpx2.Auth(), transport=dying)


def job(job_id: str, *parents: str, **fields: Any) -> dict[str, Any]:
    when: dict[str, Any] = {"type": "MANUAL"}
    if parents:
        when = {"type": "AFTER", "after": [{"job": parent} for parent in parents]}
    return {"jobId": job_id, "target": {"handler": "hello"}} | when | fields


def apply(client: Client, pipelines: list[Pipeline]) -> list[str]:
    """Apply; returns what was changed."""
    found = make_plan(client, pipelines)
    done: list[str] = []
    apply_plan(client, found, report=lambda change: done.append(f"{change.action} {change.job_id}"))
    return done


@pytest.mark.parametrize("after", [False, True])
def test_an_apply_that_dies_at_any_change_is_completed_by_the_next(
    client: Client, dying: Dying, *, after: bool
) -> None:
    for number in range(CHANGES):
        a, b, c, d = (f"{name}{number}" for name in "abcd")
        first = [job(a), job(b, a), job(d, b)]
        second = [job(a, priority="HIGH"), job(b), job(c, a)]  # d goes, and b is before all others
        old, new = (
            read_document({"pipeline": f"p{number}", "jobs": jobs}) for jobs in (first, second)
        )
        assert len(apply(client, old)) == len(first)

        dying.at, dying.after = number, after
        with pytest.raises(Killed):
            apply(client, new)
        left = apply(client, new)

        assert len(left) == CHANGES - number - after
        assert apply(client, new) == []
        jobs = {each: client.get_job(each) for each in (a, b, c)}
        assert all(each.labels == {OWNER: f"p{number}"} for each in jobs.values())
        assert [jobs[a].priority, jobs[b].type, jobs[c].after[0].job] == ["HIGH", "MANUAL", a]
        assert client.get_job(d).state == "CANCELLED"
