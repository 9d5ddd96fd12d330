"""`nextfire worker` serves a pool from this machine, in the role of the pool's workers."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import ROOT, Stack
from tests.e2e.user import Document, until, worker_of
from tests.process_tree import children_of

RUNS = 24
"""More runs than all slots of all workers, including this one."""
WAVES = 6
"""How often as many runs are started: workers that are busy and fast may take all of a wave."""


def wave(api: httpx2.Client) -> Counter[int]:
    """Start runs and wait for their ends. Returns how many each worker, a process id, took."""
    due = {"type": "DELAY", "schedule": "PT1S", "target": {"handler": "busy"}}
    made = [api.post("/v1/jobs", json=due).raise_for_status().json() for _ in range(RUNS)]

    def ended() -> list[Document] | None:
        pages = [api.get(f"/v1/jobs/{job['jobId']}/executions") for job in made]
        found = [run for page in pages for run in page.raise_for_status().json()["items"]]
        runs = [run for run in found if run["state"] == "SUCCEEDED"]
        return runs if len(runs) == RUNS else None

    return Counter(worker_of(run) for run in until(ended, f"the end of {RUNS} runs"))


@pytest.fixture
def command(stack: Stack, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The running command, with its output in `log`."""
    environment = {
        **inherited_environment(),
        "AWS_ACCESS_KEY_ID": stack.info.access_key,
        "AWS_SECRET_ACCESS_KEY": stack.info.secret_key,
        "AWS_REGION": stack.info.region,
        "AWS_ENDPOINT_URL": stack.info.aws_endpoint,
        "TMPDIR": str(tmp_path),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(Path(sys.prefix) / "bin" / "nextfire"), "worker", "--stack", "Nextfire"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_command_carries_runs_out_until_it_is_ended(
    stack: Stack, command: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    stack.put_script("default", "busy", "import time; time.sleep(2)")
    until(lambda: command.poll() is not None or '"serving"' in log.read_text(), "the start")
    assert command.poll() is None, log.read_text()
    [worker] = children_of(command.pid)

    took = Counter[int]()
    with stack.api() as api:
        for _ in range(WAVES):
            took += wave(api)
            if worker in took:
                break
    assert worker in took, f"{took}\n{log.read_text()}"

    command.send_signal(signal.SIGTERM)
    assert command.wait(timeout=30) == 0, log.read_text()
    assert "stopped" in log.read_text()
