"""The local stack ends everything that it starts, including leftovers of a killed start."""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from nextfire_cli.local.processes import Processes, ProcessRecord, started

SLEEP = "import time; time.sleep(60)"
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""
LEAVES_A_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.fixture
def processes(tmp_path: Path, folder: Path) -> Processes:
    return Processes(tmp_path / "processes.json", folder=folder)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "timed out after 10 s"
        time.sleep(0.01)


def spawn(processes: Processes, folder: Path, script: str) -> Path:
    log = folder.parent / "log"
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", script]
    processes.spawn("it", command, environment=environment, cwd=folder, log=log)
    return log


def test_another_process_ends_what_was_recorded(processes: Processes, folder: Path) -> None:
    spawn(processes, folder, SLEEP)
    [record] = processes.recorded()
    assert record.alive
    later = Processes(folder.parent / "processes.json", folder=folder)

    killed = later.end(later.recorded(), grace=timedelta(seconds=10))

    assert killed == []
    assert not record.alive
    assert later.recorded() == []
    processes.end([record], grace=timedelta(0))  # waits for its child


def test_deaf_process_is_killed_after_the_grace(processes: Processes, folder: Path) -> None:
    log = spawn(processes, folder, DEAF)
    wait_until(lambda: "deaf" in log.read_text())
    [record] = processes.recorded()

    killed = processes.end([record], grace=timedelta(milliseconds=100))

    assert killed == [record]
    assert not record.alive


def test_reused_id_is_left_alone(processes: Processes, folder: Path) -> None:
    spawn(processes, folder, SLEEP)
    [record] = processes.recorded()
    stale = ProcessRecord(name="it", pid=record.pid, started="0")

    Processes(folder.parent / "other.json", folder=folder).end([stale], grace=timedelta(0))

    assert record.alive
    processes.end([record], grace=timedelta(seconds=10))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="strays are found in /proc")
def test_stray_of_another_session_is_found_and_killed(processes: Processes, folder: Path) -> None:
    log = spawn(processes, folder, LEAVES_A_CHILD)
    wait_until(lambda: log.read_text().strip().isdigit())
    stray = int(log.read_text())
    processes.end(processes.recorded(), grace=timedelta(seconds=10))
    assert started(stray) is not None

    processes.end_strays()

    wait_until(lambda: started(stray) is None)
