"""A worker process is killed: its supervisor hands its messages to other workers at once.

Real processes and an emulator of AWS. The lease is ten minutes, so it cannot be the cause.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.instants import floor_minute
from nextfire.domain.message import RunMessage
from nextfire.domain.run import RunState
from tests.integration.backends import MINISTACK
from tests.integration.deployment import Deployment, message_for
from tests.process_tree import children_of

ROOT = Path(__file__).resolve().parents[2]
AT_MOST = 60.0
"""Timeout of a test in seconds."""


@pytest.fixture
def backend() -> str:
    return MINISTACK


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor with its worker; its output goes to the file `log` in *folder*."""
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "functions.worker"],
            env={
                **os.environ,  # noqa: TID251 — as set up by `system`
                "NEXTFIRE_LEASE": "PT10M",
                "NEXTFIRE_SLOTS": "8",  # also the number of messages per receive
                "POWERTOOLS_SERVICE_NAME": "worker",
                "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
                "PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}",
                "TMPDIR": str(folder),
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=AT_MOST)


def wait_until(condition: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + AT_MOST
    while not condition():
        logs = "\n".join(log.read_text() for log in sorted(folder.glob("*/log")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.05)


def hidden(system: Deployment) -> int:
    answer = system.queues.get_queue_attributes(QueueUrl=system.queue_url, AttributeNames=["All"])
    return int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])


def states(system: Deployment, messages: list[RunMessage]) -> list[RunState | None]:
    runs = [system.runs.get(message.key) for message in messages]
    return [None if run is None else run.state for run in runs]


def test_all_that_a_killed_worker_held_is_taken_up_at_once(
    system: Deployment, tmp_path: Path
) -> None:
    system.upload("import time; time.sleep(600)")
    job = system.register()
    groups = ["a", "b", "c", "c", "c"]
    due = floor_minute(job.created_at)
    messages = [message_for(job, due - timedelta(minutes=n)) for n in range(len(groups))]
    for message, group in zip(messages, groups, strict=True):
        system.send(message.encode(), group=group, dedup=message.run_id)
    running, waiting = messages[:3], messages[3:]

    with ExitStack() as stack:
        first = stack.enter_context(worker(tmp_path / "first"))
        wait_until(
            lambda: (
                states(system, messages) == [RunState.RUNNING] * 3 + [None] * 2
                and hidden(system) == len(messages)
            ),
            tmp_path,
        )
        [lost] = children_of(first.pid)
        system.upload("")
        os.kill(lost, signal.SIGKILL)
        stack.enter_context(worker(tmp_path / "second"))

        wait_until(lambda: set(states(system, messages)) == {RunState.SUCCEEDED}, tmp_path)

    for message in running:
        attempts = system.run(message).attempts
        outcomes = [AttemptOutcome.WORKER_LOST, AttemptOutcome.SUCCEEDED]
        assert [attempt.outcome for attempt in attempts] == outcomes
        assert attempts[0].worker.endswith(f"-{lost}")
    assert [system.run(message).attempt for message in waiting] == [1, 1]
