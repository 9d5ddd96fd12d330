"""Scripts with secrets: real processes, with output recorded by the executor's core."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.job import Job
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.domain.run import Run
from tests.world import World

PASSWORD = "correct-horse battery/staple+77"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEA\n-----END KEY-----\n"
TARGET = {
    "handler": "report",
    "env": {
        "MODE": "a literal value",
        "PASSWORD": {"secret": "db", "key": "password"},
        "KEY": {"parameter": "key"},
    },
}
TRACES = (PASSWORD, *KEY.split(), *(PASSWORD[n : n + 10] for n in range(len(PASSWORD) - 9)))
"""What must not be found: the values, and any ten characters of the password."""


class Ticking:
    """A supervisor for which two seconds pass on each call, so the log is stored often."""

    def __init__(self, supervisor: Supervisor, world: World) -> None:
        self._supervisor = supervisor
        self._world = world

    def ask(self) -> Directive:
        self._world.advance(seconds=2)
        return self._supervisor.ask()

    def output(self, stream: Stream, data: bytes) -> None:
        self._supervisor.output(stream, data)

    def checkpoint(self) -> bytes | None:
        return self._supervisor.checkpoint()

    def save(self, checkpoint: bytes) -> str | None:
        return self._supervisor.save(checkpoint)


class Runner:
    """The real runner, with *source* in place of any script."""

    def __init__(self, world: World, folder: Path, source: str) -> None:
        self._world = world
        self._source = dedent(source).encode()
        self._runner = ProcessScriptRunner(
            temp_root=folder, output_cap=1000, grace=timedelta(seconds=0.3)
        )

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        call = ScriptCall(
            call.name,
            self._source,
            call.payload,
            call.timeout,
            call.tenant,
            call.environment,
            call.masker,
        )
        return self._runner.run(call, Ticking(supervisor, self._world))


class Stage:
    """A world that runs a script with secrets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.world = World("11:59")
        self.world.secrets.values |= {"acme/db#password": PASSWORD, "acme/key": KEY}

    def play(self, source: str) -> Run:
        """The record of a run of *source* with the target's secrets, after its last attempt."""
        world = self.world
        world.runner = cast(Any, Runner(world, self._folder, source))
        job: Job = world.register(target=TARGET, retryPolicy={"maxAttempts": 1})
        world.tick_at("12:00")
        world.worker().work_one()
        return world.run(job, "12:00")

    def recorded(self) -> str:
        """Everything that is stored or sent, except the job itself."""
        world = self.world
        return "\n".join(
            (
                repr(world.runs.all),
                repr(world.files.stored),
                repr(world.events.published),
                repr(world.dead_letters.letters),
            )
        )


@pytest.fixture
def stage(caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="test-masking-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        stage = Stage(folder)
        with caplog.at_level(logging.DEBUG):
            yield stage
    recorded = stage.recorded() + caplog.text
    assert [trace for trace in TRACES if trace in recorded] == []
