"""`nextfire worker` serves a pool from this machine, in the role of the pool's workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nextfire_cli.local.cdk import inherited_environment
from tests.e2e.conftest import ROOT, Stack
from tests.process_tree import children_of

RUNS = 24
"""Enough runs for all slots of all workers, including this one."""


def wait_until(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


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
    wait_until(lambda: command.poll() is not None or '"serving"' in log.read_text(), log)
    assert command.poll() is None, log.read_text()
    [worker] = children_of(command.pid)

    with stack.api() as api:
        due = {"type": "DELAY", "schedule": "PT1S", "target": {"handler": "busy"}}
        jobs = [
            api.post("/v1/jobs", json=due).raise_for_status().json()["jobId"] for _ in range(RUNS)
        ]

        def ours() -> list[dict[str, str]]:
            return [
                run
                for job in jobs
                for run in api.get(f"/v1/jobs/{job}/executions").raise_for_status().json()["items"]
                if str(run.get("worker", "")).endswith(f"-{worker}") and run["state"] == "SUCCEEDED"
            ]

        wait_until(lambda: bool(ours()), log)

    command.send_signal(signal.SIGTERM)
    assert command.wait(timeout=30) == 0, log.read_text()
    assert "stopped" in log.read_text()
