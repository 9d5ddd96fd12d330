"""The command on the embedded stack: what dies is reported and recovers, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.user import until
from tests.places import host_folder

COMMAND = Path(sys.executable).parent / "nextfire"
JOBS = 40


class Terminal:
    """A folder in which a user types commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {"PATH": os.defpath, "HOME": str(folder)}
        self.up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run `nextfire up` in the background until it is up."""
        self.up = subprocess.Popen(
            [COMMAND, "up", "--workers", "2"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: self.type("status")[0] == 0, "the start")

    def type(self, *words: str) -> tuple[int, Any]:
        """The exit code and the result of a command."""
        done = subprocess.run(
            [COMMAND, *words, "--json"],
            cwd=self.folder,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    def parts(self) -> dict[str, Any]:
        """The parts as `status` shows them."""
        found: dict[str, Any] = self.type("status")[1]["parts"]
        return found


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    folder = host_folder("terminal-nextfire-")
    folder.chmod(0o711)
    terminal = Terminal(folder)
    yield terminal
    if terminal.up is not None:
        terminal.up.terminate()
        terminal.up.wait(30)
    shutil.rmtree(folder)


def test_what_is_killed_is_reported_and_recovers_and_nothing_is_lost(terminal: Terminal) -> None:
    terminal.start()
    (terminal.folder / "mark.py").write_text("print('ran')")
    assert terminal.type("scripts", "push", "mark.py")[0] == 0
    job = {"type": "DELAY", "schedule": "PT2S", "target": {"handler": "mark"}}
    (terminal.folder / "jobs.json").write_text(json.dumps([job] * JOBS))
    code, made = terminal.type("jobs", "create-many", "-f", "jobs.json")
    assert code == 0

    for part in ("watcher", "worker-default-0", "worker-default-1", "api"):
        os.kill(terminal.parts()[part]["pid"], signal.SIGKILL)
        until(lambda part=part: terminal.parts()[part]["deaths"] == 1, f"the report of {part}")  # type: ignore[misc]
        assert terminal.parts()[part]["lastDeath"] == "killed by SIGKILL"
    assert terminal.up is not None
    terminal.up.kill()
    terminal.up.wait()
    until(lambda: terminal.type("status")[0] == 1, "the report of the end")

    terminal.start()

    expected = {each["job"]["jobId"] for each in made["results"]}

    def succeeded() -> bool:
        listed = terminal.type("runs", "list", "--state", "SUCCEEDED", "--limit", "100")[1]
        return {each["jobId"] for each in listed["items"]} == expected

    until(succeeded, "all acknowledged jobs")
    assert terminal.type("status")[1]["onTime"]
