"""The log files of the embedded stack are bounded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from functions.embedded import log_files
from functions.embedded.log_files import rotate_logs

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys, time
from pathlib import Path
from functions.embedded import log_files, supervisor

log_files.MAX_BYTES, supervisor._LONGEST_WAIT = 100, 0.02

def write():
    for number in range(10_000):
        os.write(1, b"%05d %s\\n" % (number, b"x" * 50))
        time.sleep(0.001)

parts = [supervisor.Part("watcher", write)]
sys.exit(supervisor.PartsSupervisor(parts, logs=Path(sys.argv[1]), report=lambda _: None).run())
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_BYTES", 100)


def texts(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


def test_a_large_log_moves_to_older_files_and_its_writer_continues(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        for letter in "abcd":
            os.write(handle, letter.encode() * 101)
            rotate_logs(tmp_path)
        os.write(handle, b"e" * 100)
        rotate_logs(tmp_path)
    finally:
        os.close(handle)

    assert texts(tmp_path) == {
        "api.log": "e" * 100,
        "api.log.1": "d" * 101,
        "api.log.2": "c" * 101,
    }
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_a_log_that_cannot_be_copied_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_from: Path, to: Path) -> None:
        to.write_text("a part of it")
        raise OSError(28, "No space left on device")

    kept = {"api.log": "b" * 101, "api.log.1": "a"}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(shutil, "copy", fail)

    rotate_logs(tmp_path)

    assert texts(tmp_path) == kept


def test_the_supervisor_bounds_the_logs_of_its_parts(tmp_path: Path) -> None:
    stack = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}"},
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "watcher.log.2").exists():
            assert time.monotonic() < deadline, texts(tmp_path)
            time.sleep(0.01)
    finally:
        stack.send_signal(signal.SIGTERM)
        stack.wait(30)

    lines = "".join(reversed(texts(tmp_path).values())).splitlines()
    assert sorted(lines) == lines, "the older files have the earlier lines"
