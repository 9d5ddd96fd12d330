"""`nextfire worker` prints lines for people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nextfire_cli.worker_lines import readable

ROOT = Path(__file__).resolve().parents[3]
ENDED: dict[str, Any] = {
    "level": "INFO",
    "location": "_handled:154",
    "message": "exit code 0",
    "timestamp": "2026-11-25 00:24:07,417+0000",
    "service": "worker",
    "execution_id": "job_1.20261125T002407169Z-553c15c64179ba4f",
    "tenant": "local",
    "state": "SUCCEEDED",
    "attempt": 1,
    "disposition": "ACKNOWLEDGE",
}
SHOWN = (
    "2026-11-25 00:24:07  job_1.20261125T002407169Z-553c15c64179ba4f  SUCCEEDED  exit code 0"
    "  attempt=1"
)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (json.dumps(ENDED), SHOWN),
        (json.dumps(ENDED | {"level": "ERROR"}), SHOWN.replace("07  job", "07  ERROR  job")),
        (json.dumps({"_aws": {}, "Ticks": [1]}), None),
        (json.dumps({"message": "a\x1b[2J"}), "a\\x1b[2J"),
        ("Traceback\x1b[2J:\n", "Traceback\\x1b[2J:"),
        ("{", "{"),
        ("17", None),
    ],
)
def test_a_line(line: str, shown: str | None) -> None:
    assert readable(line) == shown


def test_output_of_children_is_readable_and_that_of_the_command_stays() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from nextfire_cli.worker_lines import lines_for_people\n"
        "print('before')\n"
        "with lines_for_people():\n"
        "    print(sys.argv[1])\n"
        "    sys.stdout.flush()\n"
        "    try: os.waitpid(-1, os.WNOHANG)\n"
        "    except ChildProcessError: print('{no child')\n"
        "    sys.stdout.flush()\n"
        "    worker = os.fork()\n"
        "    if not worker: sys.exit(0)\n"
        "    os.waitpid(worker, 0)\n"
        "    sys.stdout.flush()\n"
        "    subprocess.run([sys.executable, '-c', 'print(\"{\")'], check=True)\n"
        "print('after')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(ENDED)],
        env={"PYTHONPATH": f"{ROOT}/layers:{ROOT}/cli"},
        capture_output=True,
        text=True,
        check=True,
    )

    # The supervisor of a worker would end a child when the worker dies.
    assert done.stdout == f"before\n{SHOWN}\n{{no child\n{{\nafter\n"
