"""Pause and resume, misfire and overlap policies and the relevancy window on the deployed stack.

The watcher writes and reads run records here. IAM is enforced, so this also tests its permissions.
"""

import itertools
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import Document, User, instant, soon, until

PERIOD = timedelta(seconds=2)
SLEEPING = "import json, sys, time; time.sleep(json.load(sys.stdin)['sleep'])"
ENDED = {"SUCCEEDED", "CANCELLED", "SKIPPED", "DEAD"}


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for pool in stack.info.pools:
        stack.put_script(pool, "sleeping", SLEEPING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def every_two_seconds(user: User, sleep: float = 0, **more: Any) -> Document:
    return user.create(
        type="INTERVAL",
        schedule="PT2S",
        target={"handler": "sleeping"},
        payload={"sleep": sleep},
        **more,
    )


def change(user: User, job: Document, verb: str, body: Any = None) -> Document:
    return user.call("POST", f"/v1/jobs/{job['jobId']}/{verb}", body)


def is_completed(user: User, job: Document) -> bool:
    state: str = user.call("GET", f"/v1/jobs/{job['jobId']}")["state"]
    return state == "COMPLETED"


def oldest_first(user: User, job: Document) -> list[Document]:
    return user.runs(job)[::-1]


def covered(record: Document) -> list[datetime]:
    """The occurrences that *record* covers."""
    first = instant(record["scheduledAt"])
    count = record["range"]["count"] if "range" in record else 1
    occurrences = [first + n * PERIOD for n in range(count)]
    assert instant(record.get("range", {}).get("to", record["scheduledAt"])) == occurrences[-1]
    return occurrences


def assert_each_occurrence_has_one_record(job: Document, records: list[Document]) -> None:
    found = [at for record in records for at in covered(record)]
    created = instant(job["createdAt"])
    assert found == [created + n * PERIOD for n in range(1, len(found) + 1)]


def assert_one_at_a_time(records: list[Document]) -> None:
    started = [record for record in records if "startedAt" in record]
    for before, after in itertools.pairwise(started):
        assert instant(before["finishedAt"]) <= instant(after["startedAt"]), (before, after)


def test_what_was_due_in_a_pause_falls_under_the_misfire_policy(user: User) -> None:
    policies = ("RUN_ALL", "RUN_LATEST", "SKIP")
    jobs = {name: every_two_seconds(user, misfire={"policy": name}) for name in policies}
    for job in jobs.values():
        until(partial(user.runs, job), "a first run")
    only = user.once(soon(3), handler="sleeping", misfire={"policy": "SKIP"})
    paused = {name: change(user, job, "pause", {"reason": "a test"}) for name, job in jobs.items()}
    change(user, only, "pause")
    time.sleep(6.2)
    resumed = {name: change(user, job, "resume") for name, job in jobs.items()}
    change(user, only, "resume")

    # No occurrence is left: the watcher completes the job.
    until(partial(is_completed, user, only), "completion of a job whose only run is skipped")
    assert [record["state"] for record in user.runs(only)] == ["SKIPPED"]
    for name, job in jobs.items():
        assert (paused[name]["state"], paused[name]["pauseReason"]) == ("PAUSED", "a test")
        assert resumed[name]["state"] == "ACTIVE"
        begin, end = instant(paused[name]["pausedAt"]), instant(resumed[name]["updatedAt"])

        def later(job: Document = job, end: datetime = end) -> list[Document] | None:
            """All records, once two runs that were due after the resumption have ended."""
            records = oldest_first(user, job)
            over = [r for r in records if r["state"] in ENDED and instant(r["scheduledAt"]) > end]
            return records if len(over) >= 2 else None

        records: list[Document] = until(later, f"two runs of {name} after the pause")
        assert_each_occurrence_has_one_record(job, records)
        during = [at for r in records for at in covered(r) if begin < at <= end]
        assert len(during) >= 3
        skipped = [record for record in records if record["state"] == "SKIPPED"]
        ran = [
            record
            for record in records
            if record["state"] != "SKIPPED" and begin < instant(record["scheduledAt"]) <= end
        ]
        if name == "RUN_ALL":
            assert skipped == []
            assert [instant(record["scheduledAt"]) for record in ran] == during
            reasons = {record["dispatchReason"] for record in ran}
            assert reasons == {"due during a pause; misfire policy RUN_ALL"}
            continue
        assert [at for record in skipped for at in covered(record) if at > end] == []
        for record in skipped:
            assert record["reason"] == f"due during a pause; misfire policy {name}"
        record = skipped[0]
        assert covered(record)[0] == during[0]
        if name == "SKIP":
            assert ran == []
            assert covered(record) == during
        else:
            # The latest occurrence due when the watcher handled the job, if it was due during the
            # pause.
            assert len(covered(record)) >= len(during) - 1
            assert len(ran) <= 1
        # An occurrence inside the range returns the record that covers it.
        inside = record["executionId"].replace(_stamp(during[0]), _stamp(during[1]))
        assert inside != record["executionId"]
        assert user.call("GET", f"/v1/executions/{inside}") == record


def _stamp(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def test_a_job_that_drains_ends_what_runs_and_begins_nothing(user: User) -> None:
    job = every_two_seconds(user, sleep=6)
    until(partial(user.runs, job), "a first run")

    drained = change(user, job, "drain", {"reason": "a test"})

    assert (drained["draining"], drained["pauseReason"]) == (True, "a test")

    def is_drained() -> bool:
        return "draining" not in user.call("GET", f"/v1/jobs/{job['jobId']}")

    until(is_drained, "the end of the running run")
    records = oldest_first(user, job)
    assert {record["state"] for record in records} == {"SUCCEEDED"}
    asked_at = instant(drained["drainAskedAt"])
    assert all(instant(record["scheduledAt"]) <= asked_at for record in records)
    assert_each_occurrence_has_one_record(job, records)
    assert instant(records[-1]["scheduledAt"]) > asked_at - PERIOD


def test_runs_that_wait_for_each_other_never_overlap(user: User) -> None:
    counts = {"QUEUE": (3, 4), "SKIP": (3, 5), "REPLACE": (5, 4)}
    jobs = {
        name: every_two_seconds(user, sleep, overlap=name, maxRuns=count)
        for name, (sleep, count) in counts.items()
    }
    records: dict[str, list[Document]] = {}
    for name, job in jobs.items():
        _, count = counts[name]

        def over(job: Document = job, count: int = count) -> list[Document] | None:
            found = oldest_first(user, job)
            ended = all(record["state"] in ENDED for record in found)
            return found if len(found) == count and ended else None

        records[name] = until(over, f"the end of {name}")
        assert_each_occurrence_has_one_record(job, records[name])
        assert_one_at_a_time(records[name])
        until(partial(is_completed, user, job), f"completion of {name}")
    states = {name: [record["state"] for record in found] for name, found in records.items()}

    assert states["QUEUE"] == ["SUCCEEDED"] * 4

    assert states["SKIP"][:2] == ["SUCCEEDED", "SKIPPED"]
    assert set(states["SKIP"]) == {"SUCCEEDED", "SKIPPED"}
    first, second = records["SKIP"][:2]
    assert second["reason"] == (
        f"overlap policy SKIP: {first['executionId']} had not ended when it was due"
    )

    assert states["REPLACE"][0] == "CANCELLED"
    assert states["REPLACE"][-1] == "SUCCEEDED"
    assert set(states["REPLACE"]) <= {"CANCELLED", "SKIPPED", "SUCCEEDED"}
    for record in records["REPLACE"][:-1]:
        replaced = "overlap policy REPLACE: replaced by the occurrence at "
        assert record["reason"].startswith(replaced)
        by = instant(record["reason"].removeprefix(replaced))
        assert by > instant(record["scheduledAt"])
    [attempt] = records["REPLACE"][0]["attempts"]
    assert attempt["outcome"] == "CANCELLED"


def test_a_run_that_is_picked_up_too_late_is_skipped(user: User) -> None:
    # Locally the Lambda executor takes one message at a time: the others wait behind the first.
    busy = user.once(soon(), handler="sleeping", pool="lambda", payload={"sleep": 7})
    until(lambda: user.runs(busy), "the claim of the run that keeps the executor busy")
    window = {"relevancyWindowSec": 2}
    stale = user.once(soon(1), handler="sleeping", pool="lambda", misfire=window)
    patient = user.once(soon(1), handler="sleeping", pool="lambda", payload={"sleep": 0})
    [to_come] = user.call("GET", f"/v1/jobs/{patient['jobId']}/upcoming")["items"]
    execution = f"/v1/executions/{to_come['executionId']}"
    user.call("GET", execution, expect=404)
    until(lambda: user.http.get(execution).status_code == 200, "the due time")
    assert user.call("GET", execution)["state"] == "PENDING"

    [record] = until(lambda: user.runs(stale), "the record of the late run")

    assert record["state"] == "SKIPPED"
    assert record["reason"].startswith("picked up ")
    assert record["reason"].endswith(" s late; relevancyWindowSec is 2 s")
    assert "startedAt" not in record
    assert record["attempts"] == []
    [run] = user.ended(patient)
    assert run["state"] == "SUCCEEDED"
    assert user.call("GET", execution) == run
