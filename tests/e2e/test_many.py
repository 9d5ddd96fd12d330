"""Bulk operations, and scripts uploaded only through the API, on the deployed stack."""

import hashlib
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire import Client, ClientError
from tests.e2e.conftest import Stack
from tests.e2e.user import User, soon

SOURCE = b"print('by the api')\n"


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    with stack.api() as http:
        yield User(stack, http, scratch)


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.info.endpoint, stack.info.api_key) as client:
        yield client


def test_a_batch_is_made_paused_resumed_and_cancelled_by_its_label(
    user: User, client: Client
) -> None:
    mark = secrets.token_hex(4)
    job: dict[str, Any] = {
        "type": "CRON",
        "schedule": "0 3 * * *",
        "target": {"handler": "counting"},
        "labels": {"batch": mark},
    }
    jobs = [job | {"jobId": f"{mark}-{n}"} for n in range(3)]

    made = client.create_jobs([*jobs, job | {"timeout_sec": 1}], idempotency_key=mark)
    again = client.create_jobs([*jobs, job | {"timeout_sec": 1}], idempotency_key=mark)

    assert [each.status for each in made.results] == [201, 201, 201, 422]
    assert [each.status for each in again.results] == [201, 201, 201, 422]
    problem = made.results[3].problem
    assert problem is not None
    assert [fault.field for fault in problem.errors or ()] == ["jobs[3].timeout_sec"]
    for act, state in (
        (client.pause_jobs, "PAUSED"),
        (client.resume_jobs, "ACTIVE"),
        (client.cancel_jobs, "CANCELLED"),
    ):
        done = act({"batch": mark})
        assert (done.matched, done.changed, done.failed) == (3, 3, [])
        assert done.progress_token is None
        found = list(client.jobs(label=f"batch:{mark}"))
        assert [each.state for each in found] == [state] * 3
    assert user.call("POST", "/api/v1/jobs:pause", {"labels": {"batch": mark}})["matched"] == 0


def test_a_script_comes_by_the_api_and_runs(user: User, client: Client) -> None:
    name = f"pushed-{secrets.token_hex(4)}"
    for source in (b"raise SystemExit(1)", SOURCE):
        client.push_script(name, source)

    job = user.once(soon(1), handler=name)
    [run] = user.ended(job)

    assert (run["state"], run["stdout"]) == ("SUCCEEDED", "by the api\n")
    versions = client.list_script_versions("default", name).items
    assert [each.latest for each in versions] == [True, False]
    assert name in [each.handler for each in client.scripts(pool="default")]
    since = datetime.now(UTC) - timedelta(hours=1)
    found = client.all_executions(job_id=job["jobId"], from_=since)
    assert [each.execution_id for each in found] == [run["executionId"]]


def test_an_upload_is_for_what_was_asked_for_and_nothing_else(client: Client) -> None:
    name = f"pushed-{secrets.token_hex(4)}"
    upload = client.upload_script(name, size=len(SOURCE), sha256=hashlib.sha256(SOURCE).hexdigest())
    other = upload.upload_url.replace(f"/{name}.py", "/other.py")
    assert other != upload.upload_url

    for url, body in ((upload.upload_url, SOURCE.upper()), (other, SOURCE)):
        assert not httpx2.put(url, content=body, headers=upload.headers).is_success

    assert httpx2.put(upload.upload_url, content=SOURCE, headers=upload.headers).is_success
    with pytest.raises(ClientError):
        client.list_script_versions("default", "other")
