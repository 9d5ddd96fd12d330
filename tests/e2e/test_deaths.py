"""The emulated stack when its parts are killed under load: workers, watcher, `up`, emulator.

Nothing acknowledged is lost unless the emulator itself is killed; then the next start says what it
found.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from nextfire.client.folder import FOLDER
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo
from tests import crons
from tests.e2e.conftest import ROOT
from tests.e2e.user import until
from tests.places import host_folder
from tests.process_tree import function_processes

JOBS = 20
_WATCHER_LOST = re.compile(
    r"Not on time: the watcher of group 0 has not renewed its lease since|one was lost at"
)
pytestmark = pytest.mark.skipif(not crons.LONG, reason="minutes: make test-long")


class Up:
    """`nextfire up --emulator`, as a process that a test can kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / FOLDER
        self._state.mkdir(mode=0o711)
        self.stack = LocalStack(ROOT, state=self._state)
        self._log = folder / "up.log"
        self._said = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start it. Returns what it reported until it was up."""
        self._said = len(self._log.read_text()) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.up", self._state],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self.said().endswith("\nup\n"), "the start", within=300)
        return self.said()

    def said(self) -> str:
        return self._log.read_text()[self._said :]

    @property
    def info(self) -> StackInfo:
        found = self.stack.info()
        assert found is not None
        return found

    def pid(self, name: str) -> int:
        """The process *name*, as `nextfire status` shows it."""
        [found] = [each.pid for each in self.info.processes if each.name == name]
        return found

    def status(self) -> str:
        """What `nextfire status` prints in the folder of the stack."""
        url = f"{self.info.endpoint}/v1/health"
        until(lambda: httpx2.get(url, timeout=30).is_success, "an answer")
        done = subprocess.run(
            [Path(sys.executable).with_name("nextfire"), "status"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return " ".join(f"{done.stdout} {done.stderr}".split())

    def functions(self, name: str) -> list[int]:
        """The processes that run the function *name*."""
        return function_processes(self.pid("ministack"), self.info.functions[name])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(120)

    def api(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.info.api_key}"}
        return httpx2.Client(base_url=self.info.endpoint, headers=headers, timeout=30)

    def create(self, number: int = JOBS) -> list[str]:
        """Create jobs that are due in two seconds. Returns the ids of those acknowledged."""
        job = {"type": "DELAY", "schedule": "PT2S", "target": {"handler": "mark"}}
        with self.api() as api:
            made = [api.post("/v1/jobs", json=job).raise_for_status() for _ in range(number)]
        return [each.json()["jobId"] for each in made]

    def succeeded(self, jobs: list[str]) -> bool:
        with self.api() as api:
            for job in jobs:
                found = api.get(f"/v1/jobs/{job}/executions").raise_for_status().json()["items"]
                if [each["state"] for each in found] != ["SUCCEEDED"]:
                    return False
        return True


@pytest.fixture
def up() -> Iterator[Up]:
    folder = host_folder("deaths-nextfire-")
    folder.chmod(0o711)
    up = Up(folder)
    yield up
    up.kill()
    up.stack.stop()
    shutil.rmtree(folder)


@pytest.mark.timeout(1200)
def test_what_is_killed_is_reported_and_recovers_and_nothing_is_lost(up: Up) -> None:
    up.start()
    bucket, account = up.info.scripts_bucket, up.info.account_id
    s3 = up.stack.client("s3")
    s3.put_object(Bucket=bucket, Key=f"pools/default/{account}/mark.py", Body=b"print('ran')")

    jobs = up.create()
    for name in ("worker-default-0", "worker-default-1"):
        before = up.pid(name)
        os.kill(before, signal.SIGKILL)
        until(lambda name=name, before=before: up.pid(name) != before, f"{name} again")  # type: ignore[misc]
        assert f"{name}: killed by SIGKILL; it is started again" in up.said()
        assert f"{name} pid {up.pid(name)}, died once, last killed by SIGKILL" in up.status()
    jobs += up.create()
    watchers = up.functions("watcher")
    assert watchers
    for watcher in watchers:
        os.kill(watcher, signal.SIGKILL)
    until(lambda: _WATCHER_LOST.search(up.status()), "the death of the watcher")
    jobs += up.create()
    until(partial(up.succeeded, jobs), "all acknowledged jobs", within=300)
    assert re.search(r"Watcher 0 .*; one was lost at .*, and another took over after", up.status())

    late = up.create()
    up.kill()
    assert "Not on time: up does not run." in up.status()
    said = up.start()
    assert "stopping the emulator of an earlier start, which saves its data" in said
    until(partial(up.succeeded, jobs + late), "the jobs of before", within=300)

    os.kill(up.pid("ministack"), signal.SIGKILL)
    assert up.wait() == 1
    assert "ministack" in up.said()
    said = up.start()
    assert "found the data of its last clean stop" in said
    assert up.succeeded(jobs), "they were there at the last clean stop"
