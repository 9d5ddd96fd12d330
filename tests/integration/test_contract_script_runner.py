"""The contract of `ScriptRunner`, on the fake and on real processes.

Each scenario exists twice: as a `Script` that the fake plays, and as the source of an equivalent
script. tests/unit/script_runner tests features that only processes have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from textwrap import dedent

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import (
    Directive,
    ScriptCall,
    ScriptExit,
    ScriptRunner,
    Supervisor,
)
from tests.builders import NOON
from tests.fakes import Clock, MemoryScriptRunner, Script
from tests.places import open_folder
from tests.supervisors import Watch

CONTRACT_OF = (ScriptRunner,)
ENDLESS = "import time\nwhile True: time.sleep(1)\n"
FOREVER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """A runner that plays scenarios."""

    runner: ScriptRunner

    def play(
        self,
        script: Script,
        source: str,
        watch: Supervisor | None = None,
        *,
        timeout: float = 20,
        name: str = "report.py",
    ) -> ScriptExit:
        if isinstance(self.runner, MemoryScriptRunner):
            self.runner.scripts.append(script)
        call = ScriptCall(
            name, dedent(source).encode(), "{}", timedelta(seconds=timeout), tenant="acme"
        )
        return self.runner.run(call, watch or Watch())


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessScriptRunner]:
    with open_folder("test-runner-") as folder:
        yield ProcessScriptRunner(grace=timedelta(seconds=0.2), temp_root=folder)


@pytest.fixture(params=["memory", "processes"])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "memory":
        return Stage(MemoryScriptRunner(Clock(NOON)))
    return Stage(request.getfixturevalue("processes"))


@pytest.mark.parametrize("code", [0, 3])
def test_how_a_script_ended_is_reported(stage: Stage, code: int) -> None:
    source = f"print('so far')\nraise SystemExit({code})"

    end = stage.play(Script(exit_code=code, stdout="so far\n"), source)

    assert end == ScriptExit(code, "so far\n", "")


def test_what_a_script_prints_is_reported_while_it_runs(stage: Stage) -> None:
    watch = Watch()

    def cancel_after_output() -> Directive:
        return Directive.CANCEL if watch.printed["stdout"] else Directive.CONTINUE

    watch.ask = cancel_after_output
    source = "print('größer', flush=True)\n" + ENDLESS

    end = stage.play(Script(stdout="größer\n", lasts=FOREVER), source, watch)

    assert end.stopped is Directive.CANCEL
    assert bytes(watch.printed["stdout"]) == "größer\n".encode()
    assert end.stdout == "größer\n"


def test_the_last_result_is_given_back(stage: Stage) -> None:
    source = "from nextfire_job import result; result(1); result({'n': [1.5, None]})"

    end = stage.play(Script(result=b'{"n":[1.5,null]}'), source)

    assert (end.exit_code, end.result) == (0, b'{"n":[1.5,null]}')


def test_a_result_is_kept_of_a_script_that_is_ended(stage: Stage) -> None:
    source = "from nextfire_job import result; result(7); print('done', flush=True)\n" + ENDLESS
    watch = Watch()
    watch.ask = lambda: Directive.CANCEL if watch.printed["stdout"] else Directive.CONTINUE

    end = stage.play(Script(stdout="done\n", result=b"7", lasts=FOREVER), source, watch)

    assert (end.stopped, end.result) == (Directive.CANCEL, b"7")


def test_a_script_that_gives_no_result_has_none(stage: Stage) -> None:
    assert stage.play(Script(), "").result is None


def test_a_checkpoint_is_kept_by_the_supervisor(stage: Stage) -> None:
    watch = Watch()
    source = "from nextfire_job import save_checkpoint; save_checkpoint({'done': 4})"

    end = stage.play(Script(saves=b'{"done":4}'), source, watch)

    assert (end.exit_code, watch.saved) == (0, b'{"done":4}')


def test_a_script_finds_what_was_saved_before(stage: Stage) -> None:
    watch = Watch()
    watch.saved = b"41"
    source = """
        from nextfire_job import checkpoint, save_checkpoint
        save_checkpoint(checkpoint() + 1)
    """

    stage.play(Script(saves=b"42"), source, watch)

    assert watch.saved == b"42"
    if isinstance(stage.runner, MemoryScriptRunner):
        assert stage.runner.found == [b"41"]


@pytest.mark.parametrize("verdict", [Directive.CANCEL, Directive.HAND_BACK, Directive.LEASE_LOST])
def test_a_script_ends_when_its_supervisor_says_so(stage: Stage, verdict: Directive) -> None:
    asked: list[None] = []

    def third() -> Directive:
        asked.append(None)
        return verdict if len(asked) == 3 else Directive.CONTINUE

    end = stage.play(Script(lasts=FOREVER), ENDLESS, Watch(third))

    assert (end.stopped, end.timed_out, end.error) == (verdict, False, None)
    assert end.exit_code is not None
    assert end.exit_code < 0


def test_a_script_ends_when_its_time_is_up(stage: Stage) -> None:
    end = stage.play(Script(lasts=FOREVER), ENDLESS, timeout=1)

    assert (end.timed_out, end.stopped, end.error) == (True, Directive.CONTINUE, None)
    assert end.exit_code is not None
    assert end.exit_code < 0


def test_a_script_that_cannot_be_started_says_why(stage: Stage) -> None:
    script = Script(error="report.zip is not an archive", permanent=True)

    end = stage.play(script, "not an archive", name="report.zip")

    assert end.exit_code is None
    assert end.error
    assert end.permanent, "a retry would not start it either"


class Broken(Watch):
    """A supervisor that fails in one of its calls."""

    def __init__(self, call: str) -> None:
        super().__init__(self._ask)
        self._call = call

    def _fail(self, call: str) -> None:
        if call == self._call:
            raise LookupError("supervisor", call)

    def _ask(self) -> Directive:
        self._fail("ask")
        return Directive.CONTINUE

    def output(self, stream: Stream, data: bytes) -> None:
        self._fail("output")
        super().output(stream, data)

    def checkpoint(self) -> bytes | None:
        self._fail("checkpoint")
        return super().checkpoint()

    def save(self, checkpoint: bytes) -> str | None:
        self._fail("save")
        return super().save(checkpoint)


@pytest.mark.parametrize("call", ["ask", "output", "checkpoint", "save"])
def test_what_the_supervisor_raises_ends_the_script(stage: Stage, call: str) -> None:
    source = """
        import nextfire_job
        print("x", flush=True)
        nextfire_job.checkpoint()
        nextfire_job.save_checkpoint(1)
    """
    script = Script(stdout="x\n", saves=b"1", lasts=FOREVER)

    with pytest.raises(LookupError, match=call):
        stage.play(script, dedent(source) + ENDLESS, Broken(call))
