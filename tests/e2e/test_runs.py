"""The life of runs as users of the deployed stack see it: retries, death, redrive, cancellation,
killed workers; logs, checkpoints, results.
"""

import json
import random
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack, processes_of
from tests.e2e.user import Document, User, instant, soon, until, worker_of

FLAKY = """
import os, sys, nextfire_job
if nextfire_job.context().attempt <= nextfire_job.payload()["fails"]:
    print("not yet")
    sys.exit(3)
print("at last")
"""
ENDLESS = """
import os, sys, json
with open(json.load(sys.stdin)["marks"], "a") as marks:
    marks.write(os.environ["NEXTFIRE_EXECUTION_ID"] + "\\n")
while True:
    pass
"""
PRINTING = """
import pathlib, time, nextfire_job
payload = nextfire_job.payload()
print("first")
while not pathlib.Path(payload["go"]).exists():
    time.sleep(0.05)
for n in range(payload["lines"]):
    print("line", n, "." * 100)
print("last")
"""
SAVING = """
import pathlib, time, nextfire_job
found = nextfire_job.checkpoint()
if found is None:
    nextfire_job.save_checkpoint({"done": 7})
    print("saved", flush=True)
    with open(nextfire_job.payload()["marks"], "a") as marks:
        marks.write("saved\\n")
    time.sleep(60)
nextfire_job.result({"found": found, "large": "x" * nextfire_job.payload()["large"]})
"""
ALONE = """
import fcntl, json, os, sys, time
payload = json.load(sys.stdin)
who = os.environ["NEXTFIRE_EXECUTION_ID"]
marks = open(payload["marks"], "r+")
try:
    fcntl.lockf(marks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1_000_000 + payload["number"])
except OSError:
    who = "twice-at-a-time-" + who
os.write(os.open(payload["marks"], os.O_WRONLY | os.O_APPEND), (who + "\\n").encode())
time.sleep(0.5)
"""


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for name, source in {
        "flaky": FLAKY,
        "endless": ENDLESS,
        "printing": PRINTING,
        "saving": SAVING,
        "alone": ALONE,
    }.items():
        stack.put_script("default", name, source)
    with stack.api() as http:
        yield User(stack, http, scratch)


def executed(user: User, run: Document, verb: str, expect: int = 200) -> Document:
    return user.call("POST", f"/v1/executions/{run['executionId']}/{verb}", None, expect)


def in_state(user: User, job: Document, state: str) -> Document:
    """The job's only run, once it is in *state*."""

    def check() -> Document | None:
        return next((run for run in user.runs(job) if run["state"] == state), None)

    run: Document = until(check, f"a run of {job['jobId']} in state {state}")
    return run


def is_over(execution_id: str) -> bool:
    return not processes_of(execution_id)


def outcomes(run: Document) -> list[tuple[int, str | None]]:
    return [(attempt["number"], attempt.get("outcome")) for attempt in run["attempts"]]


def test_a_script_that_fails_is_tried_again_later_and_later(user: User) -> None:
    policy = {"maxAttempts": 3, "backoff": "EXPONENTIAL", "initialDelayMs": 1000}
    job = user.once(soon(1), handler="flaky", payload={"fails": 2}, retryPolicy=policy)

    [run] = user.ended(job)

    assert (run["state"], run["exitCode"], run["stdout"]) == ("SUCCEEDED", 0, "at last\n")
    assert outcomes(run) == [(1, "FAILED"), (2, "FAILED"), (3, "SUCCEEDED")]
    assert [attempt["exitCode"] for attempt in run["attempts"]] == [3, 3, 0]
    first, second, third = run["attempts"]
    assert instant(second["startedAt"]) - instant(first["finishedAt"]) >= timedelta(seconds=1)
    assert instant(third["startedAt"]) - instant(second["finishedAt"]) >= timedelta(seconds=2)


def test_a_run_that_waits_for_its_retry_starts_now_on_request(user: User) -> None:
    policy = {"maxAttempts": 2, "initialDelayMs": 900_000, "maxDelayMs": 900_000}
    job = user.once(soon(1), handler="flaky", payload={"fails": 1}, retryPolicy=policy)
    waiting = in_state(user, job, "PENDING")

    begun = executed(user, waiting, "redrive")

    assert (begun["state"], begun["attempt"]) == ("PENDING", 1)
    assert instant(begun["retryAt"]) < instant(waiting["retryAt"])
    run = in_state(user, job, "SUCCEEDED")
    assert outcomes(run) == [(1, "FAILED"), (2, "SUCCEEDED")]
    assert run["dispatch"] == begun["dispatch"]


def test_a_dead_run_is_published_and_redriven_once_its_script_is_fixed(user: User) -> None:
    listener = Listener(user.stack)
    user.stack.put_script("default", "repaired", "raise SystemExit('broken')")
    policy = {"maxAttempts": 2, "initialDelayMs": 0}
    job = user.once(soon(1), handler="repaired", retryPolicy=policy)
    dead = in_state(user, job, "DEAD")
    assert outcomes(dead) == [(1, "FAILED"), (2, "FAILED")]
    user.dead_letter("default", job["jobId"])

    event = listener.of(dead)
    assert (event["source"], event["detail-type"]) == ("nextfire", "Execution Dead")
    assert event["detail"]["reason"] == dead["reason"] == "exit code 1: broken"
    listed = user.call("GET", "/v1/executions?state=DEAD")["items"]
    assert dead["executionId"] in [run["executionId"] for run in listed]
    of_all = user.call("GET", "/v1/executions?limit=100")
    while of_all.get("cursor") and not of_all["items"]:
        of_all = user.call("GET", f"/v1/executions?limit=100&cursor={of_all['cursor']}")
    assert of_all["items"]
    of_job = user.call("GET", f"/v1/executions?jobId={job['jobId']}&state=DEAD")["items"]
    assert [run["executionId"] for run in of_job] == [dead["executionId"]]

    user.stack.put_script("default", "repaired", "print('whole')")
    time.sleep(2.1)  # workers use their cached copy for this long
    redriven = executed(user, dead, "redrive")
    assert redriven["state"] == "PENDING"
    run = in_state(user, job, "SUCCEEDED")

    assert run["stdout"] == "whole\n"
    assert outcomes(run) == [(1, "FAILED"), (2, "FAILED"), (3, "SUCCEEDED")]
    assert run["executionId"] == dead["executionId"]
    executed(user, run, "redrive", 409)


class Listener:
    """Receives the events published on the stack's bus from now on."""

    def __init__(self, stack: Stack) -> None:
        self._sqs, events = stack.client("sqs"), stack.client("events")
        name = f"listener-{time.time_ns()}"
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(
            QueueUrl=self._url, AttributeNames=["QueueArn"]
        )["Attributes"]
        bus, pattern = stack.info.event_bus, json.dumps({"source": ["nextfire"]})
        events.put_rule(Name=name, EventBusName=bus, EventPattern=pattern)
        target = {"Id": "listener", "Arn": attributes["QueueArn"]}
        events.put_targets(Rule=name, EventBusName=bus, Targets=[target])

    def of(self, run: Document) -> Document:
        """The only event about *run*."""
        heard: list[Document] = []

        def check() -> list[Document]:
            answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
            bodies = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
            heard.extend(b for b in bodies if b["detail"].get("executionId") == run["executionId"])
            return heard

        until(check, f"an event about {run['executionId']}")
        [event] = heard
        return event


def test_fifty_runs_end_once_each_though_their_workers_are_killed(user: User) -> None:
    count, kills = 50, 8
    policy = {"maxAttempts": 20}
    first = soon(count * 0.1)  # all jobs are created by then
    jobs = [
        user.once(
            first + timedelta(seconds=0.1 * number),
            handler="alone",
            payload={"number": number},
            retryPolicy=policy,
        )
        for number in range(count)
    ]
    until(user.marked, "the first run")
    for _ in range(kills):
        time.sleep(random.uniform(0.1, 0.9))  # noqa: S311 — any moment is fine
        user.stack.kill_worker(random.choice(user.stack.workers()))  # noqa: S311

    ended = [user.ended(job) for job in jobs]

    assert [len(runs) for runs in ended] == [1] * count
    runs = [run for [run] in ended]
    assert {run["state"] for run in runs} == {"SUCCEEDED"}
    for run in runs:
        # Lost any number of times, then succeeded once.
        assert {how for _, how in outcomes(run)[:-1]} <= {"WORKER_LOST"}
        assert outcomes(run)[-1] == (len(run["attempts"]), "SUCCEEDED")
    lost = sum(len(run["attempts"]) - 1 for run in runs)
    assert lost > 0, "no kill hit a run; the test proved nothing"
    marks = user.marked()
    assert set(marks) == {run["executionId"] for run in runs}, "a run ran twice at a time, or never"
    assert len(marks) <= count + lost


def test_a_running_script_is_cancelled_and_not_tried_again(user: User) -> None:
    policy = {"maxAttempts": 5, "initialDelayMs": 0}
    job = user.once(soon(1), handler="endless", retryPolicy=policy)
    until(user.marked, "the script's start")
    run = in_state(user, job, "RUNNING")

    asked = executed(user, run, "cancel", 202)
    assert (asked["state"], asked["cancelRequested"]) == ("RUNNING", True)
    cancelled = in_state(user, job, "CANCELLED")

    assert outcomes(cancelled) == [(1, "CANCELLED")]
    assert cancelled["reason"] == "cancelled on request"
    until(user.queue_is_empty, "acknowledgement of the cancelled run")
    assert user.marked() == [run["executionId"]]
    executed(user, cancelled, "cancel", 409)


def test_a_run_that_waits_for_its_next_attempt_is_cancelled_at_once(user: User) -> None:
    policy = {"maxAttempts": 5, "backoff": "FIXED", "initialDelayMs": 3000}
    job = user.once(soon(1), handler="flaky", payload={"fails": 5}, retryPolicy=policy)
    waiting = in_state(user, job, "PENDING")

    cancelled = executed(user, waiting, "cancel")

    assert cancelled["state"] == "CANCELLED"
    executed(user, cancelled, "cancel", 409)
    until(lambda: soon(-1) > instant(waiting["retryAt"]), "the instant of the next attempt")
    until(user.queue_is_empty, "acknowledgement of the next attempt's message")
    [run] = user.runs(job)
    assert (run["state"], outcomes(run)) == ("CANCELLED", [(1, "FAILED")])


def log(user: User, run: Document, *, cursor: str | None = None, limit: int = 1000) -> Document:
    more = f"&cursor={cursor}" if cursor else ""
    return user.call("GET", f"/v1/executions/{run['executionId']}/logs?limit={limit}{more}")


def test_what_a_script_prints_is_seen_while_it_runs_and_all_of_it_afterwards(
    user: User, scratch: Path
) -> None:
    go = scratch / "go"
    job = user.once(soon(1), handler="printing", payload={"go": str(go), "lines": 4000})
    run = in_state(user, job, "RUNNING")

    page = until(lambda: (got := log(user, run))["items"] and got, "the first line")
    [line] = page["items"]
    assert (line["text"], line["stream"], line["attempt"]) == ("first", "stdout", 1)
    assert instant(line["at"]) >= instant(run["startedAt"])
    assert not page["ended"]
    assert user.runs(job)[0]["state"] == "RUNNING"
    go.touch()
    in_state(user, job, "SUCCEEDED")

    lines = [line]
    while cursor := page.get("cursor"):
        page = log(user, run, cursor=cursor, limit=1000)
        lines += page["items"]
    assert page["ended"]
    texts = [line["text"] for line in lines]
    assert texts == ["first", *(f"line {n} {'.' * 100}" for n in range(4000)), "last"]


def test_a_checkpoint_outlives_its_worker_and_a_result_is_on_record(user: User) -> None:
    jobs = {
        large: user.once(soon(1), handler="saving", payload={"large": large})
        for large in (10, 100_000)
    }
    until(lambda: user.marked() == ["saved", "saved"], "both checkpoints")
    for pid in {worker_of(in_state(user, job, "RUNNING")) for job in jobs.values()}:
        user.stack.kill_worker(pid)
    # The processes of the killed attempt must end before the next attempt begins.
    for job in jobs.values():
        [run] = user.runs(job)
        until(partial(is_over, run["executionId"]), "the end of its script")

    for large, job in jobs.items():
        run = in_state(user, job, "SUCCEEDED")
        assert outcomes(run) == [(1, "WORKER_LOST"), (2, "SUCCEEDED")]
        expected = {"found": {"done": 7}, "large": "x" * large}
        # Listings leave out a large result; the execution itself shows it.
        assert run.get("result") == (expected if large == 10 else None)
        found = user.call("GET", f"/v1/executions/{run['executionId']}")
        assert found["result"] == expected
        assert found["resultBytes"] == len(json.dumps(expected, separators=(",", ":")))
