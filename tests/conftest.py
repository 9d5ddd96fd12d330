"""Settings for all tests."""

import gc
from functools import cache
from typing import Any

from botocore import hooks, session  # noqa: TID251 — to read and compute data once
from hypothesis import settings

from tests.crons import LONG

# Timings are never asserted: a busy machine must not fail a test.
settings.register_profile(
    "nextfire", deadline=None, print_blob=True, max_examples=500 if LONG else 50
)
settings.load_profile("nextfire")

# The descriptions of services, which each session reads again.
session.create_loader = cache(session.create_loader)

_accepts_kwargs = cache(hooks.accepts_kwargs)


def _handler_accepts_kwargs(handler: Any) -> Any:
    """Whether *handler* has `**kwargs`; computed once for a method of many objects."""
    return _accepts_kwargs(getattr(handler, "__func__", handler))


# Checked for each of the hundred handlers of each session.
hooks.accepts_kwargs = _handler_accepts_kwargs  # type: ignore[assignment] # the stub is wrong

gc.disable()  # until all tests are collected: nothing of that is garbage


def pytest_collectreport() -> None:
    """Keep it disabled: the functions' handlers enable it when they are imported."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from modules and collected tests, which all stay: it takes a
    quarter of the tests' time to look through them again and again.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000)
