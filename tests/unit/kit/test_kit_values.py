"""Results and checkpoints of functions: as of scripts, with the same limits."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from nextfire.testing import ScriptRun, Stack
from tests.unit.kit.conftest import NIGHTLY, ON_REQUEST, outcomes, states


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    ["{1: 2}", "{1}", "'x' * 2**20", *(f"nested({depth})" for depth in (200, 201, 5000))],
)
def test_a_function_returns_what_a_script_can_set_as_its_result(
    stack: Stack, tmp_path: Path, value: str
) -> None:
    script = f"import nextfire_job\n\n{inspect.getsource(nested)}\n"
    script = script.replace(" -> Any", "").replace(": Any", "") + f"nextfire_job.result({value})\n"
    (tmp_path / "sets.py").write_text(script)
    stack.script("file", path=tmp_path / "sets.py")
    stack.script("function", lambda _: eval(value))  # noqa: S307 — its own values
    for name in ("file", "function"):
        stack.put(name, ON_REQUEST | {"target": {"handler": name}})
        stack.run(name)
    stack.advance(hours=1)

    file, function = (stack.runs(name)[0] for name in ("file", "function"))
    assert (function.state, outcomes(function)) == (file.state, outcomes(file))
    assert stack.result(function) == stack.result(file)


def test_a_checkpoint_that_is_nested_too_deeply_is_a_value_error(stack: Stack) -> None:
    def report(run: ScriptRun) -> str:
        with pytest.raises(ValueError, match="nested") as rejected:
            run.save_checkpoint(nested(5000))
        return str(rejected.value)

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    assert states(stack.runs("nightly")) == ["SUCCEEDED"]
