"""The kinds of host on which the exploits are tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_NOBODY = 65534
_PYTHONS = (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3")


@dataclass(frozen=True, slots=True)
class Script:
    """A script for an executor to run."""

    source: str
    tenant: str = "acme"
    timeout: float = 20
    environment: dict[str, str] = field(default_factory=dict)
    name: str = "script.py"
    after: bool = False
    """Whether it starts when the first script of its list has printed something."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of scripts, list by list, and the processes that the executor started."""

    ends: list[list[dict[str, Any]]]
    started: list[dict[str, Any]]

    def printed(self) -> str:
        """The output of all scripts."""
        return "".join(end["printed"] for together in self.ends for end in together)


@dataclass(frozen=True, slots=True)
class Host:
    """An executor's host. *user*: None for the user of the tests."""

    name: str
    user: int | None
    namespaces: bool
    canary: str = field(default_factory=lambda: f"canary-{uuid.uuid4().hex}")
    """In the executor's environment, in place of its credentials."""

    def run(
        self, folder: Path, *calls: Iterable[Script], capability: str = "", **variables: str
    ) -> Report:
        """Run *calls* with an executor in *folder*. Each call is a list of scripts to run
        concurrently.

        *variables*: additions to the environment of the executor. *capability*: one that it passes
        on to the programs that it executes (an ambient one); only for a host with a *user*.
        """
        asked = json.dumps(
            [
                [
                    {name: getattr(script, name) for name in Script.__dataclass_fields__}
                    for script in together
                ]
                for together in calls
            ]
        )
        place = self._place(variables)
        command = [self._python(), str(Path(__file__).with_name("executor.py")), str(folder)]
        if capability:
            user, group = place.pop("user"), place.pop("group")
            kept = f"+{capability}"
            command = [
                "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
                f"--inh-caps={kept}", f"--ambient-caps={kept}", *command,
            ]  # fmt: skip
        end = subprocess.run(
            command,
            input=asked,
            capture_output=True,
            text=True,
            check=False,
            **place,
        )
        assert end.returncode == 0, end.stderr[-3000:]
        return Report(**json.loads(end.stdout))

    def start(
        self, program: Path, folder: Path, *, stdin: str, output: Path
    ) -> subprocess.Popen[str]:
        """Start *program* with *folder*; stdout and stderr go to *output*."""
        with output.open("w") as file:
            process = subprocess.Popen(
                [self._python(), str(program), str(folder)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                **self._place({}),
            )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(stdin)
        return process

    def _place(self, variables: Mapping[str, str]) -> dict[str, Any]:
        """The working folder and the user of the host's processes."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([_layers(), str(ROOT), *filter(None, sys.path)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_SECRET_ACCESS_KEY": self.canary,
            "TEST_NAMESPACES": "yes" if self.namespaces else "no",
            **variables,
        }
        identity = {} if self.user is None else {"user": self.user, "group": self.user}
        extra_groups: list[int] | None = [] if identity else None
        return {"cwd": "/", "env": environment, "extra_groups": extra_groups, **identity}

    def _python(self) -> str:
        if self.user is None:
            return sys.executable
        for python in _PYTHONS:
            if (
                subprocess.run(
                    ["/usr/bin/env", python, "-c", "import pydantic"],
                    user=self.user,
                    extra_groups=[],
                    env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    cwd="/",
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            ):
                return python
        raise AssertionError("no Python here that another user can run")


def _layers() -> str:
    """The code under attack: this checkout, or another one in which an exploit should succeed."""
    return os.environ.get("TEST_LAYERS", str(ROOT / "layers"))


def hosts() -> list[Host]:
    """The hosts available here. Tests that do not run as root have the user's own kinds only."""
    mine = os.geteuid()
    if mine != 0:
        return [Host("user", None, namespaces=True), Host("bare", None, namespaces=False)]
    return [
        Host("root", None, namespaces=True),
        Host("root without namespaces", None, namespaces=False),
        Host("user", _NOBODY, namespaces=True),
        Host("user without namespaces", _NOBODY, namespaces=False),
    ]
