"""Scripts of a stack: functions that replace them, and files that run for real."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from nextfire.adapters.scripts.script_output import MaskedOutput
from nextfire.dataclass import dataclass
from nextfire.domain.errors import NotFoundError
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import (
    Directive,
    ScriptCall,
    ScriptExit,
    ScriptRunner,
    Supervisor,
)
from nextfire.domain.script import FetchedScript, ScriptSource
from nextfire.settings import interpreter_environment
from nextfire.testing.kernel import Actor
from nextfire.testing.memory.faults import Killed
from nextfire.testing.memory.scripts import MemoryScriptStore
from nextfire.testing.script_run import Ended, ScriptRun, result_of

ScriptFunction = Callable[[ScriptRun], Any]
"""Replaces a script; see `ScriptRun`."""
_LONG_BITS = 64
_OUTPUT_CAP = 16 * 1024
"""Characters of each stream that the record keeps."""


class Scripts:
    """`ScriptStore` of a stack: its scripts by name, in every pool. `failures`, `crashes`: how many
    of the next attempts of a script fail, or lose their worker. `interpreter`: runs the files.
    """

    def __init__(self) -> None:
        self.interpreter: str | None = None
        self.functions: dict[str, ScriptFunction] = {}
        self.files: dict[str, Path] = {}
        self.failures: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()

    def fetch(self, source: ScriptSource) -> FetchedScript:
        name = source.name.rpartition(".")[0]
        if name in self.files:
            uploaded = MemoryScriptStore()
            uploaded.upload(source.url, self.files[name].read_bytes())
            return uploaded.fetch(source)  # checks the digest to which the job is pinned
        if name in self.functions:
            return FetchedScript.of(f"# the function of the test for {name}\n".encode())
        known = ", ".join(sorted(self.names)) or "none"
        raise NotFoundError(
            "script",
            name,
            f'The test has no such script: stack.script("{name}", lambda run: None). It has: '
            f"{known}.",
        )

    @property
    def names(self) -> set[str]:
        """The names of all scripts."""
        return {*self.functions, *self.files}

    @cached_property
    def processes(self) -> ScriptRunner:
        """Runs files, each in a process."""
        from nextfire.adapters.scripts.script_runner import (  # noqa: PLC0415 - not on Windows
            ProcessScriptRunner,
        )

        return ProcessScriptRunner(
            interpreter=self.interpreter, environment=interpreter_environment()
        )


@dataclass(frozen=True, slots=True)
class KitRunner:
    """`ScriptRunner` of one worker process."""

    scripts: Scripts
    actor: Actor

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        name = call.name.rpartition(".")[0]
        printed = _Printed(supervisor, call)
        if _take(self.scripts.failures, name):
            printed.output("stderr", b"failed by the test\n")
            return printed.exit(1, None, Ended())
        function = self.scripts.functions.get(name)
        if function is None:
            ended = self.scripts.processes.run(call, supervisor)
        else:
            ended = _played(function, call, printed, self.actor)
        if _take(self.scripts.crashes, name):
            self.actor.kill()
            raise Killed
        return ended


def _take(counts: Counter[str], name: str) -> bool:
    if counts[name] <= 0:
        return False
    counts[name] -= 1
    return True


class _Printed:
    """A `Supervisor` whose output is masked and captured as a runner does it."""

    def __init__(self, supervisor: Supervisor, call: ScriptCall) -> None:
        self._supervisor = supervisor
        self._out = MaskedOutput("stdout", _OUTPUT_CAP, call.masker, supervisor)
        self._err = MaskedOutput("stderr", _OUTPUT_CAP, call.masker, supervisor)

    def output(self, stream: Stream, data: bytes) -> None:
        (self._out if stream == "stdout" else self._err).feed(data)

    def ask(self) -> Directive:
        return self._supervisor.ask()

    def checkpoint(self) -> bytes | None:
        return self._supervisor.checkpoint()

    def save(self, checkpoint: bytes) -> str | None:
        return self._supervisor.save(checkpoint)

    def exit(self, code: int, result: bytes | None, ended: Ended) -> ScriptExit:
        """How the script ended, after its last output; *ended*: whether it was ended, and why."""
        out, err = self._out.end(), self._err.end()
        last_lines = self._err.last_lines()
        return ScriptExit(
            code, out, err, ended.timed_out, ended.stopped, result, last_lines=last_lines
        )


def _exit_code(given: object, printed: _Printed) -> int:
    """The exit code of a process that calls ``sys.exit(given)``: a byte, so 255 for -1 and for what
    exceeds a C long.
    """
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF if given.bit_length() < _LONG_BITS else 255
    printed.output("stderr", f"{given}\n".encode())
    return 1


def _played(
    function: ScriptFunction, call: ScriptCall, printed: _Printed, actor: Actor
) -> ScriptExit:
    exit_code, result, ended = 0, None, Ended()
    run = ScriptRun(call, printed, actor)
    try:
        result = result_of(function(run), call.masker)
        run.sleep()  # its timeout may be over, or its run cancelled
    except Ended as why:
        ended = why
        exit_code = -9 if why.timed_out else -15
    except SystemExit as why:
        exit_code = _exit_code(why.code, printed)
    except Exception:  # noqa: BLE001 - as the interpreter does
        printed.output("stderr", traceback.format_exc().encode())
        exit_code = 1
    actor.raise_if_killed()  # also if the function caught what `crash` raises
    return printed.exit(exit_code, result, ended)
