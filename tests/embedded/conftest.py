"""The embedded stack for end-to-end tests: those of `tests/e2e` that hold for it, and its own."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire import Client
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.files.stack_folder import DATABASE
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteRunQueue
from nextfire.client.bearer import Bearer
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedStack
from tests.e2e.test_policies import SLEEPING
from tests.e2e.test_runs import ALONE, ENDLESS, FLAKY, PRINTING, SAVING
from tests.e2e.user import COUNTING, Document, User, until
from tests.places import host_folder
from tests.process_tree import children_of

ROOT = Path(__file__).resolve().parents[2]
LEASE = timedelta(seconds=6)
WORKERS = 2
POOLS = ("default", "lambda")
"""Pools of scripts, by their names in `tests/e2e`."""


class Stack:
    """The embedded stack, with the methods of the deployed stack in `tests/e2e/conftest.py`."""

    def __init__(self, local: EmbeddedStack, info: EmbeddedInfo, state: Path) -> None:
        self.local = local
        self.info = info
        self.state = state

    def api(self) -> httpx2.Client:
        """A client with the stack's initial key."""
        headers = {"Authorization": f"Bearer {self.info.api_key}"}
        return httpx2.Client(base_url=self.info.endpoint, headers=headers, timeout=30)

    def keyless_api(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.info.endpoint, timeout=30)

    def put_script(self, pool: str, handler: str, source: str) -> None:
        """Upload *source* as script *handler* of *pool*. Pools of calls run none."""
        if self.info.pools[pool].targets == "scripts":
            with Client(self.info.endpoint, auth=Bearer(self.info.api_key)) as client:
                client.push_script(handler, source.encode(), pool=pool)

    def pid_of(self, part: str) -> int | None:
        """The process of *part*; None if it does not run."""
        found: int | None = self.info.parts()[part]["pid"]
        return found

    def database(self) -> Database:
        """The stack's database."""
        return Database(self.state / "embedded" / DATABASE)

    def workers(self) -> list[int]:
        """The process ids of the pool default's live workers, each a child of its supervisor."""
        parts = self.info.parts().items()
        supervisors = [each["pid"] for name, each in parts if "worker-default-" in name]
        return [child for pid in supervisors if pid for child in children_of(pid)]

    def kill_worker(self, pid: int) -> None:
        """Kill one of `workers` with SIGKILL. The stack starts another."""
        assert pid in self.workers()
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    # As in tests/e2e: scripts of dedicated users must be able to enter it.
    folder = host_folder("embedded-nextfire-")
    folder.chmod(0o711)
    state = folder / "state"
    local = EmbeddedStack(state, sources=ROOT, pools=POOLS)
    with local.running(lambda _line: None, workers=WORKERS, lease=LEASE) as info:
        yield Stack(local, info, state)
    shutil.rmtree(folder)


@pytest.fixture
def scratch(stack: Stack) -> Path:
    """A new folder that scripts can read."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=stack.state.parent))
    folder.chmod(0o755)
    return folder


class EmbeddedUser(User):
    """A user of the embedded stack, who looks into the queues in its database."""

    stack: Stack  # type: ignore[assignment] # has what the tests of both use

    def queue_is_empty(self, pool: str = "default") -> bool:
        queue = SqliteRunQueue(self.stack.database(), clock=SystemClock(), pools=[pool])
        return queue.backlog(pool) == 0

    def dead_letter(self, pool: str, holds: str) -> Document:
        letters = SqliteDeadLetters(self.stack.database(), clock=SystemClock(), pool=pool)

        def check() -> Document | None:
            for body, failure in letters.list():
                if holds in body:
                    attribute = {"DataType": "String", "StringValue": failure}
                    return {"Body": body, "MessageAttributes": {"failure": attribute}}
            return None

        letter: Document = until(check, f"a dead letter with {holds}")
        return letter


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    """A user, with the scripts of the tests of `tests/e2e`."""
    for name, source in {
        "counting": COUNTING,
        "sleeping": SLEEPING,
        "flaky": FLAKY,
        "endless": ENDLESS,
        "printing": PRINTING,
        "saving": SAVING,
        "alone": ALONE,
    }.items():
        for pool in POOLS:
            stack.put_script(pool, name, source)
    with stack.api() as http:
        this_stack: Any = stack
        yield EmbeddedUser(this_stack, http, scratch)
