"""What a fuzzed case is, how often one was tried, and those that are kept.

A case is a JSON value; what is checked of it is a function of its kind. The corpus holds what broke
something once, what is nearly so, and what earlier versions stored (``version-…``). Each file is
``{"kind": …, "why": …, "decodes": true, "cases": […]}``: the kind, which names the check; what is
odd about the cases; that they must decode (without it they may be refused, too); the cases. Items
are as DynamoDB's client gives them, with binary values as Base64 text under ``B64``.
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
"""The variable of the environment that says how many; `__main__` sets it."""
_ASKED = os.environ.get(ASKED_FOR)  # noqa: TID251 — for the tests alone
EXAMPLES = int(_ASKED) if _ASKED else 1_000 if LONG else 100
"""Of each property that is checked in memory."""
SHARE = 5
"""Of those that need an API: one for so many."""
SHARE_WHOLE = 10
"""Of those that need the whole system: one for so many."""

tried: Counter[str] = Counter()
"""How many cases of each kind were checked in this process."""

F = TypeVar("F", bound=Callable[..., object])


def fuzzed(share: int = 1) -> settings:
    """How a property is tried: one case for *share* `EXAMPLES`. The same cases each time, unless
    more are asked for.
    """
    return settings(
        max_examples=max(EXAMPLES // share, 1),
        print_blob=True,
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
    """A case of the corpus. `why`: what it broke, or what is odd about it. `decodes`: it must."""

    name: str
    kind: str
    why: str
    case: Any
    decodes: bool


def kept(*kinds: str) -> list[Kept]:
    """The corpus's cases of *kinds*."""
    found = []
    for file in sorted(CORPUS.glob("*.json")):
        read = json.loads(file.read_text())
        if read["kind"] in kinds:
            found += [
                Kept(f"{file.stem}-{n}", read["kind"], read["why"], case, "decodes" in read)
                for n, case in enumerate(read["cases"], 1)
            ]
    return found
