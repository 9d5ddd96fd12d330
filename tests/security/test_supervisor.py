"""A worker is killed while it runs a script: no process of the script is alive when the worker's
messages go to other workers. On each kind of host.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.process_tree import children_of
from tests.security.hosts import Host
from tests.security.processes import processes_with

PROGRAM = Path(__file__).with_name("supervised.py")
AT_MOST = 60.0
"""Timeout of a test in seconds."""

DAEMON = """
import os, signal, time
if not os.fork():
    os.setsid()
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("daemon", flush=True)
        time.sleep(600)
time.sleep(600)
"""
"""Leaves a process in another session, whose parent has ended."""


def test_nothing_of_a_script_lives_when_its_run_is_given_back(
    host: Host, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    process = host.start(PROGRAM, folder, stdin=DAEMON, output=output)
    worker = worker_of_daemon(output)

    os.kill(worker, signal.SIGKILL)

    assert process.wait(AT_MOST) == 128 + signal.SIGKILL
    assert lines(output)[-1] == "gives 1 back; alive: set()"
    assert processes_with(str(folder)) == []


def test_nothing_of_a_script_lives_when_its_run_ends_without_launcher_and_keeper(
    host: Host, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    process = host.start(PROGRAM, folder, stdin=DAEMON, output=output)
    [launcher] = children_of(worker_of_daemon(output))
    [keeper] = children_of(launcher)
    if host.namespaces and host.user is not None:
        [keeper] = children_of(keeper)  # its own parent stays outside of its namespace

    os.kill(launcher, signal.SIGKILL)
    time.sleep(0.2)  # until it is gone, so that it does not end what the keeper leaves
    os.kill(keeper, signal.SIGKILL)

    assert process.wait(AT_MOST) == 0
    assert "ran; alive: set()" in lines(output)


def worker_of_daemon(output: Path) -> int:
    """The pid of the worker, once its script has its daemon."""
    deadline = time.monotonic() + AT_MOST
    while "daemon" not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)
    [worker] = [int(line.split()[1]) for line in lines(output) if line.startswith("worker ")]
    return worker


def lines(output: Path) -> list[str]:
    return output.read_text().splitlines()
