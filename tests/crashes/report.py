"""Counts of what was tried, by flow: read from the tests' reports, whichever process ran them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

PROPERTY = "crashes"
"""The property of a test's report: flow, family, sites of its calls, and the numbers of `Findings`.
"""


@dataclass
class Row:
    """One flow. `points`: by family; `played`: number of histories; `failures`: number of those
    that failed; `sites`: the adapters' functions that make its calls; `seconds`: duration of its
    tests.
    """

    calls: int = 0
    points: Counter[str] = field(default_factory=Counter)
    played: int = 0
    failures: int = 0
    sites: set[str] = field(default_factory=set)
    seconds: float = 0.0


def rows(reports: Iterable[object]) -> dict[str, Row]:
    """Collect the rows of *reports* by flow."""
    found: dict[str, Row] = {}
    for report in reports:
        if not isinstance(report, pytest.TestReport) or report.when != "call":
            continue
        for name, value in report.user_properties:
            if name != PROPERTY or not isinstance(value, list):
                continue
            flow, family, sites, calls, points, played, failures = value
            row = found.setdefault(flow, Row())
            row.sites.update(sites)
            # one test has both families
            row.seconds += report.duration if family != "faults" else 0.0
            row.calls = calls
            row.points[family] += points
            row.played += played
            row.failures += failures
    return found


def totals(found: dict[str, Row]) -> dict[str, int]:
    """The totals in the command's JSON. `points`: kills; `faults`: lost answers and refusals;
    `pairs`: pairs of kills.
    """
    points = sum((row.points for row in found.values()), Counter[str]())
    return {
        "flows": len(found),
        "calls": sum(row.calls for row in found.values()),
        "points": points["kills"],
        "faults": points["faults"],
        "pairs": points["pairs"],
        "played": sum(row.played for row in found.values()),
        "failures": sum(row.failures for row in found.values()),
    }


def table(found: dict[str, Row]) -> list[str]:
    """The lines of a table, one for each flow."""
    lines = [_line("flow", "calls", "points", "faults", "pairs", "played", "failures", "seconds")]
    for flow, row in found.items():
        points = [row.points[family] for family in ("kills", "faults", "pairs")]
        lines.append(_line(flow, row.calls, *points, row.played, row.failures, int(row.seconds)))
    return lines


def _line(flow: str, *numbers: object) -> str:
    return f"{flow:42}" + "".join(f"{number:>9}" for number in numbers)
