"""The pytest plugin: the fixture `nextfire_stack`. It imports nextfire when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nextfire.testing import Stack


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "nextfire(**options): arguments of `nextfire.testing.Stack` for the fixture "
        'nextfire_stack, such as start="2027-03-28T00:00:00+01:00"',
    )


@pytest.fixture
def nextfire_stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A scheduler in memory under simulated time: an empty `nextfire.testing.Stack`. The marker
    ``@pytest.mark.nextfire(start=…)`` passes arguments to it.
    """
    from nextfire.testing import Stack  # noqa: PLC0415 - a second, which other tests do not need

    marker = request.node.get_closest_marker("nextfire")
    args, options = (marker.args, marker.kwargs) if marker else ((), {})
    parameters = signature(Stack)
    try:
        parameters.bind(*args, **options)
    except TypeError as error:
        names = ", ".join(parameters.parameters)
        raise pytest.UsageError(
            f"@pytest.mark.nextfire: {error}. Arguments: {names}; for example "
            '@pytest.mark.nextfire(start="2027-03-28T00:00:00+01:00").'
        ) from error
    with Stack(*args, **options) as stack:
        yield stack
