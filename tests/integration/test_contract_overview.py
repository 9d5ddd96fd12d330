"""The contracts of the stores of the overview: on the fake and on every emulator of DynamoDB."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.overview_items import (
    encode_head,
    encode_key,
    pack,
    partition,
    place,
    snapshot_key,
    unpack,
)
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.dynamodb.run_items import encode_run
from nextfire.adapters.dynamodb.run_scan import DynamoDbRunScan
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import MAX_STEPS, BrokenHead, Head, Segment, Step, step_of
from nextfire.domain.ports.overview import RunScan, SegmentStore
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, run_key
from tests.fakes import MemoryRunScan, MemoryRunStore, MemorySegmentStore
from tests.integration.backends import DYNAMODB, MEMORY, on_dynamodb, on_each
from tests.integration.races import at_once

CONTRACT_OF = (SegmentStore, RunScan)
SECOND = timedelta(seconds=1)
NOON_MS = to_ms(NOON)
HEAD = Head("first", 0, 1000, 2000, 500, 900, 1000)


def a_step(number: int = 0, state: RunState = RunState.RUNNING, **fields: Any) -> Step:
    key = run_key(job_id=f"job-{number}")
    step = Step(NOON_MS + number, key.job.job_id, key.run_id, state, 1, 1, "default")
    return step._replace(**fields)


def a_segment(window_ms: int = NOON_MS, segment_id: str = "a", log: str = "DEAD") -> Segment:
    return Segment(log, window_ms, segment_id, NOON_MS, NOON_MS + 1, [a_step(1), a_step(2)])


# Segments


backend = on_each(MEMORY, *DYNAMODB)


@pytest.fixture
def store(backend: str, request: pytest.FixtureRequest) -> SegmentStore:
    if backend == MEMORY:
        return MemorySegmentStore()
    table = request.getfixturevalue("tables").overview
    return DynamoDbSegmentStore(dynamodb(), table=table)


def test_segments_are_read_by_log_and_window(store: SegmentStore) -> None:
    segments = [a_segment(NOON_MS + each * 30_000, f"id-{each}") for each in range(5)]
    assert store.add("acme", segments) > 0
    store.add("acme", [a_segment(log="SUCCEEDED")])
    store.add("other", [a_segment()])

    assert [*store.read("acme", "DEAD", 0, NOON_MS * 2)] == segments
    assert [*store.read("acme", "DEAD", NOON_MS + 30_000, NOON_MS + 90_000)] == segments[1:4]
    newest = [*store.read("acme", "DEAD", NOON_MS + 30_000, NOON_MS * 2, newest_first=True)]
    assert newest == segments[:0:-1]
    assert [*store.read("acme", "DEAD", 2, 1)] == []


def test_a_segment_that_is_written_again_is_one(store: SegmentStore) -> None:
    store.add("acme", [a_segment()])
    store.add("acme", [a_segment(), a_segment(segment_id="b")])

    assert len([*store.read("acme", "DEAD", 0, NOON_MS)]) == 2


def test_a_head_names_its_snapshot(store: SegmentStore) -> None:
    steps = [a_step(number) for number in range(5)]
    assert store.head("acme") is None
    assert store.replace_head("acme", None, HEAD, steps)

    head = replace(HEAD, parts=1)
    assert store.head("acme") == head
    assert store.snapshot("acme", head) == steps
    assert store.head("other") is None


def test_a_snapshot_has_any_number_of_steps(store: SegmentStore) -> None:
    assert store.replace_head("acme", None, HEAD, [])
    empty = store.head("acme")
    assert isinstance(empty, Head)
    assert [*(store.snapshot("acme", empty) or [])] == []
    steps = [a_step(number) for number in range(MAX_STEPS + 1)]
    assert store.replace_head("acme", empty, replace(HEAD, snapshot="second"), steps)

    head = store.head("acme")
    assert isinstance(head, Head)
    assert head.parts == 2
    assert store.snapshot("acme", head) == steps


def test_a_head_replaces_the_one_that_was_read_only(store: SegmentStore) -> None:
    assert store.replace_head("acme", None, HEAD, [a_step(1)])
    first = store.head("acme")
    assert isinstance(first, Head)
    assert not store.replace_head("acme", None, replace(HEAD, snapshot="x"), [a_step(2)])
    assert store.replace_head("acme", first, replace(HEAD, snapshot="second"), [a_step(3)])
    assert not store.replace_head("acme", first, replace(HEAD, snapshot="y"), [a_step(4)])

    head = store.head("acme")
    assert isinstance(head, Head)
    assert store.snapshot("acme", head) == [a_step(3)]
    assert store.snapshot("acme", first) is None


def test_of_concurrent_heads_one_is_stored(store: SegmentStore) -> None:
    def put(name: str) -> Callable[[], bool]:
        return lambda: store.replace_head("acme", None, replace(HEAD, snapshot=name), [a_step()])

    assert sum(at_once(*map(put, "abcd"))) == 1
    head = store.head("acme")
    assert isinstance(head, Head)
    assert store.snapshot("acme", head) == [a_step()]


@on_dynamodb
def test_a_segment_that_does_not_decode_is_left_out(store: SegmentStore, tables: Any) -> None:
    store.add("acme", [a_segment()])
    broken: dict[str, Any] = encode_key(partition("acme", "DEAD"), place(NOON_MS, "broken"))
    for item in (broken, broken | {"place": {"S": "x"}}):
        dynamodb().put_item(TableName=tables.overview, Item=item)

    assert [*store.read("acme", "DEAD", 0, NOON_MS)] == [a_segment()]


@on_dynamodb
def test_a_head_that_does_not_decode_is_replaced_once(store: SegmentStore, tables: Any) -> None:
    key: dict[str, Any] = encode_key(partition("acme", "head"), "head")
    whole: dict[str, Any] = encode_head("acme", HEAD, timedelta(days=1))
    others: list[dict[str, Any]] = [
        {},
        {"snapshot": {"N": "1"}, "note": {"L": [{"S": "x"}]}},
        {**whole, "snapshot": {"N": "1"}},
    ]
    for more in others:
        dynamodb().put_item(TableName=tables.overview, Item={**key, **more})
        broken = store.head("acme")
        assert isinstance(broken, BrokenHead)
        assert broken.problem
        assert not store.replace_head("acme", None, HEAD, [])

        assert store.replace_head("acme", broken, HEAD, [a_step()])
        assert not store.replace_head("acme", broken, replace(HEAD, snapshot="b"), [])
        head = store.head("acme")
        assert isinstance(head, Head)
        assert store.snapshot("acme", head) == [a_step()]


@on_dynamodb
def test_a_snapshot_that_does_not_decode_is_gone(store: SegmentStore, tables: Any) -> None:
    store.replace_head("acme", None, HEAD, [a_step()])
    head = replace(HEAD, parts=1)
    others: list[dict[str, Any]] = [{}, {"steps": {"B": b"x"}}, {"steps": {"S": "x"}}]
    for more in others:
        key: dict[str, Any] = snapshot_key("acme", HEAD.snapshot, 0)
        dynamodb().put_item(TableName=tables.overview, Item={**key, **more})
        assert store.snapshot("acme", head) is None


def test_steps_are_packed() -> None:
    steps = [a_step(number, RunState.DEAD, pool="b" * (number % 2)) for number in range(100)]
    for some in ([], steps[:1], steps):
        assert unpack(pack(some)) == some
    assert len(pack(steps)) < 1000


@pytest.mark.parametrize("packed", [b"", b"x", pack([])[:-1], None, 7, "!", "eJw="])
def test_invalid_steps_do_not_decode(packed: object) -> None:
    with pytest.raises(UndecodableError):
        unpack(packed)


_COLUMNS: dict[str, Any] = {
    "format": 1,
    "first": 0,
    "at": [1],
    "job": "j",
    "scheduled": "1",
    "uid": "u",
    "state": "DEAD",
    "dispatch": 1,
    "fence": 1,
    "pool": "p",
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(_COLUMNS | {"uid": 5}),
        json.dumps(_COLUMNS | {"uid": ["u"]}),
        json.dumps(_COLUMNS | {"at": [[1]]}),
        "[" * 100_000,
    ],
)
def test_other_json_does_not_decode_as_steps(text: str) -> None:
    with pytest.raises(UndecodableError):
        unpack(zlib.compress(text.encode()))


# Scans


@dataclass(frozen=True, slots=True)
class Scanned:
    """A scan, and how a run gets into the store."""

    scan: RunScan
    write: Callable[[Run], object]


@pytest.fixture
def scanned(backend: str, request: pytest.FixtureRequest) -> Scanned:
    if backend == MEMORY:
        memory = MemoryRunStore()
        return Scanned(MemoryRunScan(memory), lambda run: memory.items.update({run.key: run}))
    table = request.getfixturevalue("tables").runs
    client = dynamodb()
    return Scanned(
        DynamoDbRunScan(client, table=table),
        lambda run: client.put_item(TableName=table, Item=encode_run(run)),
    )


def test_a_scan_returns_the_steps_of_all_records(scanned: Scanned) -> None:
    runs = [Run(run_key(job_id=f"job-{each}"), RunState.DEAD) for each in range(10)]
    other = Run(run_key(tenant="other"), RunState.PENDING)
    for run in (*runs, other):
        scanned.write(run)
    pages = [*scanned.scan.pages(None)]

    found = [step for page in pages for step in page.steps.get("acme", ())]
    assert sorted(found) == sorted(map(step_of, runs))
    assert [page.steps["other"] for page in pages if "other" in page.steps] == [[step_of(other)]]
    assert pages[-1].after is None


@on_dynamodb
def test_a_scan_leaves_out_what_is_not_a_run(scanned: Scanned, tables: Any) -> None:
    join: dict[str, Any] = {
        "job": {"S": "acme/a/r/join"},
        "run_id": {"S": "0"},
        "marks": {"SS": ["a:S"]},
    }
    broken = encode_run(Run(run_key(), RunState.DEAD)) | {"state": {"S": "x"}}
    for item in (join, broken):
        dynamodb().put_item(TableName=tables.runs, Item=item)
    [page] = scanned.scan.pages(None)

    assert (page.steps, page.undecodable) == ({}, 1)


@on_dynamodb
def test_a_scan_continues_after_a_place(scanned: Scanned, tables: Any) -> None:
    for each in range(3):
        scanned.write(Run(run_key(job_id=f"job-{each}"), RunState.DEAD))
    first = dynamodb().scan(TableName=tables.runs)["Items"][0]
    [page] = scanned.scan.pages(f"{first['job']['S']}#{first['run_id']['S']}")

    assert len(page.steps["acme"]) == 2
