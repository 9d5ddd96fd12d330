"""What users do with jobs, for `test_strict.py`: each flow creates jobs, intervenes, and checks the
records and the effects.

All flows are played together. So each is a generator, which yields when its jobs are created, and
after the requests that follow; then it waits for its runs and checks them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from nextfire.domain.instants import floor_minute
from tests.e2e.caller import LONG, Caller
from tests.e2e.conftest import CALLER, NARROW, QUOTAS, Stack, early_in_a_minute
from tests.e2e.test_policies import (
    ENDED,
    PERIOD,
    assert_each_occurrence_has_one_record,
    assert_one_at_a_time,
    covered,
)
from tests.e2e.test_runs import outcomes
from tests.e2e.user import COUNTING, Document, User, instant, soon, until

FAILING = f"{COUNTING}sys.exit('broken')\n"
ORDERS = 6
YEARS = range(2010, 2022)
"""Occurrences of the backfill: more than the ten that run at a time."""
SEEN_AFTER = timedelta(seconds=2)
"""A watcher may dispatch as if a job was not paused for this long; AWS's reads lag a second."""
UNDOABLE = timedelta(seconds=70)
"""How long before an occurrence its skip is undone: at least 60 s, which is the product's rule."""


@dataclass(frozen=True)
class Scene:
    """Where a flow is played. `narrow`: a caller of the tenant `NARROW`; `queue`: the URL of a FIFO
    queue to which calls may send; `folder`: for marks.
    """

    stack: Stack
    caller: Caller
    narrow: Caller
    queue: str
    folder: Path

    def script(self, handler: str = "counting", **payload: Any) -> tuple[Document, Path]:
        """The fields of a job that runs *handler*, and the file in which its runs leave marks."""
        marks = Path(tempfile.mkstemp(dir=self.folder)[1])
        marks.chmod(0o666)  # each script may have its own user
        payload = {"marks": str(marks), **payload}
        return {"target": {"handler": handler}, "payload": payload}, marks

    def of_run(self, run: Document, verb: str, reason: str) -> Document:
        path = f"/v1/executions/{run['executionId']}/{verb}"
        return self.caller.call("POST", path, {"reason": reason})


def assert_each_ran_once(marks: Path, runs: list[Document]) -> None:
    assert sorted(marks.read_text().split()) == sorted(run["executionId"] for run in runs)


def sleep_until(at: datetime) -> None:
    time.sleep(max((at - datetime.now(UTC)).total_seconds(), 0))


def undone_skip(scene: Scene) -> Iterator[None]:
    caller, (script, marks) = scene.caller, scene.script()
    at = soon(UNDOABLE.total_seconds())
    job = caller.create(type="ONCE", schedule=at.isoformat(), **script)
    path = f"/v1/jobs/{job}/skip-next"
    [skipped] = caller.call("POST", path, {"reason": "a test"})["skips"]
    assert instant(skipped) == at
    caller.call("DELETE", path)
    after = caller.job(job)
    assert ("skips" in after, instant(after["nextFireAt"])) == (False, at)
    until(lambda: caller.runs(job) == [], "removal of the record of the skip")
    yield
    [run] = caller.succeeded(job)
    assert instant(run["scheduledAt"]) == at <= instant(run["startedAt"])
    assert_each_ran_once(marks, [run])
    caller.completed(job)


def skip(scene: Scene) -> Iterator[None]:
    caller, (script, marks) = scene.caller, scene.script()
    first, second = soon(20), soon(22)
    dates = [first.isoformat(), second.isoformat()]
    job = caller.create(type="DATES", schedule=dates, **script)
    path = f"/v1/jobs/{job}/skip-next"
    answer = caller.call("POST", path, {"reason": "a test"})
    assert [instant(at) for at in answer["skips"]] == [first]
    assert instant(answer["nextFireAt"]) == second
    yield
    ran, skipped = caller.ended(job, 2)
    assert [instant(ran["scheduledAt"]), instant(skipped["scheduledAt"])] == [second, first]
    assert (ran["state"], ran["trigger"]) == ("SUCCEEDED", "SCHEDULE")
    assert (skipped["state"], skipped["reason"]) == ("SKIPPED", "a test")
    assert_each_ran_once(marks, [ran])
    caller.completed(job)


def backfill(scene: Scene) -> Iterator[None]:
    caller, (script, marks) = scene.caller, scene.script()
    job = caller.create(type="CRON", schedule="0 0 1 1 *", **script)
    body = {"from": f"{YEARS[0]}-01-01T00:00:00Z", "to": f"{YEARS[-1] + 1}-01-01T00:00:00Z"}
    asked = caller.call("POST", f"/v1/jobs/{job}/backfill", {**body, "reason": "a test"})
    assert (asked["count"], asked["first"]) == (len(YEARS), body["from"])
    yield
    runs = caller.succeeded(job, len(YEARS))
    until(lambda: "backfill" not in caller.job(job), "the end of the backfill", within=LONG)
    assert [instant(run["scheduledAt"]).year for run in runs] == [*reversed(YEARS)]
    why = {(run["trigger"], run["dispatchReason"], run["requestReason"]) for run in runs}
    assert why == {("BACKFILL", "backfill on request", "a test")}
    assert_each_ran_once(marks, runs)
    assert caller.job(job)["state"] == "ACTIVE"


def aws_calls(scene: Scene) -> Iterator[None]:
    """Each order is sent until the queue has accepted it, and is in the queue once."""
    send = {
        "service": "sqs",
        "action": "SendMessage",
        "input": {
            "QueueUrl": scene.queue,
            "MessageGroupId": "orders",
            "MessageBody": "{{payload}}",
        },
    }
    policy = {"maxAttempts": 20, "backoff": "FIXED", "initialDelayMs": 1000}
    target = {"pool": "calls", "aws": send}
    jobs = [
        scene.caller.create(
            type="DELAY", schedule="PT1S", target=target, payload={"order": n}, retryPolicy=policy
        )
        for n in range(ORDERS)
    ]
    yield
    runs = [run for job in jobs for run in scene.caller.succeeded(job)]
    calls = [run["attempts"][-1]["call"] for run in runs]
    assert {(call["service"], call["action"]) for call in calls} == {("sqs", "SendMessage")}
    received = _received(scene)
    assert sorted(json.loads(body)["order"] for body in received.values()) == [*range(ORDERS)]
    assert set(received) == {run["result"]["MessageId"] for run in runs}


def quotas(scene: Scene) -> Iterator[None]:
    """More runs than a minute may have, one at a time."""
    narrow, (script, marks) = scene.narrow, scene.script(sleep=1)
    most = QUOTAS[NARROW]["runsPerMinute"]
    at = early_in_a_minute(datetime.now(UTC) + timedelta(seconds=20))
    schedule = at.isoformat()
    jobs = [narrow.create(type="ONCE", schedule=schedule, **script) for _ in range(most + 1)]
    yield
    runs = [run for job in jobs for run in narrow.succeeded(job)]
    assert_each_ran_once(marks, runs)
    assert {instant(run["scheduledAt"]) for run in runs} == {at}
    sent = Counter(floor_minute(instant(run["dispatchedAt"])) for run in runs)
    assert max(sent.values()) <= most, sent
    assert floor_minute(at) <= min(sent) < max(sent), sent
    assert_one_at_a_time(sorted(runs, key=lambda run: instant(run["startedAt"])))
    assert narrow.call("GET", "/v1/quotas")["quotas"] == QUOTAS[NARROW]


def pause(scene: Scene) -> Iterator[None]:
    count, caller = 12, scene.caller
    yield  # other flows take long to create their jobs, in which these would run
    scripts = {policy: scene.script() for policy in ("RUN_ALL", "SKIP")}
    jobs = {
        policy: caller.create(
            type="INTERVAL", schedule="PT2S", maxRuns=count, misfire={"policy": policy}, **script
        )
        for policy, (script, _) in scripts.items()
    }
    spans = {}
    for policy, job in jobs.items():
        until(partial(caller.runs, job), f"a first run of {job}", within=LONG)
        paused = caller.call("POST", f"/v1/jobs/{job}/pause", {"reason": "a test"})
        assert (paused["state"], paused["pauseReason"]) == ("PAUSED", "a test")
        spans[policy] = [instant(paused["pausedAt"]), datetime.now(UTC) + SEEN_AFTER]
    yield
    sleep_until(max(seen for _, seen in spans.values()) + 3 * PERIOD)
    for policy, job in jobs.items():
        resumed = caller.call("POST", f"/v1/jobs/{job}/resume")
        assert (resumed["state"], "pausedAt" in resumed) == ("ACTIVE", False)
        spans[policy].append(instant(resumed["updatedAt"]))
    yield
    for policy, job in jobs.items():
        caller.completed(job)
        records = _all_of(caller, job, count)
        _assert_misfire(records, spans[policy], policy)
        assert_each_ran_once(scripts[policy][1], [r for r in records if r["state"] == "SUCCEEDED"])


def _all_of(caller: Caller, job: str, count: int) -> list[Document]:
    """The records of *job*, oldest first, once they cover *count* occurrences and have ended."""

    def there() -> list[Document] | None:
        records = caller.runs(job)[::-1]
        ended = all(record["state"] in ENDED for record in records)
        return records if ended and sum(len(covered(r)) for r in records) == count else None

    found: list[Document] = until(there, f"all records of {job}", within=LONG)
    assert_each_occurrence_has_one_record(caller.job(job), found)
    return found


def _assert_misfire(records: list[Document], span: list[datetime], policy: str) -> None:
    """What was due in the pause *span* ran, or was skipped, for that reason. *span*: when it began,
    when every watcher had seen that, and its end.
    """
    begin, seen, end = span
    occurrences = [(at, record) for record in records for at in covered(record)]
    outside = [record for at, record in occurrences if not begin < at <= end]
    assert {record["state"] for record in outside} == {"SUCCEEDED"}
    inside = [record for at, record in occurrences if seen < at <= end]
    assert len(inside) >= 3
    reason = f"due during a pause; misfire policy {policy}"
    if policy == "RUN_ALL":
        why = {(each["state"], each["dispatchReason"]) for each in inside}
        assert why == {("SUCCEEDED", reason)}
    else:
        assert {(each["state"], each["reason"]) for each in inside} == {("SKIPPED", reason)}


def redrive(scene: Scene) -> Iterator[None]:
    caller, (script, marks) = scene.caller, scene.script("repaired")
    scene.stack.put_script("default", "repaired", FAILING, tenant=CALLER)
    policy = {"maxAttempts": 2, "initialDelayMs": 0}
    job = caller.create(type="DELAY", schedule="PT1S", retryPolicy=policy, **script)
    yield
    dead = caller.run_in(job, "DEAD")
    assert dead["reason"] == "exit code 1: broken"
    assert outcomes(dead) == [(1, "FAILED"), (2, "FAILED")]

    def listed() -> bool:
        page = caller.call("GET", "/v1/executions?state=DEAD&limit=100")
        return dead["executionId"] in [run["executionId"] for run in page["items"]]

    until(listed, "the dead run in the list of dead runs", within=LONG)
    with scene.stack.api() as http:
        User(scene.stack, http, scene.folder).dead_letter("default", job)
    scene.stack.put_script("default", "repaired", COUNTING, tenant=CALLER)
    time.sleep(2.1)  # workers use their cached copy for this long
    assert scene.of_run(dead, "redrive", "a test")["executionId"] == dead["executionId"]
    yield
    run = caller.run_in(job, "SUCCEEDED")
    assert outcomes(run) == [(1, "FAILED"), (2, "FAILED"), (3, "SUCCEEDED")]
    assert run["attemptsBeforeRedrive"] == 2
    assert run["executionId"] == dead["executionId"]
    assert marks.read_text().split() == [run["executionId"]] * 3


def cancel(scene: Scene) -> Iterator[None]:
    """Cancelled: a run that is running, and one that waits for its next attempt."""
    caller = scene.caller
    endless, marked_running = scene.script(sleep=600)
    failing, marked_waiting = scene.script("failing")
    policy = {"maxAttempts": 5, "backoff": "FIXED", "initialDelayMs": 20_000}
    due = {"type": "DELAY", "schedule": "PT1S", "retryPolicy": policy}
    running, waiting = (caller.create(**due, **script) for script in (endless, failing))
    yield
    until(marked_running.read_text, "the start of the script", within=LONG)
    scene.of_run(caller.run_in(running, "RUNNING"), "cancel", "a test")
    waits = until(
        lambda: [run for run in caller.runs(waiting) if "retryAt" in run], "a retry", within=LONG
    )[0]
    assert scene.of_run(waits, "cancel", "a test")["state"] == "CANCELLED"
    yield
    at_once, stopped = caller.run_in(waiting, "CANCELLED"), caller.run_in(running, "CANCELLED")
    assert at_once["reason"] == stopped["reason"] == "a test"
    sleep_until(instant(waits["retryAt"]) + timedelta(seconds=3))
    for job, marks, outcome in (
        (running, marked_running, "CANCELLED"), (waiting, marked_waiting, "FAILED")
    ):  # fmt: skip
        run = caller.run_in(job, "CANCELLED")
        assert outcomes(run) == [(1, outcome)]
        assert_each_ran_once(marks, [run])


def _received(scene: Scene) -> dict[str, str]:
    """The bodies of all messages of the queue, by their ids."""
    sqs, queue, found = scene.stack.client("sqs"), scene.queue, dict[str, str]()
    while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for each in messages:
            found[each["MessageId"]] = each["Body"]
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
    return found


FLOWS = (quotas, skip, undone_skip, backfill, aws_calls, redrive, cancel, pause)
INTERVENING = (pause, redrive, cancel, pause)
"""Flows whose next requests follow, in this order, once all jobs are created."""
