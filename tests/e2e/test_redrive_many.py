"""The CLI redrives a thousand dead runs, and each starts once."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.crons import LONG
from tests.e2e.conftest import Stack
from tests.e2e.user import COUNTING, User, until

MANY = 1_000

pytestmark = [
    pytest.mark.skipif(not LONG, reason="takes minutes: make test-long"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    with stack.api() as http:
        yield User(stack, http, scratch)


def nextfire(stack: Stack, *arguments: str) -> str:
    """The output of the CLI."""
    done = subprocess.run(
        [Path(sys.executable).with_name("nextfire"), *arguments, "--endpoint", stack.info.endpoint],
        env={
            **os.environ,
            "AWS_ACCESS_KEY_ID": stack.info.access_key,
            "AWS_SECRET_ACCESS_KEY": stack.info.secret_key,
            "AWS_REGION": stack.info.region,
            "AWS_ENDPOINT_URL": stack.info.aws_endpoint,
            "NEXTFIRE_API_KEY": stack.info.api_key,
        },
        cwd=stack.state,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dead(user: User) -> set[str]:
    found: set[str] = set()
    cursor = ""
    while True:
        page = user.call("GET", f"/v1/executions?state=DEAD&limit=100{cursor}")
        found |= {run["executionId"] for run in page["items"]}
        if "cursor" not in page:
            return found
        cursor = f"&cursor={page['cursor']}"


def test_a_thousand_dead_runs_are_redriven_and_each_starts_once(user: User) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=90)).replace(microsecond=0)
    with ThreadPoolExecutor(4) as threads:
        # The script does not exist yet: each run is DEAD after its first attempt.
        jobs = list(threads.map(lambda _: user.once(at, handler="uploaded-later"), range(MANY)))
    ids = {job["jobId"] for job in jobs}

    def all_dead() -> set[str] | None:
        found = {each for each in dead(user) if each.partition(".")[0] in ids}
        return found if len(found) == MANY else None

    died: set[str] = until(all_dead, f"{MANY} deaths", within=300)
    user.stack.put_script("default", "uploaded-later", COUNTING)
    time.sleep(3)  # executors cache the missing script for this long

    queue = user.stack.info.pools["default"].dlq_url
    nextfire(user.stack, "dlq", "redrive", "--pool", "default", "--queue-url", queue)

    def over() -> bool:
        return len(user.marks.read_text().splitlines()) >= MANY and not all_dead()

    until(over, f"{MANY} runs", within=400)
    time.sleep(5)
    starts = Counter(user.marks.read_text().split())
    assert set(starts) == died
    assert set(starts.values()) == {1}
    left = user.stack.client("sqs").get_queue_attributes(
        QueueUrl=queue, AttributeNames=["ApproximateNumberOfMessages"]
    )
    assert left["Attributes"]["ApproximateNumberOfMessages"] == "0"
