"""The benchmark `chain` on a real embedded stack, tiny. Its scripts leave marks in a file."""

from __future__ import annotations

from datetime import timedelta

import pytest

from benchmarks import chain
from tests.integration.benchmarks.conftest import Start, shrink


def test_chains_and_a_fan(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"CHAINS": 1, "LINKS": 2, "WIDTH": 2, "_MOST": timedelta(seconds=30)}
    shrink(monkeypatch, chain, **sizes, _LEAD=timedelta(seconds=0.5), _units=lambda _: None)

    figures = start("chain")

    assert (figures["lost"], figures["duplicated"]) == (0, 0)
    assert figures["link_p99_s"] > 0
    assert figures["fan_s"] > 0
