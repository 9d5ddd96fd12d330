"""The tests of the script runner again: as another user, and as on other hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.crons import LONG
from tests.unit.script_runner.conftest import NAMESPACES, START, only_root

ROOT = Path(__file__).parents[3]
TESTS = Path(__file__).parent
FORKED = "tests/unit/test_forked_script.py::test_a_fork_sees_what_a_new_interpreter_shows"
SAME_EVERYWHERE = " and ".join(
    f"not {word}"
    for word in ("name", "cap", "output", "payload", "verdict", "grace", "first_cause")
)
"""Excludes tests whose result does not depend on the host, by words in the ids of tests."""
long = pytest.mark.skipif(not LONG, reason="long: make test-long")


@only_root
@pytest.mark.parametrize("start", [pytest.param("exec", marks=long), "fork"])
@pytest.mark.parametrize("namespaces", ["yes", pytest.param("no", marks=long)])
@pytest.mark.parametrize("user", [pytest.param("root", marks=long), "another user"])
def test_script_runner_on_another_host(user: str, namespaces: str, start: str) -> None:
    other = {"user": 65534, "group": 65534, "extra_groups": []}
    identity: dict[str, Any] = {} if user == "root" else other
    base = getattr(sys, "_base_executable", sys.executable)
    for python in (base, "/usr/local/bin/python3", "/usr/bin/python3"):
        paths = filter(None, sys.path)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["-k", SAME_EVERYWHERE, f"--ignore={__file__}"]
        with suppress(OSError):
            end = subprocess.run(
                [*command, str(TESTS), FORKED],
                cwd=ROOT,
                env={
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPYCACHEPREFIX": sys.pycache_prefix or "",
                    NAMESPACES: namespaces,
                    START: start,
                },
                **identity,
                capture_output=True,
                text=True,
                check=False,
            )
            if "No module named" not in end.stderr:
                assert end.returncode == 0, end.stdout[-5000:] + end.stderr[-5000:]
                return
    pytest.skip("no Python with pytest that another user can run")
