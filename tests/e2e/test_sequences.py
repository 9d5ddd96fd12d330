"""Sequences on the deployed stack: chains, joins, results passed on. IAM is enforced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import Document, User, until

STEP = """
import os, sys
import nextfire_job as job

payload, upstream = job.payload(), job.upstream()
if payload.get("fails") and job.context().attempt == 1:
    sys.exit("failed once")
if payload.get("broken") and not os.path.exists(payload["broken"]):
    sys.exit("broken")
runs = [run for parent in upstream.values() for run in parent.get("runs", [parent])]
job.result({"sum": payload["adds"] + sum(run["result"]["sum"] for run in runs)})
"""

_SOME_TRIES = 4


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for pool in ("default", "lambda"):
        stack.put_script(pool, "step", STEP)
    with stack.api() as http:
        yield User(stack, http, scratch)


def step(user: User, *parents: Document, pool: str = "default", **more: Any) -> Document:
    """A job that adds 1 to the sum of its parents' results."""
    kind: dict[str, Any] = {"type": "MANUAL"}
    if parents:
        kind = {"type": "AFTER", "after": [{"job": parent["jobId"]} for parent in parents]}
    payload = {"adds": 1} | more.pop("payload", {})
    target = {"pool": pool, "handler": "step"}
    return user.create(target=target, payload=payload, **kind, **more)


def start(user: User, job: Document) -> None:
    user.call("POST", f"/v1/jobs/{job['jobId']}/run", {}, 201)


def run_of(user: User, job: Document, *states: str) -> Document:
    """The only run of *job*, once it is in one of *states*."""

    def check() -> Document | None:
        runs = user.runs(job)
        return runs[0] if len(runs) == 1 and runs[0]["state"] in states else None

    found: Document = until(check, f"a run of {job['jobId']} in {states}")
    return found


def result_of(user: User, run: Document) -> Any:
    return user.call("GET", f"/v1/executions/{run['executionId']}")["result"]


@pytest.mark.parametrize("pools", [("default",) * 3, ("default", "lambda", "default")])
def test_a_chain_passes_results_on(user: User, pools: tuple[str, ...]) -> None:
    first = step(user, pool=pools[0])
    second = step(user, first, pool=pools[1])
    third = step(user, second, pool=pools[2])

    start(user, first)

    last = run_of(user, third, "SUCCEEDED")
    assert result_of(user, last) == {"sum": 3}
    times = [run_of(user, job, "SUCCEEDED")["scheduledAt"] for job in (first, second, third)]
    assert len({*times}) == 1


def test_a_diamond_whose_branch_fails_once_runs_its_end_once(user: User) -> None:
    a = step(user)
    retries = {"maxAttempts": 2, "initialDelayMs": 1000}
    b = step(user, a, payload={"fails": True}, retryPolicy=retries)
    c = step(user, a, pool="lambda")
    d = step(user, b, c)

    start(user, a)

    last = run_of(user, d, "SUCCEEDED")
    assert result_of(user, last) == {"sum": 5}
    assert run_of(user, b, "SUCCEEDED")["attempt"] == 2
    assert run_of(user, d, "SUCCEEDED")["attempt"] == 1


def test_a_dead_link_is_fixed_and_the_chain_continues_from_there(user: User, scratch: Path) -> None:
    fixed = scratch / "fixed"
    a = step(user)
    b = step(user, a, payload={"broken": str(fixed)}, retryPolicy={"maxAttempts": 1})
    c = step(user, b)
    start(user, a)
    dead = run_of(user, b, "DEAD")
    skipped = run_of(user, c, "SKIPPED")
    assert skipped["reason"] == f"trigger rule ALL_SUCCEEDED: {b['jobId']} FAILED"

    fixed.touch()
    fixed.chmod(0o666)
    user.call("POST", f"/v1/executions/{dead['executionId']}/redrive", {}, 200)

    assert result_of(user, run_of(user, c, "SUCCEEDED")) == {"sum": 3}
    assert run_of(user, a, "SUCCEEDED")["attempt"] == 1


def test_jobs_with_a_schedule_run_after_their_parents(user: User) -> None:
    at = datetime.now(UTC) + timedelta(seconds=10)
    once: dict[str, Any] = {"type": "ONCE", "schedule": at.isoformat()}
    target = {"target": {"handler": "step"}, "payload": {"adds": 1}}
    a = user.create(**target, **once, priority="LOW")
    same = user.create(**target, **once, after=[{"job": a["jobId"]}])
    every = user.create(**target, **once, after=[{"job": a["jobId"], "which": "all"}])
    edges = [{"job": job["jobId"], "which": "latest", "withinSec": 60} for job in (same, every)]
    latest = user.create(**target, **once, after=edges)
    preview = user.call("GET", f"/v1/jobs/{every['jobId']}/upcoming")["items"]

    last = run_of(user, latest, "SUCCEEDED")

    assert result_of(user, last) == {"sum": 5}
    assert [result_of(user, run_of(user, job, "SUCCEEDED")) for job in (same, every)] == [
        {"sum": 2},
        {"sum": 2},
    ]
    assert preview[0]["parents"][0]["scheduledAt"] == [last["scheduledAt"]]


def test_the_preview_names_the_parents_of_a_day_with_23_hours(user: User) -> None:
    """Clocks in Berlin go forward on the last Sunday in March, at 01:00 UTC."""
    last = datetime(datetime.now(UTC).year + 1, 3, 31, tzinfo=UTC)
    sunday = last - timedelta(days=last.isoweekday() % 7)
    starts = {"startAt": (sunday - timedelta(days=1, hours=1)).isoformat()}
    target = {"target": {"handler": "step"}}
    hourly = user.create(**target, **starts, type="CRON", schedule="0 * * * *")
    all_of = [{"job": hourly["jobId"], "which": "all"}]
    midnight = {"type": "CRON", "schedule": "0 0 * * *", "timezone": "Europe/Berlin"}
    daily = user.create(**target, **starts, **midnight, after=all_of)

    url = f"/v1/jobs/{daily['jobId']}/upcoming?count=4"
    days = user.call("GET", url)["items"][1:]

    named = [day["parents"][0]["scheduledAt"] for day in days]
    assert [len(each) for each in named] == [24, 23, 24]
    ends = sunday + timedelta(hours=22)  # midnight in Berlin
    hours = [ends - timedelta(hours=hour) for hour in reversed(range(23))]
    assert named[1] == [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours]


def test_a_parent_of_another_job_is_not_deleted(user: User) -> None:
    a = step(user)
    b = step(user, a)

    refused = user.http.delete(f"/v1/jobs/{a['jobId']}")

    assert refused.status_code == 409
    assert f"{a['jobId']} → {b['jobId']}" in refused.text


def test_a_sequence_is_redriven_from_a_link(user: User, scratch: Path) -> None:
    fixed = scratch / "repaired"
    broken: dict[str, Any] = {"payload": {"broken": str(fixed)}, "retryPolicy": {"maxAttempts": 1}}
    a = step(user)
    b = step(user, a, **broken)
    cleanup = step(user, b, triggerRule="ALL_DONE", **broken)
    last = step(user, cleanup)
    start(user, a)
    dead = run_of(user, b, "DEAD")
    run_of(user, cleanup, "DEAD")
    run_of(user, last, "SKIPPED")
    fixed.touch()
    fixed.chmod(0o666)

    path = f"/v1/executions/{dead['executionId']}/chain/redrive"
    body = {"from": b["jobId"], "downstream": True}
    plan = user.call("POST", path, body | {"dryRun": True}, 200)
    done = user.call("POST", path, body, 200)

    assert [each["action"] for each in plan["items"]] == ["KEEP", "RUN", "FOLLOW", "FOLLOW"]
    assert done["items"] == plan["items"]
    assert result_of(user, run_of(user, last, "SUCCEEDED")) == {"sum": 4}
    assert run_of(user, cleanup, "SUCCEEDED")["attempt"] == 2
    assert run_of(user, a, "SUCCEEDED")["attempt"] == 1


def test_sequences_of_a_job_take_turns_and_clean_up_within_their_deadline(
    user: User, scratch: Path
) -> None:
    ready = scratch / "ready"
    held: dict[str, Any] = {"payload": {"broken": str(ready)}}
    patient: dict[str, Any] = {"maxAttempts": 30, "backoff": "FIXED", "initialDelayMs": 1000}
    create = step(user, maxParallel=1)
    work = step(user, create, retryPolicy=patient, **held)
    late = step(user, work, deadlineSec=1)
    edges = [{"job": create["jobId"], "setup": True}, {"job": work["jobId"]}]
    drop = user.create(
        target={"handler": "step"},
        payload={"adds": 1},
        type="AFTER",
        after=edges,
        triggerRule="ALL_DONE",
    )
    start(user, create)
    run_of(user, create, "SUCCEEDED")
    start(user, create)

    until(
        lambda: [run for run in user.runs(work) if run["attempt"] > _SOME_TRIES],
        "the work to fail a few times",
    )
    assert [run["state"] for run in user.runs(create)] == ["PENDING", "SUCCEEDED"]
    assert not user.runs(drop)
    ready.touch()
    ready.chmod(0o666)

    until(
        lambda: [run["state"] for run in user.runs(drop)] == ["SUCCEEDED"] * 2, "both to clean up"
    )
    reasons = [run["reason"] for run in user.runs(late)]
    assert len(reasons) == 2
    assert [reason for reason in reasons if "deadlineSec is 1 s" not in reason] == []
