"""A worker is killed while it runs a script: nothing of the script lives when what the worker held
is given to others. On each kind of host.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.security.hosts import Host
from tests.security.test_isolation import processes_with

PROGRAM = Path(__file__).with_name("supervised.py")
AT_MOST = 60.0
"""Seconds until a test gives up."""

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
"""Leaves a process of another session, whose parent has ended."""


def test_nothing_of_a_script_lives_when_its_run_is_given_back(
    host: Host, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    process = host.start(PROGRAM, folder, stdin=DAEMON, output=output)
    deadline = time.monotonic() + AT_MOST
    while "daemon" not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)
    [worker] = [int(line.split()[1]) for line in lines(output) if line.startswith("worker ")]

    os.kill(worker, signal.SIGKILL)

    assert process.wait(AT_MOST) == 128 + signal.SIGKILL
    assert lines(output)[-1] == "gives 1 back; alive: set()"
    assert processes_with(str(folder)) == []


def lines(output: Path) -> list[str]:
    return output.read_text().splitlines()
