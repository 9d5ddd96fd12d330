"""The whole path on the deployed stack: HTTPS call, due entry, watcher, queue, executor, record.

IAM is enforced, so these tests also show that the permissions of each role suffice.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import COUNTING, Document, User, instant, soon, until, worker_of


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for pool in stack.info.pools:
        stack.put_script(pool, "counting", COUNTING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def test_a_job_runs_at_its_instant_and_leaves_its_record(user: User) -> None:
    at = soon()
    job = user.once(at, handler="counting", payload={"word": "joy"})
    assert instant(job["nextFireAt"]) == at

    [run] = user.ended(job)

    assert (run["state"], run["exitCode"], run["stdout"]) == ("SUCCEEDED", 0, "ran with joy\n")
    assert instant(run["scheduledAt"]) == at
    assert at <= instant(run["dispatchedAt"]) <= instant(run["startedAt"])
    assert user.marked() == [run["executionId"]]
    assert user.call("GET", f"/v1/executions/{run['executionId']}") == run
    until(
        lambda: user.call("GET", f"/v1/jobs/{job['jobId']}")["state"] == "COMPLETED",
        "completion of a one-off job",
    )


def test_the_lambda_executor_runs_a_script_from_its_event_source(user: User) -> None:
    job = user.once(soon(), handler="counting", pool="lambda", payload={"word": "lambda"})

    [run] = user.ended(job)

    assert (run["state"], run["stdout"]) == ("SUCCEEDED", "ran with lambda\n")
    assert run["worker"].startswith("lambda-")


def _handed_back(user: User) -> bool:
    """Whether a supervisor handed back one run. Its worker may have held messages of other tests,
    too.
    """
    logs = [log.read_text() for log in (user.stack.state / "logs").glob("worker-*.log")]
    return any(re.search(r'"runs":1,"messages":\d+,"left":0', log) for log in logs)


def test_a_run_whose_worker_is_killed_is_run_again(user: User) -> None:
    job = user.once(soon(), handler="counting", payload={"sleep": 2})
    run = until(lambda: user.runs(job), "the claim")[0]

    user.stack.kill_worker(worker_of(run))
    [run] = user.ended(job)

    assert run["state"] == "SUCCEEDED"
    first, second = run["attempts"]
    assert (first["number"], first["outcome"]) == (1, "WORKER_LOST")
    assert (second["number"], second["outcome"]) == (2, "SUCCEEDED")
    assert first["worker"] != second["worker"]
    # Handed back by its supervisor, in the role of the worker.
    until(lambda: _handed_back(user), "the supervisor's line about one run")


def test_a_message_sent_twice_runs_the_script_once(user: User) -> None:
    job = user.once(soon(), handler="counting", payload={"sleep": 2})
    run = until(lambda: user.runs(job), "the claim")[0]

    user.send(run)  # while it runs
    [run] = user.ended(job)
    until(user.queue_is_empty, "acknowledgement of the second message")

    assert user.marked() == [run["executionId"]]
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["SUCCEEDED"]


def test_a_message_redelivered_after_success_runs_nothing(user: User) -> None:
    job = user.once(soon(), handler="counting")
    [run] = user.ended(job)

    user.send(run)
    until(user.queue_is_empty, "acknowledgement of the redelivered message")

    assert user.marked() == [run["executionId"]]
    assert user.runs(job) == [run]


def test_a_failing_script_leaves_its_stderr_and_exit_code(user: User) -> None:
    user.stack.put_script(
        "default", "failing", "import sys\nprint('half done')\nsys.exit('out of cheese')\n"
    )
    job = user.once(soon(), handler="failing", retryPolicy={"maxAttempts": 2, "initialDelayMs": 0})

    [run] = user.ended(job)

    assert (run["state"], run["exitCode"], run["attempt"]) == ("DEAD", 1, 2)
    assert (run["stdout"], run["stderr"]) == ("half done\n", "out of cheese\n")
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["FAILED", "FAILED"]
    letter = user.dead_letter("default", job["jobId"])
    assert letter["MessageAttributes"]["failure"]["StringValue"] == "exit code 1: out of cheese"


def test_a_script_over_its_timeout_is_ended(user: User) -> None:
    policy = {"maxAttempts": 1}
    job = user.once(
        soon(), handler="counting", payload={"sleep": 60}, timeoutSec=1, retryPolicy=policy
    )

    [run] = user.ended(job)

    assert (run["state"], run["reason"]) == ("DEAD", "did not end within 1 s")
    assert run["attempts"][0]["outcome"] == "TIMED_OUT"
    user.dead_letter("default", job["jobId"])


def test_a_missing_script_ends_the_run_with_that_reason(user: User) -> None:
    job = user.once(soon(), handler="nowhere")

    [run] = user.ended(job)

    assert run["state"] == "DEAD"
    assert run["reason"].startswith("Script ")
    assert "was not found" in run["reason"]
    assert f"pools/default/{user.stack.info.account_id}/nowhere.py" in run["reason"]
    assert len(run["attempts"]) == 1  # another attempt would fail the same way
    user.dead_letter("default", job["jobId"])


@pytest.mark.parametrize("pool", ["default", "lambda"])
def test_an_invalid_message_goes_to_the_dead_letters_and_blocks_nothing(
    user: User, pool: str
) -> None:
    garbage = f"{{not a message {time.time_ns()}"
    user.send_text(garbage, pool=pool)
    job = user.once(soon(), handler="counting", pool=pool)

    assert user.ended(job)[0]["state"] == "SUCCEEDED"
    letter = user.dead_letter(pool, garbage)
    assert "not a run message" in letter["MessageAttributes"]["failure"]["StringValue"]
    until(lambda: user.queue_is_empty(pool), "acknowledgement of the garbage")


def test_a_schedule_changed_in_the_very_second_it_is_due(user: User) -> None:
    at, later = soon(4), soon(9)
    jobs = [user.once(at, handler="counting") for _ in range(8)]
    changed = []
    for number, job in enumerate(jobs):
        time.sleep(max(0, at.timestamp() - 0.4 + 0.1 * number - time.time()))
        patch = {"schedule": later.isoformat()}
        changed.append(user.call("PATCH", f"/v1/jobs/{job['jobId']}", patch))

    sides = set()
    for job in changed:
        # The old schedule owns the occurrences up to the change, the new schedule those after it.
        before_change = at <= instant(job["updatedAt"])
        sides.add(before_change)
        expected = {at, later} if before_change else {later}
        runs = user.ended(job, len(expected))
        assert {instant(run["scheduledAt"]) for run in runs} == expected
        assert len(runs) == len(expected)
    assert sides == {True, False}, "all changes were on one side; the test proved nothing"
    assert len(user.marked()) == len(set(user.marked()))


def test_a_job_changed_while_its_run_is_queued_runs_once_as_changed(user: User) -> None:
    # Locally a FIFO event source serves one message at a time: the second waits behind the first.
    at = soon()
    first = user.once(at, handler="counting", pool="lambda", payload={"sleep": 4})
    until(lambda: user.runs(first), "the claim of the first")
    second = user.once(soon(1), handler="counting", pool="lambda", payload={"word": "old"})
    time.sleep(2)
    assert user.runs(second) == []  # queued, not claimed
    patch = {"payload": {"marks": str(user.marks), "word": "new"}}
    user.call("PATCH", f"/v1/jobs/{second['jobId']}", patch)

    [run] = user.ended(second)

    assert (run["stdout"], run["jobRevision"]) == ("ran with new\n", 2)
    assert user.marked().count(run["executionId"]) == 1


def test_a_deleted_job_does_not_run_and_its_id_can_be_used_again(user: User) -> None:
    doomed = user.once(soon(3), handler="counting", jobId="phoenix")
    user.call("POST", "/v1/jobs", {**_definition(doomed), "jobId": "phoenix"}, 409)
    user.call("DELETE", "/v1/jobs/phoenix")
    again = user.once(soon(3), handler="counting", jobId="phoenix", payload={"word": "again"})

    [run] = user.ended(again)

    assert run["stdout"] == "ran with again\n"
    assert user.marked() == [run["executionId"]]
    assert again["revision"] == 1
    time.sleep(1)
    assert len(user.runs(again)) == 1


def test_the_api_answers_no_one_it_does_not_know(user: User) -> None:
    with user.stack.keyless_api() as stranger:
        assert stranger.get("/v1/health").json()["status"] == "ok"
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/anything")):
            assert stranger.request(method, path).status_code == 401


def test_bad_input_is_answered_with_field_value_and_remedy(user: User) -> None:
    definition = {"type": "CRON", "schedule": "0 0 30 2 *", "target": {"handler": "counting"}}

    answer = user.http.post("/v1/jobs", json=definition)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    [fault] = answer.json()["errors"]
    assert (fault["field"], fault["value"]) == ("schedule", "'0 0 30 2 *'")
    assert fault["remedy"]


def _definition(job: Document) -> Document:
    return {name: job[name] for name in ("type", "schedule", "target", "payload")}
