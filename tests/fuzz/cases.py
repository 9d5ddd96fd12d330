"""What a fuzzed case is, how often one was tried, and those that are kept.

A case is a JSON value; what is checked of it is a function of its kind. The corpus holds what broke
something once, or nearly: a file each, ``{"kind": …, "why": …, "case": …}``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

from tests.crons import LONG

CORPUS = Path(__file__).parent / "corpus"
ASKED_FOR = "NEXTFIRE_FUZZ_EXAMPLES"
_ASKED = os.environ.get(ASKED_FOR)  # noqa: TID251 — for the tests alone
EXAMPLES = int(_ASKED) if _ASKED else 1_000 if LONG else 100
"""Of each property that is checked in memory."""
SHARE = 4
"""Of those that need the whole system, one for so many."""

tried: Counter[str] = Counter()
"""How many cases of each kind were checked in this process."""

F = TypeVar("F", bound=Callable[..., object])


def fuzzed(*, whole: bool = False) -> settings:
    """How a property is tried; *whole*: it needs the whole system. The same cases each time, unless
    more are asked for.
    """
    return settings(
        max_examples=max(EXAMPLES // SHARE, 1) if whole else EXAMPLES,
        derandomize=not LONG and not _ASKED,
        database=None,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.data_too_large,
        ],
    )


def counted(kind: str) -> Callable[[F], F]:
    """Count the calls of a check."""

    def decorate(check: F) -> F:
        def counting(*arguments: Any, **named: Any) -> object:
            tried[kind] += 1
            return check(*arguments, **named)

        return counting  # type: ignore[return-value] # the same signature

    return decorate


@dataclass(frozen=True)
class Kept:
    """A case of the corpus. `why`: what it broke, or what is odd about it."""

    name: str
    kind: str
    why: str
    case: Any


def kept(*kinds: str) -> list[Kept]:
    """The corpus's cases of *kinds*; without any, all."""
    found = []
    for file in sorted(CORPUS.glob("*.json")):
        read = json.loads(file.read_text())
        if not kinds or read["kind"] in kinds:
            found.append(Kept(file.stem, read["kind"], read["why"], read["case"]))
    return found
