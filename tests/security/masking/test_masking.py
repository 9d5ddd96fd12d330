"""Scripts that print their secrets: whole, in pieces, encoded, or as the reason of their death."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from nextfire.domain.run import RunState
from tests.security.masking.conftest import KEY, PASSWORD, TRACES, Stage
from tests.world import World


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

    def second_fails(tenant: str, reference: Any, *, again: bool = False) -> str:
        if seen:
            fail()
        seen.append(reference)
        return resolve(tenant, reference, again=again)

    stage.world.secrets.resolve = second_fails  # type: ignore[method-assign]

    run = stage.play("print('never')")

    assert run.reason is not None
    assert run.reason.startswith("could not be run: RuntimeError: cannot parse '***'...")
