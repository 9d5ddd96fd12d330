"""The fixture that most tests of use cases need."""

from __future__ import annotations

import pytest

from tests.world import World, started


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """The system at 11:59; or at `BEGINNING` of the test's file, after the first tick there."""
    beginning = getattr(request.module, "BEGINNING", None)
    return World("11:59") if beginning is None else started(beginning)
