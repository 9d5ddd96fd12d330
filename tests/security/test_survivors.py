"""Attacks of scripts that outlive their run on the process that watches them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.hosts import Host, Script
from tests.security.processes import processes_with, script

SURVIVOR = """
import os, signal, sys, time
script, keeper = os.getpid(), os.getppid()
for _ in range(4):
    if os.fork():
        continue
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in range(3):
        os.close(descriptor)
    while True:  # until the script has ended; then stop its keeper
        try:
            if open(f"/proc/{script}/stat").read().rpartition(")")[2].split()[0] in "ZX":
                break
        except OSError:
            break
    for _ in range(1000):
        try:
            os.kill(keeper, HOW)
        except OSError:
            break
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for place in PLACES:
            try:
                if found := search(b"the next tenant's secret"):
                    open(place, "a").write(str(found))
            except OSError:
                pass
        time.sleep(0.01)
    os._exit(0)
time.sleep(0.3)
os._exit(0)
"""
"""Leaves children that stop the keeper when the script has ended, and then look for secrets."""


@pytest.fixture
def report_file(folder: Path) -> Iterator[Path]:
    """A world-writable file, wherever scripts run."""
    file = folder / "found"
    file.touch()
    file.chmod(0o666)
    yield file
    file.unlink(missing_ok=True)


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_nothing_of_a_script_that_attacks_its_keeper_lives_on(
    host: Host, folder: Path, report_file: Path, signal: str
) -> None:
    attack = SURVIVOR.replace("HOW", f"signal.{signal}").replace("PLACES", repr([str(report_file)]))
    victim = "import time; time.sleep(1); print('done')"
    secret = {"SECRET": "the next tenant's secret"}
    report = host.run(
        folder,
        [script(attack)],
        [Script(victim, tenant="other", environment=secret)],
    )

    assert report.ends[1][0]["printed"] == "done\n"
    assert report_file.read_text() == ""
    assert processes_with(str(folder)) == []
