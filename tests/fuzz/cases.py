"""Fuzz cases, the count of cases tried, and the corpus.

A case is a JSON value; its kind selects the check. The corpus holds cases that once broke
something, cases close to these, and items stored by earlier versions (``version-…``). Each file is
``{"kind": …, "why": …, "decodes": true, "cases": […]}``. `kind` names the check; `why` says what is
odd about the cases; `decodes`: they must decode (without it, they may be rejected). Items have the
form of DynamoDB's client, with binary values as Base64 text under ``B64``.

If a file has a ``base``, which is a whole item, each case lists only the attributes that differ;
null removes the attribute. Files ``version-…`` have no base: they show each item as it was stored.
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
"""The environment variable with the number of cases; `__main__` sets it."""
_ASKED = os.environ.get(ASKED_FOR)  # noqa: TID251 — read by tests only
EXAMPLES = int(_ASKED) if _ASKED else 1_000 if LONG else 100
"""Number of cases of each property that is checked in memory."""
SHARE = 5 if LONG or _ASKED else 10
"""Properties of the API get one case for this number of `EXAMPLES`."""
SHARE_WHOLE = 10 if LONG or _ASKED else 20
"""Properties of the whole system get one case for this number of `EXAMPLES`."""

tried: Counter[str] = Counter()
"""Number of cases of each kind checked in this process."""

F = TypeVar("F", bound=Callable[..., object])


def fuzzed(share: int = 1) -> settings:
    """Settings of a property: one case for *share* `EXAMPLES`. The same cases each time, unless a
    number is requested or NEXTFIRE_LONG is set.
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
    """A case of the corpus. `why`: what it broke, or what is odd about it. `decodes`: whether it
    must decode.
    """

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
                for n, case in enumerate(_whole(read), 1)
            ]
    return found


def _whole(read: dict[str, Any]) -> list[Any]:
    """The cases of a file, each with what it shares with the base."""
    if "base" not in read:
        return list(read["cases"])
    merged: list[dict[str, Any]] = [read["base"] | changes for changes in read["cases"]]
    return [{name: value for name, value in each.items() if value is not None} for each in merged]
