"""A worker that runs from the files of its image only, with the Python version of the image."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, Stack
from tests.places import host_folder
from tests.process_tree import children_of
from tests.worker_image import Image, assemble

RUNS = 24
"""Enough runs for all slots of all workers, including this one."""


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    folder = host_folder("worker-image-")
    try:
        yield assemble(folder, ROOT, _python())
    finally:
        shutil.rmtree(folder)


def _python() -> Path:
    """The Python version of the image, or, if this machine does not have it, that of the tests."""
    tool = ROOT / ".nextfire/uv/bin/uv"
    found = subprocess.run(
        [tool, "python", "find", "--no-python-downloads", "3.13"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(found.stdout.strip() if found.returncode == 0 else sys.executable)


def test_the_image_has_all_that_a_worker_needs(stack: Stack, image: Image) -> None:
    stack.put_script("default", "busy", "import time; time.sleep(2)")
    supervisor = stack.start_worker(image=image)
    deadline = time.monotonic() + 120

    def succeeded_here(jobs: list[str]) -> bool:
        """Whether one of the runs succeeded in the image's worker."""
        workers = tuple(f"-{pid}" for pid in children_of(supervisor))
        runs = [
            run
            for job in jobs
            for run in api.get(f"/v1/jobs/{job}/executions").raise_for_status().json()["items"]
        ]
        return any(
            run["state"] == "SUCCEEDED" and str(run.get("worker", "")).endswith(workers)
            for run in runs
        )

    with stack.api() as api:
        due = {"type": "DELAY", "schedule": "PT5S", "target": {"handler": "busy"}}
        jobs: list[str] = []
        more = time.monotonic()
        while not succeeded_here(jobs):
            # The image's worker may start after the others have taken all runs: then add runs.
            if time.monotonic() >= more:
                jobs = [
                    api.post("/v1/jobs", json=due).raise_for_status().json()["jobId"]
                    for _ in range(RUNS)
                ]
                more = time.monotonic() + 25
            assert time.monotonic() < deadline, _logs(stack)
            time.sleep(0.5)
    stack.end_workers(supervisor)


def _logs(stack: Stack) -> str:
    """The ends of the logs of the workers of the pool default."""
    logs = (stack.state / "logs").glob("worker-default-*.log")
    return "\n".join(f"{log.name}: {log.read_text()[-1_000:]}" for log in logs)


def test_the_image_has_no_file_that_it_does_not_need(image: Image) -> None:
    tops = {"/".join(path.split("/")[:4]) for path in image.files()}

    assert tops == {
        "opt/nextfire/functions/worker",
        "opt/nextfire/layers/nextfire",
        "opt/nextfire/layers/nextfire_job.py",
        "usr/local/bin/uv",
    }
