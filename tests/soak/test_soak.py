"""A short soak test with few jobs: kills, a restart, and nothing is lost or done twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crons import LONG

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(not LONG, reason="takes minutes: make test-long"),
    pytest.mark.timeout(1500),
]


@pytest.mark.parametrize(("stack", "jobs"), [("emulator", 30), ("strict", 30), ("embedded", 100)])
def test_a_short_soak_loses_nothing_and_does_nothing_twice(stack: str, jobs: int) -> None:
    command = [sys.executable, "-m", "tests.soak", "--stack", stack]
    command += ["--minutes", "1.5", "--jobs", str(jobs)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1])

    assert (done.returncode, found["lost"], found["double_effects"]) == (0, 0, 0), done.stdout
    assert found["runs"] > 10
    assert found["kills"] > 3
    assert found["restarts"] >= 1
