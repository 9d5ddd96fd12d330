"""The embedded stack for end-to-end tests: those of `tests/e2e` that hold for it, and its own."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from nextfire import Client
from nextfire.client.access import Bearer
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedStack
from tests.places import host_folder
from tests.process_tree import children_of

ROOT = Path(__file__).resolve().parents[2]
LEASE = timedelta(seconds=6)
WORKERS = 2


class Stack:
    """The embedded stack, with the methods of the deployed stack in `tests/e2e/conftest.py`."""

    def __init__(self, local: EmbeddedStack, info: EmbeddedInfo, state: Path) -> None:
        self.local = local
        self.info = info
        self.state = state

    def api(self) -> httpx.Client:
        """A client with the stack's initial key."""
        headers = {"Authorization": f"Bearer {self.info.api_key}"}
        return httpx.Client(base_url=self.info.endpoint, headers=headers, timeout=30)

    def keyless_api(self) -> httpx.Client:
        return httpx.Client(base_url=self.info.endpoint, timeout=30)

    def put_script(self, pool: str, handler: str, source: str) -> None:
        """Upload *source* as script *handler* of *pool*. Pools of calls run none."""
        if self.info.pools[pool].targets == "scripts":
            with Client(self.info.endpoint, auth=Bearer(self.info.api_key)) as client:
                client.push_script(handler, source.encode(), pool=pool)

    def pid_of(self, part: str) -> int | None:
        """The process of *part*; None if it does not run."""
        found: int | None = self.info.parts()[part]["pid"]
        return found

    def workers(self) -> list[int]:
        """The process ids of the live workers, each a child of its supervisor."""
        supervisors = [p["pid"] for name, p in self.info.parts().items() if "worker" in name]
        return [child for pid in supervisors if pid for child in children_of(pid)]

    def kill_worker(self, pid: int) -> None:
        """Kill one of `workers` with SIGKILL. The stack starts another."""
        assert pid in self.workers()
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    # As in tests/e2e: scripts of dedicated users must be able to enter it.
    state = host_folder("embedded-nextfire-")
    state.chmod(0o711)
    local = EmbeddedStack(state, sources=ROOT)
    with local.running(lambda _line: None, workers=WORKERS, lease=LEASE) as info:
        yield Stack(local, info, state)
    shutil.rmtree(state)


@pytest.fixture
def scratch(stack: Stack) -> Path:
    """A new folder that scripts can read."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=stack.state))
    folder.chmod(0o755)
    return folder
