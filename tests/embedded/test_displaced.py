"""The folder of a running embedded stack is moved or removed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nextfire_cli.local.embedded import EmbeddedStack
from tests.embedded.conftest import ROOT
from tests.places import host_folder


@pytest.fixture
def state() -> Iterator[Path]:
    folder = host_folder("displaced-nextfire-")
    folder.chmod(0o711)
    yield folder / ".nextfire"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "name", [".", "embedded", "embedded/nextfire.db", "embedded/nextfire.db-wal"]
)
def test_a_stack_whose_data_was_moved_does_not_run_on(state: Path, name: str) -> None:
    """It would acknowledge jobs that the next start does not find."""
    stack = EmbeddedStack(state, sources=ROOT)
    with stack.running(lambda _line: None):
        assert stack.status() is not None

        state.joinpath(name).rename(state.parent / "away")

        assert stack.status() is None
        [problem] = stack.deaths()
    assert "moved or removed" in problem
    assert str(state) in problem


def test_a_stack_that_is_stopped_elsewhere_was_not_moved(state: Path) -> None:
    stack = EmbeddedStack(state, sources=ROOT)
    with stack.running(lambda _line: None):
        EmbeddedStack(state, sources=ROOT).remove()

        assert stack.status() is None
        assert stack.deaths() == []
