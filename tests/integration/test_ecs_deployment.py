"""When a task counts as replaced: its metadata, and boto3's requests to ECS, on the loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from nextfire.adapters.aws.clients import ecs
from nextfire.adapters.worker.ecs_deployment import EcsDeployment

MINUTE = 60.0
TASK = {"Cluster": "jobs", "ServiceName": "workers", "Family": "etl", "Revision": "7"}
DEFINITION = "arn:aws:ecs:eu-central-1:123456789012:task-definition/etl:{}"


class Ecs(BaseHTTPRequestHandler):
    """Serves the metadata `task`, and answers requests to ECS with `answers`, one after another."""

    task: ClassVar[dict[str, Any]]
    answers: ClassVar[list[tuple[int, dict[str, Any]]]]
    asked: ClassVar[list[dict[str, Any]]]

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v4/abc/task" else 404, self.task)

    def do_POST(self) -> None:
        assert self.headers["X-Amz-Target"].endswith(".DescribeServices")
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(*self.answers.pop(0))

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


def deployment(status: str, revision: int, *, running: int, desired: int = 2) -> dict[str, Any]:
    return {
        "status": status,
        "taskDefinition": DEFINITION.format(revision),
        "runningCount": running,
        "desiredCount": desired,
    }


OWN = deployment("ACTIVE", 7, running=2)
NEW = deployment("PRIMARY", 8, running=2)
STARTING = deployment("PRIMARY", 8, running=1)


class Task:
    """A task with a clock that the test moves."""

    def __init__(self, uri: str | None) -> None:
        self.seconds = 0.0
        self.logged: list[str] = []
        self._deployment = EcsDeployment(
            uri, ecs(), monotonic=lambda: self.seconds, log=self.logged.append
        )

    def is_replaced(self, *minutes: float) -> list[bool]:
        """At each of *minutes* after the start."""
        found = []
        for each in minutes:
            self.seconds = each * MINUTE
            found.append(self._deployment.is_replaced())
        return found


Start = Callable[..., tuple[Task, type[Ecs]]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the task with some metadata; ECS shows one list of deployments for each request."""

    class Fresh(Ecs):
        task: ClassVar[dict[str, Any]] = {}
        answers: ClassVar[list[tuple[int, dict[str, Any]]]] = []
        asked: ClassVar[list[dict[str, Any]]] = []

    with HTTPServer(("127.0.0.1", 0), Fresh) as server:
        uri = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials below
        monkeypatch.setenv("AWS_ENDPOINT_URL_ECS", uri)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def started(task: dict[str, Any], *shown: list[dict[str, Any]]) -> tuple[Task, type[Ecs]]:
            Fresh.task = task
            Fresh.answers += [(200, {"services": [{"deployments": each}]}) for each in shown]
            return Task(f"{uri}/v4/abc"), Fresh

        try:
            yield started
        finally:
            server.shutdown()
            thread.join()


def test_a_task_is_replaced_when_the_tasks_of_a_newer_deployment_run(start: Start) -> None:
    task, at_ecs = start(TASK, [deployment("PRIMARY", 7, running=2)], [STARTING, OWN], [NEW, OWN])

    assert task.is_replaced(0, 4.9, 5, 6, 9.9, 10, 15, 16, 100) == [False] * 6 + [True] * 3
    assert task.logged == ["a newer deployment runs: this task ends when its runs have ended"]
    assert at_ecs.asked == [{"cluster": "jobs", "services": ["workers"]}] * 3


@pytest.mark.parametrize("shown", [[deployment("PRIMARY", 8, running=0, desired=0)], []])
def test_a_deployment_without_tasks_replaces_none(
    start: Start, shown: list[dict[str, Any]]
) -> None:
    task, _ = start(TASK, shown)

    assert (task.is_replaced(5), task.logged) == ([False], [])


def test_revisions_are_compared_whole(start: Start) -> None:
    task, _ = start({**TASK, "Revision": "17"}, [deployment("PRIMARY", 7, running=2)])

    assert task.is_replaced(5) == [True]


def test_a_task_goes_on_while_ecs_does_not_answer(start: Start) -> None:
    task, at_ecs = start(TASK)
    at_ecs.answers += [(400, {"__type": "AccessDeniedException"})]
    at_ecs.answers += [(200, {"services": [{"deployments": [NEW]}]})]

    assert task.is_replaced(5, 9.9, 10) == [False, False, True]
    assert "its role needs ecs:DescribeServices" in task.logged[0]
    assert "AccessDenied" in task.logged[0]


@pytest.mark.parametrize("name", [{"ServiceName": None}, {}])
def test_a_task_without_a_service_is_never_replaced(start: Start, name: dict[str, None]) -> None:
    task, at_ecs = start({"Cluster": "jobs", **name})

    assert (task.is_replaced(5, 10), at_ecs.asked, task.logged) == ([False] * 2, [], [])


def test_a_process_outside_of_ecs_is_never_replaced() -> None:
    assert Task(None).is_replaced(100) == [False]
