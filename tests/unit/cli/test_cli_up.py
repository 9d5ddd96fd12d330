"""`nextfire up` says what it waits for when it stops."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from nextfire_cli import local_stack
from tests.unit.cli.conftest import Call


class _Interrupted:
    """A stack that runs until Ctrl-C, which comes at once."""

    @contextmanager
    def running(self, _report: object, *, workers: int) -> Generator[SimpleNamespace]:
        assert workers == 1
        yield SimpleNamespace(endpoint="http://127.0.0.1:1")

    def status(self) -> object:
        return self

    def renew_key(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("emulator", [False, True])
def test_up_says_what_it_waits_for(
    call: Call, monkeypatch: pytest.MonkeyPatch, *, emulator: bool
) -> None:
    monkeypatch.setattr(local_stack, "_local_stack", lambda **_: _Interrupted())

    result = call("up", *(["--emulator"] if emulator else []))

    assert result.exit_code == 0, result.output
    said = result.stderr[result.stderr.index("Stopping.") :]
    assert "The workers hand their runs back first." in said
    assert ("the emulator saves its data, which can take two minutes" in said) is emulator
    assert said.endswith(
        "Stopped. Jobs, runs and scripts are kept; `nextfire down` removes them.\n"
    )
