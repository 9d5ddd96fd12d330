"""A Lambda executor that is killed: its run starts again when the lease of its pool ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nextfire.adapters.dynamodb.run_items import encode_key
from nextfire.domain.ids import JobKey, RunKey
from tests.e2e.conftest import Stack
from tests.e2e.user import COUNTING, Document, User, soon, until
from tests.process_tree import function_processes


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    stack.put_script("lambda", "counting", COUNTING)
    with stack.api() as http:
        yield User(stack, http, scratch)


def lease_of(stack: Stack, run: Document) -> int:
    """When the lease of the claimed *run* ends, in ms since 1970."""
    key = RunKey(JobKey(stack.info.account_id, run["jobId"]), run["executionId"].partition(".")[2])
    found = stack.client("dynamodb").get_item(
        TableName=stack.info.tables["runs"], Key=encode_key(key), ConsistentRead=True
    )
    return int(found["Item"]["lease_until"]["N"])


def test_a_run_whose_function_is_killed_is_run_again(user: User) -> None:
    job = user.once(
        soon(),
        handler="counting",
        pool="lambda",
        payload={"sleep": 8},
        retryPolicy={"maxAttempts": 2},
    )
    run = until(lambda: user.runs(job), "the claim")[0]
    # After the first second; deaths before that are found later, see decision 51.
    first = lease_of(user.stack, run)
    until(lambda: lease_of(user.stack, run) > first, "a heartbeat")

    [emulator] = [each.pid for each in user.stack.info.processes if each.name == "ministack"]
    executors = function_processes(emulator, user.stack.info.functions["executor-lambda"])
    assert executors
    for pid in executors:
        os.kill(pid, signal.SIGKILL)
    [run] = user.ended(job)

    assert run["state"] == "SUCCEEDED"
    assert [each["outcome"] for each in run["attempts"]] == ["WORKER_LOST", "SUCCEEDED"]
    assert user.marked() == [run["executionId"]] * 2
