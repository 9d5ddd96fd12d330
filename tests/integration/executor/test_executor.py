"""The executor's handler: what it reports, what it records, and what it leaves in the queue."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ids import content_id
from nextfire.domain.instants import floor_minute
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.builders import claim_run
from tests.integration.deployment import (
    OTHER_TENANT,
    TENANT,
    Context,
    Deployment,
    Proxy,
    message_for,
)
from tests.integration.executor.conftest import HOUR, hidings, refuse, send

LEASE = 30
"""Seconds; see `Deployment.configure`."""


def visible(system: Deployment) -> int:
    answer = system.queues.get_queue_attributes(
        QueueUrl=system.queue_url, AttributeNames=["ApproximateNumberOfMessages"]
    )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def held_elsewhere(system: Deployment, message: RunMessage) -> None:
    """Claim the run of *message* for another worker, for 20 s."""
    now = SystemClock().now()
    claim_run(
        system.runs, message, now, lease_until=now + timedelta(seconds=20), worker="elsewhere"
    )


class TestOutcomes:
    def test_script_that_succeeds(self, system: Deployment) -> None:
        system.upload(
            "import json, os, sys\n"
            "print(json.load(sys.stdin), os.environ['NEXTFIRE_EXECUTION_ID'])\n"
            "print('warned', file=sys.stderr)"
        )
        job = system.register(jobId="a", payload={"n": 1})
        message = send(system, job)

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempt, run.exit_code) == (RunState.SUCCEEDED, 1, 0)
        assert run.stdout == f"{{'n': 1}} {message.key.execution_id}\n"
        assert run.stderr == "warned\n"
        assert (run.pool, run.job_revision, run.dispatch) == ("default", 1, 1)
        [attempt] = run.attempts
        assert (attempt.number, attempt.outcome) == (1, AttemptOutcome.SUCCEEDED)
        assert attempt.worker.startswith("lambda-")

    def test_script_that_fails_is_retried_with_its_error_on_record(
        self, system: Deployment
    ) -> None:
        system.upload("import sys; print('so far'); sys.exit('no such invoice')")
        job = system.register(retryPolicy={"maxAttempts": 2, "initialDelayMs": 3_600_000})
        message = send(system, job)
        before = SystemClock().now()

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.exit_code, run.dispatch) == (RunState.PENDING, 1, 2)
        assert (run.stdout, run.stderr) == ("so far\n", "no such invoice\n")
        assert run.not_before is not None
        assert before + HOUR - timedelta(seconds=1) <= run.not_before <= before + HOUR * 1.1
        retries = [item for item in system.due_items() if item["kind"]["S"] == "RETRY"]
        assert [item["run_id"]["S"] for item in retries] == [message.run_id]
        assert retries[0]["dispatch"]["N"] == "2"

    def test_script_that_fails_for_the_last_time_goes_to_the_dead_letters(
        self, system: Deployment
    ) -> None:
        system.upload("raise SystemExit(3)")
        message = send(system, system.register(retryPolicy={"maxAttempts": 1}))

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.exit_code, run.reason) == (RunState.DEAD, 3, "exit code 3")
        [letter] = system.receive(url=system.dlq_url)
        assert json.loads(letter["Body"])["runId"] == message.run_id
        assert letter["MessageAttributes"]["failure"]["StringValue"] == "exit code 3"
        assert [i for i in system.due_items() if i["kind"]["S"] == "RETRY"] == []

    def test_script_that_is_not_there_is_not_tried_again(self, system: Deployment) -> None:
        message = send(system, system.register(target={"handler": "missing"}))

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempt, run.exit_code) == (RunState.DEAD, 1, None)
        assert run.reason is not None
        assert f"s3://{system.bucket}/pools/default/{TENANT}/missing.py" in run.reason
        assert len(system.receive(url=system.dlq_url)) == 1

    def test_script_of_another_tenant_is_out_of_reach(self, system: Deployment) -> None:
        """The API rejects such a target; if one is stored anyway, the executor rejects it."""
        system.upload("print('theirs')", tenant=OTHER_TENANT)
        job = system.register(jobId="a")
        key: Any = {"tenant": {"S": TENANT}, "job_id": {"S": "a"}}
        item: Any = system.database.get_item(TableName=system.jobs_table, Key=key)["Item"]
        definition = json.loads(item["definition"]["S"])
        url = f"s3://{system.bucket}/pools/default/{OTHER_TENANT}/hello.py"
        definition["target"] = {"pool": "default", "script": url}
        item["definition"] = {"S": json.dumps(definition)}
        system.database.put_item(TableName=system.jobs_table, Item=item)
        message = send(system, job)

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.stdout) == (RunState.DEAD, None)
        assert "not a script of your tenant in the pool default" in (run.reason or "")

    def test_script_that_takes_too_long(self, system: Deployment) -> None:
        system.upload("import time; time.sleep(60)")
        message = send(system, system.register(timeoutSec=1, retryPolicy={"maxAttempts": 1}))

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempts[0].outcome) == (RunState.DEAD, AttemptOutcome.TIMED_OUT)

    def test_last_run_of_a_job_completes_it(self, system: Deployment) -> None:
        system.upload("")
        job = system.register(jobId="a", type="DELAY", schedule="PT1S")
        at = job.next_after(job.effective_from)
        assert at is not None
        system.send(message_for(job, at).encode(), group="g", dedup="d")

        assert system.execute(system.receive()) == set()

        assert system.job("a").state is JobState.COMPLETED
        assert system.call("GET", "/v1/jobs/a").document["state"] == "COMPLETED"

    def test_invocation_that_ends_soon_hands_its_run_back(self, system: Deployment) -> None:
        system.upload("import time; time.sleep(60)")
        message = send(system, system.register())

        reported = system.execute(system.receive(), Context(60_000, later_ms=14_000))

        assert len(reported) == 1
        run = system.run(message)
        assert (run.state, run.attempt, run.dispatch) == (RunState.PENDING, 0, 1)
        assert [a.outcome for a in run.attempts] == [AttemptOutcome.HANDED_BACK]
        assert visible(system) == 1, "the next executor does not have to wait"


class TestBatches:
    def test_one_bad_message_fails_none_of_its_batch(self, system: Deployment) -> None:
        system.upload("print('hi')")
        job = system.register()
        good = [send(system, job, minutes=n) for n in range(3)]
        rubbish = ["not json", "{}", json.dumps(json.loads(good[0].encode()) | {"v": "2"})]
        for n, body in enumerate(rubbish):
            system.send(body, group=f"rubbish-{n}", dedup=f"rubbish-{n}")

        reported = system.execute(system.receive())

        assert reported == set(), "moved elsewhere, so that it blocks nothing"
        assert {system.run(message).state for message in good} == {RunState.SUCCEEDED}
        letters = system.receive(url=system.dlq_url)
        assert sorted(letter["Body"] for letter in letters) == sorted(rubbish)
        for letter in letters:
            failure = letter["MessageAttributes"]["failure"]
            assert failure["DataType"] == "String"
            assert "not a run message" in failure["StringValue"]
            assert letter["Attributes"]["MessageDeduplicationId"] == content_id(letter["Body"])

    def test_run_under_anothers_lease_is_left_until_it_ends(
        self, system: Deployment, queues: Proxy
    ) -> None:
        system.upload("print('hi')")
        job = system.register()
        held, free = send(system, job, minutes=1), send(system, job)
        held_elsewhere(system, held)
        received = system.receive()

        reported = system.execute(received)

        [message_id] = [m["MessageId"] for m in received if held.run_id in m["Body"]]
        assert reported == {message_id}
        run = system.run(held)
        assert (run.state, run.worker, run.fence) == (RunState.RUNNING, "elsewhere", 1)
        assert system.run(free).state is RunState.SUCCEEDED
        [until_lease_ends] = hidings(queues)
        assert 15 <= until_lease_ends <= 20

    def test_a_short_run_changes_no_visibility(self, system: Deployment, queues: Proxy) -> None:
        system.upload("")
        system.register(jobId="a")
        send(system, system.job("a"))

        assert system.execute(system.receive()) == set()

        assert hidings(queues) == []

    def test_a_run_that_takes_more_than_a_moment_is_hidden_for_a_lease(
        self, system: Deployment, queues: Proxy
    ) -> None:
        system.upload("import time; time.sleep(1.5)")
        system.register(jobId="a")
        send(system, system.job("a"))

        assert system.execute(system.receive()) == set()

        assert hidings(queues) == [LEASE]

    def test_group_stops_at_the_first_that_stays(self, system: Deployment, queues: Proxy) -> None:
        """If the second were executed, it would overtake the first."""
        system.upload("print('hi')")
        job = system.register()
        at = floor_minute(SystemClock().now())
        one, two, three = (message_for(job, at - timedelta(minutes=n)) for n in range(3))
        for n, (message, group) in enumerate([(one, "g"), (two, "g"), (three, "h")]):
            system.send(message.encode(), group=group, dedup=str(n))
        held_elsewhere(system, one)
        received = system.receive()

        reported = system.execute(received)

        assert reported == {m["MessageId"] for m in received[:2]}
        assert system.runs.get(two.key) is None
        assert system.run(three).state is RunState.SUCCEEDED
        hidden = [
            (request["ReceiptHandle"], request["VisibilityTimeout"])
            for name, request in queues.calls
            if name == "change_message_visibility"
        ]
        until_lease_ends = hidden.pop(0)
        assert until_lease_ends[0] == received[0]["ReceiptHandle"]
        assert 15 <= until_lease_ends[1] <= 20
        assert hidden == [(received[1]["ReceiptHandle"], 0)], (
            "while the second is hidden, no one receives the first"
        )

    def test_what_cannot_be_handed_back_is_reported_nevertheless(
        self, system: Deployment, queues: Proxy
    ) -> None:
        job = system.register()
        at = floor_minute(SystemClock().now())
        messages = [message_for(job, at - timedelta(minutes=n)) for n in range(2)]
        for n, message in enumerate(messages):
            system.send(message.encode(), group="g", dedup=str(n))
        held_elsewhere(system, messages[0])
        received = system.receive()
        queues.instead["change_message_visibility"] = refuse("InternalError")

        assert system.execute(received) == {m["MessageId"] for m in received}

    def test_messages_of_one_group_are_carried_out_in_turn(self, system: Deployment) -> None:
        system.upload("import time; time.sleep(0.05)")
        job = system.register()
        at = floor_minute(SystemClock().now())
        messages = [message_for(job, at - timedelta(minutes=n)) for n in range(3)]
        for n, message in enumerate(messages):
            system.send(message.encode(), group="g", dedup=str(n))

        assert system.execute(system.receive()) == set()

        runs = [system.run(message) for message in messages]
        for before, after in pairwise(runs):
            assert before.finished_at is not None
            assert after.started_at is not None
            assert before.finished_at <= after.started_at

    @pytest.mark.parametrize(
        "code",
        ["ProvisionedThroughputExceededException", "AccessDeniedException", "ValidationException"],
    )
    def test_trouble_with_one_record_fails_only_this_one(
        self, system: Deployment, database: Proxy, code: str
    ) -> None:
        system.upload("print('hi')")
        bad, good = system.register(jobId="bad"), system.register(jobId="good")
        messages = {job.key.job_id: send(system, job) for job in (bad, good)}
        received = system.receive()
        database.instead["update_item"] = refuse(code, where="/bad'")

        reported = system.execute(received)

        assert reported == {m["MessageId"] for m in received if '"bad"' in m["Body"]}
        assert system.run(messages["good"]).state is RunState.SUCCEEDED
        assert system.runs.get(messages["bad"].key) is None
        assert system.receive(url=system.dlq_url) == []

    def test_batch_of_which_all_fail_is_reported_whole(
        self, system: Deployment, database: Proxy
    ) -> None:
        job = system.register()
        for n in range(3):
            send(system, job, minutes=n)
        received = system.receive()
        database.instead["get_item"] = refuse("InternalServerError")

        assert system.execute(received) == {m["MessageId"] for m in received}

    def test_job_that_does_not_decode_keeps_its_message(self, system: Deployment) -> None:
        job = system.register(jobId="a")
        key: Any = {"tenant": {"S": TENANT}, "job_id": {"S": "a"}}
        table = system.jobs_table
        sound: Any = system.database.get_item(TableName=table, Key=key)["Item"]
        system.database.put_item(TableName=table, Item=sound | {"state": {"S": "?"}})
        message = send(system, job)
        received = system.receive()

        assert system.execute(received) == {received[0]["MessageId"]}

        system.upload("")
        system.database.put_item(TableName=table, Item=sound)
        assert system.execute(received) == set(), "once repaired, it runs"
        assert system.run(message).state is RunState.SUCCEEDED
