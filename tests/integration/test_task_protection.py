"""The requests to the ECS agent, with an agent on the loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from nextfire.adapters.worker.task_protection import EcsTaskProtection

PROTECTED = {"ProtectionEnabled": True, "ExpiresInMinutes": 12 * 60 + 5}
FREE = {"ProtectionEnabled": False}
LONGEST_TIMEOUT = timedelta(hours=12)
"""Of a pool of workers: SQS does not hide a message for longer."""


class Agent(BaseHTTPRequestHandler):
    """Answers as the ECS agent does, or with `answer`."""

    asked: ClassVar[list[tuple[str, dict[str, Any]]]]
    answer: ClassVar[tuple[int, str] | None]

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        status, text = self.answer or (200, json.dumps({"protection": body}))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def agent() -> Iterator[type[Agent]]:
    class Fresh(Agent):
        asked: ClassVar[list[tuple[str, dict[str, Any]]]] = []
        answer = None
        uri = ""

    with HTTPServer(("127.0.0.1", 0), Fresh) as server:
        Fresh.uri = f"http://127.0.0.1:{server.server_port}/api/task-1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Fresh
        finally:
            server.shutdown()
            thread.join()


class Task:
    """A task with its protection and a clock that the test moves."""

    def __init__(self, uri: str | None) -> None:
        self.seconds = 0.0
        self.warnings: list[str] = []
        self._protection = EcsTaskProtection(
            uri, monotonic=lambda: self.seconds, warn=self.warnings.append
        )

    def keep(self, *, working: bool) -> None:
        self._protection.keep(working=working)


def states(agent: Any) -> list[dict[str, Any]]:
    return [body for _, body in agent.asked]


def test_agent_is_asked_at_the_changes_only(agent: Any) -> None:
    task = Task(agent.uri)

    for working in (False, True, True, False, False, True):
        task.keep(working=working)

    assert states(agent) == [PROTECTED, FREE, PROTECTED]
    assert {path for path, _ in agent.asked} == {"/api/task-1/task-protection/v1/state"}
    assert task.warnings == []


def test_protection_is_renewed_every_five_minutes(agent: Any) -> None:
    task = Task(agent.uri)

    for _ in range(15 * 60):
        task.keep(working=True)
        task.seconds += 1

    assert states(agent) == [PROTECTED] * 3


def test_a_run_is_protected_until_its_end_although_renewals_are_refused(agent: Any) -> None:
    """In a deployment ECS refuses them, with DEPLOYMENT_BLOCKED, while the old and the new tasks
    that are protected are more than the service is to have.
    """
    task = Task(agent.uri)
    task.keep(working=True)
    task.seconds += 299  # a run starts before the first renewal
    agent.answer = (200, '{"failure": {"Reason": "DEPLOYMENT_BLOCKED"}}')
    task.seconds += LONGEST_TIMEOUT.total_seconds()

    task.keep(working=True)

    [granted, refused] = states(agent)
    assert granted["ExpiresInMinutes"] * 60 >= task.seconds
    assert refused == PROTECTED


def test_an_idle_worker_ends_the_protection_that_a_dead_one_in_its_task_left(agent: Any) -> None:
    task = Task(agent.uri)

    for _ in range(15 * 60):
        task.keep(working=False)
        task.seconds += 1

    assert states(agent) == [FREE]


@pytest.mark.parametrize(
    "answer",
    [
        (400, '{"error": {"Code": "AccessDeniedException"}}'),
        (200, '{"failure": {"Reason": "TASK_NOT_VALID"}}'),
        (200, "no JSON"),
    ],
)
def test_refusal_is_reported_and_asked_again_after_a_while(
    agent: Any, answer: tuple[int, str]
) -> None:
    agent.answer = answer
    task = Task(agent.uri)

    task.keep(working=True)
    task.keep(working=True)
    assert (len(agent.asked), len(task.warnings)) == (1, 1)
    agent.answer = None
    task.seconds += 31
    task.keep(working=True)
    task.keep(working=True)

    assert states(agent) == [PROTECTED] * 2
    assert len(task.warnings) == 1


def test_a_protection_whose_response_was_lost_ends_with_the_work(agent: Any) -> None:
    """Otherwise neither scale-in nor a deployment ends the idle task for 12 hours."""
    task = Task(agent.uri)
    task.keep(working=True)
    task.keep(working=False)
    agent.answer = (500, "protected, but the agent had no response from ECS in time")
    task.keep(working=True)
    agent.answer = None

    for _ in range(10 * 60):
        task.seconds += 1
        task.keep(working=False)

    assert states(agent) == [PROTECTED, FREE, PROTECTED, FREE]


def test_an_idle_worker_seldom_asks_an_agent_that_refuses(agent: Any) -> None:
    """Meanwhile it receives no messages, up to two seconds each time."""
    agent.answer = (400, '{"error": {"Code": "AccessDeniedException"}}')
    task = Task(agent.uri)

    for _ in range(60 * 60):
        task.keep(working=False)
        task.seconds += 1

    assert len(agent.asked) <= 12, "every five minutes"


def test_agent_that_is_gone_does_not_stop_the_work() -> None:
    task = Task("http://127.0.0.1:9/api")  # nothing listens on the discard port

    task.keep(working=True)

    assert len(task.warnings) == 1


def test_without_an_agent_nothing_is_asked() -> None:
    task = Task(None)

    task.keep(working=True)

    assert task.warnings == []
