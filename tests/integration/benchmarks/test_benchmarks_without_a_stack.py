"""Benchmarks that need no emulated stack, and such parts of others: each is started once, tiny."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks import across, callbacks, invocations, overload, side_by_side, throughput
from tests.integration.benchmarks.conftest import Start, shrink

SECOND = timedelta(seconds=1)


def test_throughput(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, throughput, WARM_UP=0, MEASURED=0.1, ENTRIES=3_000)
    shrink(monkeypatch, throughput, MANY_SHARDS=2, MANY_ENTRIES=10, MISSED=80)

    assert start("throughput")["peak_mb_2_shards"]


def test_overload(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERLOAD_LOCAL", "0")
    monkeypatch.setattr(overload, "ProcessPoolExecutor", lambda: ThreadPoolExecutor(1))
    shrink(monkeypatch, overload, SCALE=6_000, POLICIES=["RUN_ALL"])
    shrink(monkeypatch, overload, OUTAGES={"210 s": 30 * SECOND, "1 h": 60 * SECOND})
    shrink(monkeypatch, overload, FOR=60 * SECOND, LAST=30 * SECOND)
    shrink(monkeypatch, overload, SELDOM=60 * SECOND, SAMPLE=60 * SECOND)

    figures = start("overload")

    assert {"goodput_200", "goodput_200_seldom_skip", "outage_1h_run_all"} <= figures.keys()


def test_across(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, across, JOBS=20, RECORDS=200, RECORDS_AT_12=20, HELPS=1)
    shrink(monkeypatch, across, _LONG=4, _PAGE=10, _CALLS=2, _FILLED=100)

    assert start("across")["embedded_running_p99_s"]


def test_callbacks_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, invocations, INVOCATIONS=1, BATCH=2)
    shrink(monkeypatch, callbacks, CALLS=2, WAIT=0)

    with patch.dict(os.environ), callbacks.local_receiver(tmp_path) as (url, log):
        invocations.lambda_seconds(tmp_path, f"{url}/callback")
        callbacks._bare(url, log)

        assert len(callbacks.arrivals(log)) == 2 + 2 + 1 + 2


class AtOnce:
    """A `Scheduler` that runs each job when it is created."""

    roots: Sequence[int] = (os.getpid(),)

    def create(self, jobs: Mapping[str, datetime], marks: Path) -> None:
        for job in jobs:
            given = json.dumps({"job": job, "marks": str(marks)})
            script = [sys.executable, "-c", side_by_side.SCRIPT]
            subprocess.run(script, input=given, text=True, check=True)


def test_load_of_embedded_and_its_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, side_by_side, PER_SECOND=2, SECONDS=1, BURST=1)
    shrink(monkeypatch, side_by_side, IDLE_SECONDS=0.01, _SETTLE=0, _CREATED_BEFORE=60)

    figures, interpreter = side_by_side.measure("at once", AtOnce(), tmp_path)

    assert (figures.lost, figures.duplicated, interpreter) == (0, 0, sys.executable)
