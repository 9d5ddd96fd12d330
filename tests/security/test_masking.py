"""Scripts that leak their secrets: real processes, with output recorded by the executor's core."""

from __future__ import annotations

import base64
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, cast

import pytest

from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.attempt import MAX_VALUE_BYTES
from nextfire.domain.job import Job
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.domain.run import Run, RunState
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


def test_a_script_that_prints_its_environment(stage: Stage) -> None:
    run = stage.play(
        """
        import os, sys
        print(os.environ)
        print(os.environb, file=sys.stderr)
        for name in ("MODE", "PASSWORD"):
            print(name, os.environ[name])
        """
    )

    assert run.stdout is not None
    assert run.stderr is not None
    assert "PASSWORD ***\n" in run.stdout
    assert "'PASSWORD': '***'" in run.stdout
    assert "b'PASSWORD': b'***'" in run.stderr
    assert "MODE a literal value\n" in run.stdout


def test_a_script_that_prints_a_value_in_pieces_while_its_log_is_stored(stage: Stage) -> None:
    run = stage.play(
        """
        import os, time
        for letter in "begins\\n" + os.environ["PASSWORD"] + "\\nended":
            os.write(1, letter.encode())
            os.write(2, letter.encode())
            time.sleep(0.05)
        """
    )

    assert (run.stdout, run.stderr) == ("begins\n***\nended", "begins\n***\nended")
    assert run.attempts[-1].log_parts == 1, "its log was stored while it ran"


def test_a_value_is_masked_before_output_is_cut(stage: Stage) -> None:
    """The record keeps 500 bytes from the beginning: put a value across that border."""
    for filled in (468, 476, 490, 499):
        stage.world = World("11:59")
        stage.world.secrets.values |= {"acme/db#password": PASSWORD, "acme/key": KEY}
        source = f"import os; print('.' * {filled} + os.environ['PASSWORD'] + '.' * 3000)"
        run = stage.play(source)

        assert run.stdout is not None
        assert not any(trace in run.stdout for trace in TRACES)
        assert not any(PASSWORD[:n] in run.stdout for n in range(3, 10))


@pytest.mark.parametrize("before", ["", "u", "us:"])
def test_a_script_that_prints_a_value_in_base64(stage: Stage, before: str) -> None:
    run = stage.play(
        f"""
        import base64, os
        secret = {before!r} + os.environ["PASSWORD"] + ":x"
        print(base64.b64encode(secret.encode()).decode())
        """
    )
    assert run.stdout is not None
    head, _, tail = run.stdout.strip().partition("***")
    assert len(head) <= 6
    assert len(tail) <= 6
    assert base64.b64encode(PASSWORD.encode()).decode()[4:12] not in stage.recorded()


def test_a_multi_line_value_printed_line_by_line(stage: Stage) -> None:
    run = stage.play(
        """
        import os
        for line in os.environ["KEY"].splitlines():
            print("  |", line)
        """
    )
    assert run.stdout == "  | ***\n" * 4


def test_a_value_given_as_result(stage: Stage) -> None:
    run = stage.play(
        """
        import os, nextfire_job
        secret = os.environ["PASSWORD"]
        nextfire_job.result({"all": dict(os.environ), secret: [secret, 7, None], "mode": "fast"})
        """
    )

    assert run.state is RunState.SUCCEEDED
    assert run.result is not None
    assert run.result.text is not None
    given = json.loads(run.result.text)
    assert given["***"] == ["***", 7, None]
    assert (given["mode"], given["all"]["PASSWORD"]) == ("fast", "***")


def test_a_large_result_is_measured_and_stored_masked(stage: Stage) -> None:
    run = stage.play(
        f"""
        import os, nextfire_job
        times = {MAX_VALUE_BYTES} // len(os.environ["PASSWORD"]) + 1
        nextfire_job.result([os.environ["PASSWORD"]] * times)
        """
    )

    assert run.state is RunState.SUCCEEDED
    assert run.result is not None
    assert run.result.file is not None
    assert run.result.size < MAX_VALUE_BYTES
    stored = stage.world.files.get(run.result_folder, run.result.file)
    assert stored is not None
    assert set(json.loads(stored)) == {"***"}


def test_a_value_in_a_traceback_of_a_run_that_dies(stage: Stage) -> None:
    run = stage.play(
        """
        import os
        raise ConnectionError("postgres://me:" + os.environ["PASSWORD"] + "@db", dict(os.environ))
        """
    )

    assert run.state is RunState.DEAD
    assert run.stderr is not None
    assert "postgres://me:***@db" in run.stderr
    assert stage.world.dead_letters.letters != []


def test_a_value_as_the_last_words_without_a_line_end(stage: Stage) -> None:
    run = stage.play("import os, sys; os.write(2, os.environb[b'PASSWORD'][:-1]); sys.exit(3)")

    # Without its last letter it is not the value; the end flushes the withheld output.
    assert run.stderr == PASSWORD[:-1]
    stage.world = World("11:59")
    stage.world.secrets.values |= {"acme/db#password": PASSWORD, "acme/key": KEY}
    run = stage.play("import os, sys; os.write(2, os.environb[b'PASSWORD']); sys.exit(3)")
    assert run.stderr == "***"


def test_a_value_in_what_keeps_a_script_from_running(stage: Stage) -> None:
    def fail() -> None:
        # An SDK error might quote the request like this.
        raise RuntimeError(f"cannot parse {PASSWORD!r}" + "." * 2000)

    resolve = stage.world.secrets.resolve
    seen: list[object] = []

    def second_fails(tenant: str, reference: Any) -> str:
        if seen:
            fail()
        seen.append(reference)
        return resolve(tenant, reference)

    stage.world.secrets.resolve = second_fails  # type: ignore[method-assign]

    run = stage.play("print('never')")

    assert run.reason is not None
    assert run.reason.startswith("could not be run: RuntimeError: cannot parse '***'...")


def test_a_checkpoint_is_the_programs_own_data_and_comes_back_unchanged(stage: Stage) -> None:
    run = stage.play(
        """
        import os, nextfire_job
        nextfire_job.save_checkpoint({"cursor": "x" + os.environ["MODE"]})
        nextfire_job.save_checkpoint({"cursor": os.environ["PASSWORD"]})
        assert nextfire_job.checkpoint() == {"cursor": os.environ["PASSWORD"]}
        """
    )

    assert run.state is RunState.SUCCEEDED, run.stderr
    assert run.checkpoint is not None
    assert run.checkpoint.text == json.dumps({"cursor": PASSWORD}, separators=(",", ":"))
    stage.world = World("11:59")  # the fixture searches this world's records afterwards


# The job role


class Sts:
    """Returns credentials that are easy to find."""

    GIVEN: ClassVar = {
        "AccessKeyId": "ASIAEXAMPLEEXAMPLE77",
        "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "SessionToken": "IQoJb3JpZ2luX2VjEXAMPLE" * 40,
    }

    def __init__(self, world: World) -> None:
        self._world = world

    def assume_role(self, **_: object) -> dict[str, object]:
        expires_at = self._world.now + timedelta(hours=1)
        return {"Credentials": {**self.GIVEN, "Expiration": expires_at}}


@contextmanager
def job_role(world: World) -> Iterator[None]:
    sts = cast(Any, Sts(world))
    role = StsJobRole(sts, role_arn="arn:role", pool="default", environment={}, clock=world.clock)
    world.job_role = role
    try:
        yield
    finally:
        role.close()


def test_the_job_roles_token_and_credentials(stage: Stage) -> None:
    with job_role(stage.world):
        run = stage.play(
            """
            import os, json, urllib.request, nextfire_job
            token = os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
            print("token", token)
            where = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
            asked = urllib.request.Request(where, headers={"Authorization": token})
            given = json.load(urllib.request.urlopen(asked))
            print("given", given["AccessKeyId"], given["SecretAccessKey"], given["Token"])
            print(given)
            nextfire_job.result(given)
            """
        )

    assert run.state is RunState.SUCCEEDED, run.stderr
    assert run.stdout is not None
    assert run.stdout.startswith("token ***\ngiven *** *** ***\n{'AccessKeyId': '***', ")
    recorded = stage.recorded()
    for value in Sts.GIVEN.values():
        assert value not in recorded
    assert Sts.GIVEN["SessionToken"][:46] not in recorded
