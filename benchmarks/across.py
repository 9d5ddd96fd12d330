"""What looks across jobs, with a million records of 10,000 jobs: latency, read and write units; and
what the help of the command costs.

The tables are in this process, and each call takes as long as a request to DynamoDB: nothing else
holds a million records within minutes here. The embedded stack is measured on its real database.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2s
from pathlib import Path
from typing import Any, cast

from benchmarks.figures import item_bytes, percentile, read_units
from benchmarks.report import Result, progress
from benchmarks.simulated import SimulatedClock
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.dynamodb.run_items import encode_run
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.overview import SqliteRunOverview
from nextfire.adapters.sqlite.run_reads import stored_item
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import DeliveredStep, step_of
from nextfire.domain.ports.overview import RunOverview, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview

JOBS = 10_000
RECORDS = 1_000_000
_TENANT = "123456789012"
_BASE = datetime(2026, 5, 24, tzinfo=UTC)
_WINDOW = timedelta(seconds=9)
"""The batching window of the event source."""
_BATCH = 1000
_CALL_S, _MEGABYTE_S = 0.01, 0.03
"""How long a request takes, and in addition for each MB."""
_CALLS = 100
_PAGE = 50
_LONG = 5000
"""Of this many runs one has not ended."""
RECORDS_AT_12 = 50_000
HELPS = 9
_FILLED = 10_000
"""Records of a transaction."""


def _job(number: int) -> tuple[JobKey, str]:
    uid = blake2s(str(number).encode(), digest_size=8).hexdigest()
    return JobKey(_TENANT, f"report-{number:05d}"), uid


class _History:
    """Runs of all jobs in turn, *rate* a second; nearly all take 0.2 to 4 s."""

    def __init__(self, rate: float, records: int) -> None:
        self.rate, self.records = rate, records
        self.end = _BASE + timedelta(seconds=records / rate)
        self._jobs = [_job(number) for number in range(JOBS)]
        self._numbers = {key: number for number, (key, _) in enumerate(self._jobs)}

    def run(self, number: int, *, ended: bool = True) -> Run:
        """Run *number*; not *ended*: as it started."""
        chance = number * 2_654_435_761 % 2**32 / 2**32  # spread, and the same each time
        key, uid = self._jobs[number * 7919 % JOBS]
        scheduled_at = _BASE + timedelta(seconds=number / self.rate)
        started_at = scheduled_at + timedelta(seconds=0.02 + 0.2 * chance)
        state = RunState.DEAD if number % 100 == 1 else RunState.SUCCEEDED
        finished_at = started_at + timedelta(seconds=0.2 + 4 * (chance * 1000 % 1))
        if not ended or number % _LONG == 0:
            state, finished_at = RunState.RUNNING, cast("datetime", None)
        return Run(
            RunKey(key, run_id(uid, scheduled_at)),
            state,
            attempt=1,
            fence=1,
            pool="default",
            worker="worker-17",
            started_at=started_at,
            finished_at=finished_at,
            stdout="x" * 500,
        )

    def number(self, key: RunKey) -> int:
        return round((key.scheduled_at - _BASE).total_seconds() * self.rate)

    def batches(self) -> Iterator[tuple[datetime, list[DeliveredStep]]]:
        """What the stream delivers: the instant, and the records."""
        waiting: list[tuple[datetime, int, Run]] = []  # ends
        number, now = 0, _BASE
        while now < self.end + _WINDOW:
            now += _WINDOW
            found: list[tuple[datetime, Run]] = []
            while number < self.records:
                run = self.run(number, ended=False)
                started_at = cast("datetime", run.started_at)
                if started_at > now:
                    break
                found.append((started_at, run))
                if number % _LONG:
                    over = self.run(number)
                    insort(waiting, (cast("datetime", over.finished_at), number, over))
                number += 1
            past = bisect_right(waiting, now, key=lambda each: each[0])
            found += [(at, run) for at, _, run in waiting[:past]]
            del waiting[:past]
            found.sort(key=lambda each: each[0])
            seen = [
                DeliveredStep(_TENANT, step_of(run), f"{number:08d}{place:06d}", to_ms(at))
                for place, (at, run) in enumerate(found)
            ]
            for start in range(0, len(seen), _BATCH):
                yield now, seen[start : start + _BATCH]


class _Tables:
    """DynamoDB's client, as far as the overview calls it. The records are computed."""

    def __init__(self, history: _History) -> None:
        self._history = history
        self._items: dict[str, dict[str, Any]] = defaultdict(dict)
        self._places: dict[str, list[str]] = defaultdict(list)
        self.write_units = self.read_units = 0.0
        self.waited_s = 0.0

    def put_item(self, *, Item: Any, **_: object) -> dict[str, Any]:  # noqa: ANN401, N803
        log, place = Item["log"]["S"], Item["place"]["S"]
        if place not in self._items[log]:
            insort(self._places[log], place)
        self._items[log][place] = Item
        self._charge(Item)
        return {}

    def _charge(self, item: Any) -> None:  # noqa: ANN401
        self.write_units += math.ceil(item_bytes(item) / 1024)

    def batch_write_item(self, *, RequestItems: Any) -> dict[str, Any]:  # noqa: ANN401, N803
        [writes] = RequestItems.values()
        for write in writes:
            if "PutRequest" in write:
                self.put_item(Item=write["PutRequest"]["Item"])
                continue
            key = write["DeleteRequest"]["Key"]
            log, place = key["log"]["S"], key["place"]["S"]
            self._charge(self._items[log].pop(place))
            self._places[log].remove(place)
        return {}

    def get_item(self, *, Key: Any, **_: object) -> dict[str, Any]:  # noqa: ANN401, N803
        item = self._items[Key["log"]["S"]].get(Key["place"]["S"])
        self._read([item] if item else [])
        return {"Item": item} if item else {}

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        values = {name: value["S"] for name, value in request["ExpressionAttributeValues"].items()}
        places = self._places[values[":log"]]
        first, last = bisect_left(places, values[":first"]), bisect_right(places, values[":last"])
        matching = places[first:last]
        if not request["ScanIndexForward"]:
            matching = matching[::-1]
        if start := request.get("ExclusiveStartKey"):
            matching = matching[matching.index(start["place"]["S"]) + 1 :]
        found: list[Any] = []
        size = 0
        for place in matching[: request.get("Limit")]:
            found.append(self._items[values[":log"]][place])
            size += item_bytes(found[-1])
            if size > 1024 * 1024:
                break
        self._read(found)
        more = len(found) < len(matching)
        return {"Items": found, **({"LastEvaluatedKey": found[-1]} if more and found else {})}

    def batch_get_item(self, *, RequestItems: Any) -> dict[str, Any]:  # noqa: ANN401, N803
        [(table, asked)] = RequestItems.items()
        items = []
        for key in asked["Keys"]:
            tenant, _, job_id = key["job"]["S"].partition("/")
            number = self._history.number(RunKey(JobKey(tenant, job_id), key["run_id"]["S"]))
            items.append(encode_run(self._history.run(number)) | {"pool": {"S": "default"}})
        self._read(items, consistent=False, one_by_one=True)
        return {"Responses": {table: items}}

    def _read(self, items: list[Any], *, consistent: bool = True, one_by_one: bool = False) -> None:
        sizes = [item_bytes(item) for item in items]
        self.read_units += read_units(sizes, consistent=consistent, one_by_one=one_by_one)
        self.waited_s += _CALL_S + _MEGABYTE_S * sum(sizes) / 1024**2


def measure() -> Result:
    result = Result()
    history = _measure_aws(result)
    _measure_rate(result)
    _measure_embedded(result, history)
    result.add("help_cpu_s", "CPU of `nextfire --help`", _help_cpu(), most=0.25, unit="s")
    result.notes.append(
        f"{RECORDS:,} records of {JOBS:,} jobs, 100 runs a second, delivered to the projector's "
        f"use case in batches of 9 s or {_BATCH} records. The tables are in this process. The time "
        f"is the CPU time of the call and, for each of its requests, {_CALL_S * 1000:.0f} ms and "
        f"{_MEGABYTE_S * 1000:.0f} ms per MB; on the embedded stack, it is the time that passed. "
        "Units are computed by DynamoDB's rules. A page has 50 runs. `status` counts 15 minutes. "
        f"The help is the median of {HELPS}."
    )
    return result


def _fill(history: _History) -> tuple[_Tables, float]:
    """Project *history*. Returns the tables, and the projector's write units per run."""
    tables = _Tables(history)
    clock = SimulatedClock(_BASE)
    client = cast("Any", tables)
    store = DynamoDbSegmentStore(client, table="overview")
    runs = DynamoDbRunStore(client, table="runs")
    projector = ProjectRuns(store, runs, clock)
    for at, batch in progress(history.batches(), "projecting"):
        clock.sleep(at + timedelta(seconds=1) - clock.now())
        projector.apply(batch)
    return tables, tables.write_units / history.records


def _measure_aws(result: Result) -> _History:
    history = _History(100, RECORDS)
    tables, units = _fill(history)
    client = cast("Any", tables)
    overview = SegmentedOverview(
        DynamoDbSegmentStore(client, table="overview"), DynamoDbRunStore(client, table="runs")
    )
    for name, ask in _questions(overview, history).items():
        before = tables.read_units
        took = [_timed(ask, tables) for _ in progress(range(_CALLS), name)]
        result.add(f"{name}_p99_s", f"{name}, p99", percentile(took, 99), most=1, unit="s")
        read = (tables.read_units - before) / _CALLS
        result.add(f"{name}_read_units", f"{name}, read units", read)
    result.add(
        "projector_write_units_per_run",
        "write units that the projector adds per run, at 100 runs a second",
        units,
        most=0.05,
    )
    return history


def _measure_rate(result: Result) -> None:
    """The cost at the rate of a million runs a day."""
    _, units = _fill(_History(12, RECORDS_AT_12))
    result.add(
        "projector_write_units_per_run_at_12",
        "write units that the projector adds per run, at 12 runs a second",
        units,
        most=0.05,
    )


def _measure_embedded(result: Result, history: _History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "nextfire.db")
        for start in progress(range(0, RECORDS, _FILLED), "filling SQLite"):
            with database.writing("fill") as connection:
                RUNS.put(
                    connection, *(stored_item(history.run(start + each)) for each in range(_FILLED))
                )
        for name, ask in _questions(SqliteRunOverview(database), history).items():
            took = [_lasted(ask) for _ in range(_CALLS)]
            key = f"embedded_{name}_p99_s"
            what = f"embedded stack: {name}, p99"
            result.add(key, what, percentile(took, 99), most=1, unit="s")


def _questions(overview: RunOverview, history: _History) -> dict[str, Callable[[], object]]:
    def ask(*states: RunState) -> None:
        wanted = StepFilter(history.end - timedelta(days=1), history.end, states or (*RunState,))
        page = overview.list(_TENANT, wanted, cursor=None, limit=_PAGE)
        if len(page.items) != _PAGE:
            raise RuntimeError(f"expected {_PAGE} runs, found {len(page.items)}")

    def status() -> None:
        overview.counts(_TENANT, history.end - timedelta(minutes=15))

    return {"list": ask, "running": lambda: ask(RunState.RUNNING), "status": status}


def _help_cpu() -> float:
    """The CPU time of `nextfire --help`, in seconds."""
    took = []
    for _ in range(HELPS):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "nextfire_cli.main", "--help"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = os.times()
        took.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return statistics.median(took)


def _timed(ask: Callable[[], object], tables: _Tables) -> float:
    """The CPU time of a call, and the time that its requests take."""
    began = time.process_time() + tables.waited_s
    ask()
    return time.process_time() + tables.waited_s - began


def _lasted(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began
