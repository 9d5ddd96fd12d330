"""The commands for dead letters, on moto's queues and an API with prepared answers."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import boto3  # noqa: TID251 - makes the queues that the command finds
import httpx2
import pytest
from moto import mock_aws
from typer.testing import CliRunner, Result

from nextfire.domain.message import RunMessage
from nextfire_cli import aws, confirmation
from nextfire_cli.aws import Account, DeadLetterQueue
from nextfire_cli.errors import CliError
from nextfire_cli.main import app
from tests.builders import NOON, a_message, run_key
from tests.local_stack import pretend_stack

ENDPOINT = "https://abc123.execute-api.eu-west-1.amazonaws.com"
TENANT = "123456789012"
REGION = "eu-west-1"


class Queue:
    """A dead-letter queue from which a test can read without consuming."""

    def __init__(self) -> None:
        self.sqs = boto3.client("sqs", REGION)
        self._numbers = count()
        attributes: Any = {"FifoQueue": "true"}
        self.url = self.sqs.create_queue(QueueName="dlq.fifo", Attributes=attributes)["QueueUrl"]

    def bury(self, body: str, failure: str = "exit code 1", group: str | None = None) -> None:
        number = str(next(self._numbers))
        self.sqs.send_message(
            QueueUrl=self.url,
            MessageBody=body,
            MessageGroupId=group or number,
            MessageDeduplicationId=number,
            MessageAttributes={"failure": {"DataType": "String", "StringValue": failure}},
        )

    def bodies(self) -> list[str]:
        """The bodies of all visible messages, which stay visible."""
        found: dict[str, Any] = {}
        while True:
            answer: Any = self.sqs.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=10, VisibilityTimeout=60
            )
            if not answer.get("Messages"):
                break
            found |= {message["ReceiptHandle"]: message["Body"] for message in answer["Messages"]}
        for receipt in found:
            self.sqs.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=receipt, VisibilityTimeout=0
            )
        return sorted(found.values())


class Api:
    """Executions by id, and the answers to calls that redrive a pool."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.redrives: list[Any] = []
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            assert request.url.path == "/v1/pools/batch/redrive"
            self.asked.append(json.loads(request.content))
            answer = self.redrives.pop(0)
            return (
                answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)
            )
        execution_id = request.url.path.rpartition("/")[2]
        if execution_id not in self.states:
            return httpx2.Response(404, json={"title": "Not Found", "status": 404, "detail": "-"})
        state, _, dispatch = self.states[execution_id].partition(" #")
        document = {"executionId": execution_id, "state": state, "dispatch": int(dispatch or 1)}
        return httpx2.Response(200, json=document)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield Queue()


@pytest.fixture
def api() -> Api:
    return Api()


Call = Callable[..., Result]


@pytest.fixture
def call(api: Api, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(aws, "WAIT", 0)
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", ENDPOINT)

    def run(command: str, *args: str, **more: str) -> Result:
        where = [] if "--stack" in args else ["--queue-url", queue.url]
        return CliRunner().invoke(
            app,
            ["dlq", command, "--pool", "batch", *where, *args],
            obj=httpx2.MockTransport(api),
            input=more.get("input"),
        )

    return run


def letter(job_id: str, tenant: str = TENANT) -> RunMessage:
    return a_message(run_key(NOON, job_id=job_id, tenant=tenant))


def execution(job_id: str) -> str:
    return run_key(NOON, job_id=job_id).execution_id


def test_list_shows_each_message_and_leaves_it_where_it_was(call: Call, queue: Queue) -> None:
    for number in range(12):
        queue.bury(letter(f"job{number}").encode(), f"exit code {number}")
    queue.bury("{\x1b[2J", "not a run message")
    before = queue.bodies()

    result = call("list", "--json")

    assert result.exit_code == 0, result.output
    items = json.loads(result.stdout)["items"]
    assert len(items) == 13
    [broken] = [item for item in items if item.get("state") == "UNREADABLE"]
    assert (broken["body"], broken["failure"]) == ("{\x1b[2J", "not a run message")
    found = {item["executionId"]: item["failure"] for item in items if "executionId" in item}
    assert found[execution("job7")] == "exit code 7"
    assert queue.bodies() == before
    text = call("list").stdout
    assert text.splitlines()[0].split()[:2] == ["EXECUTION", "TENANT"]
    assert {execution("job7"), TENANT} <= {*text.split()}
    assert "UNREADABLE" in text
    assert "\x1b" not in text


def test_list_ends_at_its_limit_and_says_so(call: Call, queue: Queue) -> None:
    for number in range(12):
        queue.bury(letter(f"job{number}").encode())

    result = call("list", "--limit", "3", "--json")

    assert len(json.loads(result.stdout)["items"]) == 3
    assert "more than 3" in result.stderr
    assert len(queue.bodies()) == 12


def test_an_empty_queue(call: Call) -> None:
    assert call("list").stdout == "The dead-letter queue is empty.\n"
    assert json.loads(call("list", "--json").stdout) == {"items": []}


def test_redrive_goes_through_all_and_clears_what_is_not_dead_any_more(
    call: Call, api: Api, queue: Queue
) -> None:
    for job_id in ("again", "dead", "done", "gone", "twice"):
        queue.bury(letter(job_id).encode())
    theirs = letter("again", tenant="210987654321").encode()
    queue.bury(theirs)
    queue.bury("rubbish")
    api.states = {execution("again"): "PENDING", execution("dead"): "DEAD"}
    api.states |= {execution("done"): "SUCCEEDED", execution("twice"): "DEAD #3"}
    api.redrives = [
        {"redriven": ["x.1"], "skipped": [], "more": True, "cursor": "c1"},
        {
            "redriven": ["x.2"],
            "skipped": [{"executionId": execution("dead"), "reason": "Its job was deleted."}],
            "more": False,
        },
    ]

    result = call("redrive", "--since", "2026-05-24T00:00:00Z", "--reason", "fixed", "--json")

    assert result.exit_code == 0, result.output
    asked = {"from": "2026-05-24T00:00:00Z", "limit": 50, "reason": "fixed"}
    assert api.asked == [asked, asked | {"cursor": "c1"}]
    done = json.loads(result.stdout)
    assert (done["redriven"], done["deleted"]) == (["x.1", "x.2"], 3)
    assert done["skipped"][0]["reason"] == "Its job was deleted."
    kept = {each.get("executionId"): each["reason"] for each in done["kept"]}
    assert kept == {
        execution("dead"): "is DEAD",
        execution("gone"): "its execution was not found",
        execution("again"): "of tenant 210987654321",
        None: "unreadable; look at it with nextfire dlq list",
    }
    assert queue.bodies() == sorted(
        [letter("dead").encode(), letter("gone").encode(), theirs, "rubbish"]
    )


def test_a_redrive_that_is_cut_short_says_how_far_it_came(call: Call, api: Api) -> None:
    api.redrives = [
        {"redriven": ["x.1"], "skipped": [], "more": True, "cursor": "c1"},
        httpx2.Response(409, json={"title": "Conflict", "status": 409, "detail": "-"}),
    ]

    result = call("redrive")

    assert result.exit_code == 5
    assert "1 redriven so far: repeat the command to continue." in result.stderr


def test_a_redrive_of_no_run_is_not_to_be_repeated(call: Call, api: Api) -> None:
    api.redrives = [httpx2.Response(404, json={"title": "Not Found", "status": 404, "detail": "-"})]

    result = call("redrive")

    assert result.exit_code == 3
    assert "repeat" not in result.stderr


def test_the_embedded_stack_redrives_without_a_queue(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_stack(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEXTFIRE_ENDPOINT", raising=False)
    api.redrives = [{"redriven": ["x.1"], "skipped": [], "more": False}]
    transport = httpx2.MockTransport(api)

    done = CliRunner().invoke(app, ["dlq", "redrive", "--pool", "batch"], obj=transport)
    listed = CliRunner().invoke(app, ["dlq", "list", "--pool", "batch"], obj=transport)

    assert (done.exit_code, done.stdout) == (0, "1 execution redriven.\n")
    assert listed.exit_code == 1
    assert "nextfire runs list --state DEAD" in listed.stderr


def test_redrive_lists_the_messages_it_kept(call: Call, api: Api, queue: Queue) -> None:
    queue.bury("rubbish")
    api.redrives = [{"redriven": ["x.1"], "skipped": [], "more": False}]

    text = call("redrive").stdout

    assert "1 execution redriven, 0 messages deleted." in text
    assert "Kept: message " in text


def test_purge_asks_and_deletes_what_is_there(
    call: Call, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(23):
        queue.bury(f"{number}")

    for unconfirmed in (call("purge", input="y\n"), call("purge", "--json")):
        assert (unconfirmed.exit_code, len(queue.bodies())) == (1, 23)
        assert "add --yes" in unconfirmed.stderr
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)
    refused = call("purge", input="n\n")
    assert (refused.exit_code, len(queue.bodies())) == (1, 23)
    assert "about 23 messages" in refused.stderr
    purged = call("purge", "--yes", "--json")

    assert json.loads(purged.stdout) == {"deleted": 23, "kept": 0}
    assert queue.bodies() == []


def test_a_purge_keeps_messages_that_arrive_during_it(
    call: Call, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        queue.bury(f"{number}")
    count = DeadLetterQueue.count

    def long_ago(self: DeadLetterQueue) -> Any:
        total, at = count(self)
        return total, at - timedelta(hours=1)

    monkeypatch.setattr(DeadLetterQueue, "count", long_ago)

    purged = call("purge", "--yes")

    assert purged.stdout == "0 messages deleted. 3 came meanwhile and stay.\n"
    assert len(queue.bodies()) == 3


def test_the_queue_is_found_by_the_stacks_outputs(
    call: Call, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outputs(_: Account, stack: str) -> dict[str, str]:
        if stack != "Mine":
            raise CliError(f"Stack {stack!r} not found.")
        return {"DlqUrlBatch": queue.url, "DlqUrlDefault": "https://none", "ApiUrl": "https://a"}

    monkeypatch.setattr(Account, "outputs", outputs)
    queue.bury(letter("a").encode())

    assert execution("a") in call("list", "--stack", "Mine").stdout
    other = call("list", "--stack", "Mine", "--pool", "gpu")
    assert other.exit_code == 3
    assert "Its pools: Batch, Default." in other.stderr
    missing = call("list", "--stack", "Missing")
    assert (missing.exit_code, missing.stderr) == (1, "Error: Stack 'Missing' not found.\n")


def test_a_missing_queue_is_an_error(call: Call) -> None:
    result = call("list", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/1/none.fifo")

    assert result.exit_code == 1
    assert "cannot be used" in result.stderr


def test_list_says_that_a_job_has_more_messages_than_sqs_shows(call: Call, queue: Queue) -> None:
    for _ in range(12):
        queue.bury(letter("job").encode(), group="job")

    result = call("list", "--json")

    assert len(json.loads(result.stdout)["items"]) == 10
    assert "About 2 more messages not shown" in result.stderr


def test_redrive_says_that_messages_of_a_job_hide_others(
    call: Call, queue: Queue, api: Api
) -> None:
    """SQS moved them there: they are in the message group of their job. Ten of them stay."""
    for number in range(12):
        queue.bury(letter(f"job{number}").encode(), group="job")
        api.states[execution(f"job{number}")] = "DEAD"
    api.redrives = [{"redriven": [], "skipped": [], "more": False}]

    result = call("redrive")

    assert result.exit_code == 0
    assert "About 2 more messages not looked at" in result.stderr
