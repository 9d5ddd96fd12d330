"""Requests in addition to a schedule, on the deployed stack: run now, skip, timed pause.

IAM is enforced: here the API writes run records and requests, and the watcher changes a job.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import COUNTING, Document, User, instant, soon, until


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for pool in stack.info.pools:
        stack.put_script(pool, "counting", COUNTING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def counting(user: User, pool: str = "default", **more: Any) -> Document:
    target = {"pool": pool, "handler": "counting"}
    return user.create(target=target, payload={"marks": str(user.marks)}, **more)


@pytest.mark.parametrize("pool", ["default", "lambda"])
def test_a_request_that_comes_twice_is_one_run_with_the_payload_that_it_brought(
    user: User, pool: str
) -> None:
    job = counting(user, pool, type="MANUAL")
    body = {"payload": {"marks": str(user.marks), "word": "overridden"}, "reason": "a test"}
    key = {"Idempotency-Key": f"now-{job['jobId']}"}
    path = f"/v1/jobs/{job['jobId']}/run"

    first, again = (user.http.post(path, json=body, headers=key) for _ in range(2))

    assert (first.status_code, again.status_code) == (201, 201)
    [run] = user.ended(job)
    assert run["executionId"] == first.json()["executionId"] == again.json()["executionId"]
    assert (run["state"], run["trigger"]) == ("SUCCEEDED", "MANUAL")
    assert run["stdout"] == "ran with overridden\n"
    assert user.marked() == [run["executionId"]]
    other = user.http.post(path, json={}, headers=key)
    assert other.status_code == 422, other.text


def test_an_occurrence_that_is_to_be_skipped_does_not_run_and_the_next_one_does(
    user: User,
) -> None:
    job = counting(user, type="INTERVAL", schedule="PT8S", maxRuns=2)
    path = f"/v1/jobs/{job['jobId']}/skip-next"

    [skipped] = user.call("POST", path, {"reason": "a test"})["skips"]

    assert user.call("POST", path)["skips"] == [skipped]
    user.call("DELETE", path, expect=409)  # it is due within a minute
    [ran] = user.ended(job)[:1]
    records = user.runs(job)
    assert [record["state"] for record in records] == ["SUCCEEDED", "SKIPPED"]
    assert [instant(record["scheduledAt"]) for record in records] == [
        instant(skipped) + timedelta(seconds=8),
        instant(skipped),
    ]
    assert user.marked() == [ran["executionId"]]


def test_a_skip_is_taken_back(user: User) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    job = counting(user, type="ONCE", schedule=at.isoformat())
    path = f"/v1/jobs/{job['jobId']}/skip-next"
    [skipped] = user.call("POST", path)["skips"]
    [record] = user.runs(job)
    assert record["state"] == "SKIPPED"

    after = user.call("DELETE", path)

    assert instant(after["nextFireAt"]) == at == instant(skipped)
    assert "skips" not in after
    assert user.runs(job) == []
    user.call("DELETE", path, expect=404)


def test_a_pause_ends_by_itself_and_what_was_due_in_it_runs(user: User) -> None:
    until_at = soon(12)
    job = counting(user, type="ONCE", schedule=soon(8).isoformat())
    path = f"/v1/jobs/{job['jobId']}"

    paused = user.call("POST", f"{path}/pause", {"until": until_at.isoformat()})

    assert (paused["state"], instant(paused["resumesAt"])) == ("PAUSED", until_at)
    [run] = user.ended(job)
    assert run["state"] == "SUCCEEDED"
    assert instant(run["dispatchedAt"]) >= until_at
    until(lambda: user.call("GET", path)["state"] == "COMPLETED", "the end of the job")
    assert user.marked() == [run["executionId"]]


def test_the_later_of_two_concurrent_changes_is_rejected(user: User) -> None:
    job = counting(user, type="MANUAL")
    path = f"/v1/jobs/{job['jobId']}"
    seen = {"If-Match": user.http.get(path).headers["etag"]}

    first = user.http.patch(path, json={"name": "first"}, headers=seen)
    late = user.http.patch(path, json={"name": "late"}, headers=seen)

    assert (first.status_code, late.status_code) == (200, 412)
    assert user.call("GET", path)["name"] == "first"


@pytest.mark.parametrize("pool", ["default", "lambda"])
def test_occurrences_of_the_past_run_once_each_and_the_backfill_is_over(
    user: User, pool: str
) -> None:
    job = counting(user, pool, type="CRON", schedule="0 0 1 1 *")
    body = {"from": "2010-01-01T00:00:00Z", "to": "2023-01-01T00:00:00Z", "reason": "a test"}
    path = f"/v1/jobs/{job['jobId']}"
    key = {"Idempotency-Key": f"backfill-{job['jobId']}"}

    first, again = (user.http.post(f"{path}/backfill", json=body, headers=key) for _ in range(2))

    assert (first.status_code, again.status_code) == (202, 202), first.text
    asked = first.json()
    assert (asked["count"], asked["first"]) == (13, "2010-01-01T00:00:00Z")
    assert again.json() == asked
    until(lambda: "backfill" not in user.call("GET", path), "the end of the backfill")
    runs = user.ended(job)
    assert [instant(run["scheduledAt"]).year for run in runs] == [*range(2022, 2009, -1)]
    assert {(run["state"], run["trigger"]) for run in runs} == {("SUCCEEDED", "BACKFILL")}
    assert sorted(user.marked()) == sorted(run["executionId"] for run in runs)
    user.call("DELETE", f"{path}/backfill", expect=404)
