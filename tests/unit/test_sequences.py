"""Sequences: each child runs once for each logical time, after its parents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import job_edges
from nextfire.usecases import read_sequence as reading
from nextfire.usecases.find_run import PendingOccurrence
from nextfire.usecases.read_sequence import read_sequence
from tests.builders import at
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, diamond, states
from tests.world import World

BEGINNING = "11:58:30"


def test_a_chain_runs_link_by_link(world: World) -> None:
    jobs = chain(world, "a", "b", "c")

    world.tick_and_work("12:00")

    assert world.sent == ["a 12:00", "b 12:00", "c 12:00"]
    assert states(world, *jobs) == [RunState.SUCCEEDED] * 3
    assert world.run(jobs[1], "12:00").dispatch_reason == "ALL_SUCCEEDED: a SUCCEEDED"


def test_a_job_without_children_costs_no_call_more(world: World) -> None:
    world.register("a")
    world.tick_at("12:00")

    world.faults.refuse("joins.read")
    world.faults.refuse("queue.send")
    world.worker().work()

    assert world.queued == []


def test_a_child_in_another_pool_goes_through_the_due_table(world: World) -> None:
    world.register("a")
    b = world.register("b", **after("a"), target={"handler": "b", "pool": "batch"})

    world.tick_and_work("12:00")
    (entry,) = (entry for entry in world.entries if isinstance(entry, DispatchEntry))
    assert (entry.pool, entry.dispatch, entry.at) == ("batch", 1, at("12:00"))
    world.tick()
    world.worker(pool="batch").work()

    assert states(world, b) == [RunState.SUCCEEDED]


def test_a_child_with_a_delay_starts_later(world: World) -> None:
    world.register("a")
    b = world.register("b", **after() | {"after": [{"job": "a", "delaySec": 60}]})

    world.tick_and_work("12:00")
    assert world.sent == ["a 12:00"]
    world.tick_and_work("12:01")

    assert states(world, b) == [RunState.SUCCEEDED]


def test_a_failure_is_recorded_down_the_chain(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c", **ONE_ATTEMPT)
    world.script(exit_code=1)

    world.tick_and_work("12:00")

    assert states(world, a, b, c) == [RunState.DEAD, RunState.SKIPPED, RunState.SKIPPED]
    reasons = [world.run(job, "12:00").reason for job in (b, c)]
    assert reasons == [
        "trigger rule ALL_SUCCEEDED: a FAILED",
        "trigger rule ALL_SUCCEEDED: b SKIPPED",
    ]


def test_a_redrive_of_a_dead_link_continues_the_chain(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c", **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c) == [RunState.SUCCEEDED, RunState.DEAD, RunState.SKIPPED]

    world.advance(seconds=30)
    world.manage_runs.redrive(world.run(b, "12:00").key, "fixed")
    world.tick()
    world.worker().work()

    assert states(world, a, b, c) == [RunState.SUCCEEDED] * 3
    assert world.sent.count("a 12:00") == 1


def test_a_child_of_a_paused_job_is_skipped_and_says_so(world: World) -> None:
    _, b, c = chain(world, "a", "b", "c")
    world.pause(b)

    world.tick_and_work("12:00")

    assert states(world, b, c) == [RunState.SKIPPED] * 2
    assert world.run(b, "12:00").reason == "its job was paused"


def test_a_worker_that_dies_anywhere_loses_no_link() -> None:
    for calls in range(1, 1000):
        world = World("11:58:30")
        world.tick()
        jobs = [*diamond(world), world.register("e", **after("d"))]
        world.tick_at("12:00")
        killed = world.dies(calls, world.worker("a").work)
        for _ in range(6):
            world.advance(seconds=61)
            world.tick()
            world.worker("b").work()
        runs = [world.run(job, "12:00") for job in jobs]
        assert [run.state for run in runs] == [RunState.SUCCEEDED] * 5, calls
        assert_in_order(runs)
        if not killed:
            assert calls > 30
            return
    raise AssertionError("the worker never finished")


def assert_in_order(runs: list[Run]) -> None:
    """*runs* of a diamond and its child: each started after its parents ended."""
    a, b, c, d, e = runs
    for parent, child in [(a, b), (a, c), (b, d), (c, d), (d, e)]:
        assert parent.finished_at is not None
        assert child.attempts[0].started_at >= parent.finished_at


def test_a_sequence_is_read_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TOGETHER", 3)
    a = world.register("a")
    for name in "bcdef":
        world.register(name, **after("a"))
    jobs, runs = world.faults.through(world.jobs, "jobs"), world.faults.through(world.runs, "runs")
    world.faults.calls.clear()

    nodes = read_sequence(jobs, runs, a.run_key(at("12:00")), world.clock)

    assert [node.key.job.job_id for node in nodes] == [*"abcdef"]
    assert world.faults.calls == ["jobs.get", *["jobs.get_many"] * 2, *["runs.find"] * 2]


@pytest.mark.parametrize("slow", ["jobs.get_many", "runs.find"])
def test_a_sequence_that_is_not_read_in_time_is_unavailable(
    world: World, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    monkeypatch.setattr(reading, "_TOGETHER", 1)
    a, *_ = chain(world, "a", "b", "c", "d")
    world.tick_at("12:00")
    world.worker().work_one()
    jobs, runs = world.faults.through(world.jobs, "jobs"), world.faults.through(world.runs, "runs")
    key = a.run_key(at("12:00"))
    world.faults.call_before_each(slow, lambda: world.advance(seconds=8))
    world.faults.calls.clear()

    with pytest.raises(UnavailableError, match="not done within 15 s"):
        read_sequence(jobs, runs, key, world.clock)

    assert world.faults.calls.count(slow) == 2
    with pytest.raises(UnavailableError, match="not done within 15 s"):
        world.cancel_sequence.cancel(key, None)
    with pytest.raises(UnavailableError, match="not done within 15 s"):
        world.sequences.redrive(key, "b", downstream=True, reason=None)
    world.faults.clear()
    world.worker().work()
    assert world.sent == [f"{name} 12:00" for name in "abcd"]


def test_a_sequence_with_a_run_that_does_not_decode_is_not_read(world: World) -> None:
    a, b = chain(world, "a", "b")
    world.tick_and_work("12:00")
    world.runs.spoil(world.run(b, "12:00").key)

    with pytest.raises(UndecodableError, match="does not decode"):
        read_sequence(world.jobs, world.runs, world.run(a, "12:00").key, world.clock)


def test_a_chain_above_a_job_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_edges, "_MAX_LEVELS", 3)
    *_, d = chain(world, "a", "b", "c", "d")

    with pytest.raises(InvalidInputError, match="more than 3 ancestors in a row"):
        world.register("e", **after("d"))
    world.register("f", **after("c"))
    world.change(d, **after("c"))  # its parents stay


def test_the_number_of_jobs_above_a_job_is_limited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_edges, "_MAX_GRAPH", 3)
    for name in "abcd":
        world.register(name)
    world.register("e", **after("a", "b", "c"))

    with pytest.raises(InvalidInputError, match="more than 3 ancestors "):
        world.register("f", **after("a", "b", "c", "d"))


def test_a_cycle_is_rejected_with_its_path(world: World) -> None:
    _, b, _ = chain(world, "a", "b", "c")
    world.register("m", **after("c"))

    with pytest.raises(InvalidInputError, match="cycle: b → c → m → b"):
        world.change(b, **after("a", "m"))
    with pytest.raises(InvalidInputError, match="cycle: x → x"):
        world.register("x", **after("x"))


def test_an_unknown_parent_is_rejected(world: World) -> None:
    world.register("a", tenant="other")

    with pytest.raises(InvalidInputError, match="job not found"):
        world.register("b", **after("a"))


def test_a_parent_cannot_be_deleted_before_its_children(world: World) -> None:
    a, b = chain(world, "a", "b")

    with pytest.raises(ConflictError, match="a → b"):
        world.delete(a)
    world.delete(b)
    world.delete(a)


def test_the_runs_of_a_sequence_are_read_from_any_of_them(world: World) -> None:
    jobs = diamond(world)
    world.register("other")
    world.tick_at("12:00")
    world.worker().work_one()  # a
    world.worker().work_one()  # other
    delivery = world.worker().receive()
    assert delivery is not None
    world.advance(seconds=5)
    world.worker("slow").handle(delivery)

    for job in jobs:
        key = job.run_key(at("12:00"))
        nodes = read_sequence(world.jobs, world.runs, key, world.clock)
        assert [node.key.job.job_id for node in nodes] == ["a", "b", "c", "d"]
        assert [node.run and node.run.state for node in nodes] == [
            RunState.SUCCEEDED,
            RunState.SUCCEEDED,
            None,
            None,
        ]
        assert [node.critical for node in nodes] == [True, True, False, False]
        assert [[*node.parents] for node in nodes] == [[], ["a"], ["a"], ["b", "c"]]


def test_the_children_of_a_run_are_served_concurrently(world: World) -> None:
    """Two of them meet: one at a time, they would wait for each other forever."""
    a = world.register("a")
    children = [world.register(name, **after("a")) for name in "bc"]
    world.tick_at("12:00")
    meeting = Barrier(2, timeout=10)
    with ThreadPoolExecutor(2) as executor:
        world.children = executor
        world.faults.call_before_each("queue.send", meeting.wait)
        world.worker().work()

    assert states(world, a, *children) == [RunState.SUCCEEDED] * 3


def test_a_run_that_was_sent_and_not_taken_is_pending(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c")
    x = world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x"))
    world.tick_at("12:00")

    def pending(job: Job) -> str | None:
        try:
            found = world.find_run.find(job.run_key(at("12:00")))
        except NotFoundError:
            return None
        return found.reason if isinstance(found, PendingOccurrence) else found.state.value

    assert pending(b) is None, "no parent has a record"
    world.worker().work_one()

    assert pending(a) == "SUCCEEDED"
    assert pending(b) == "ALL_SUCCEEDED: a SUCCEEDED; no executor has taken it yet"
    assert pending(c) is None
    assert pending(d) == "waits for x"
    assert pending(x) is None


def test_a_run_that_is_cancelled_while_it_waits_is_handed_over_with_its_parents(
    world: World,
) -> None:
    a = world.register("a")
    x = world.register("x", target={"handler": "x", "pool": "batch"})
    d = world.register("d", **after("a", "x"))
    e = world.register("e", **after("d", triggerRule="ALL_DONE"))
    world.tick_and_work("12:00")
    waiting = d.run_key(at("12:00"))

    world.manage_runs.cancel(waiting, "wrong input")
    world.worker(pool="batch").work()
    world.tick()
    world.worker().work()

    assert states(world, a, x, d, e) == [
        RunState.SUCCEEDED,
        RunState.SUCCEEDED,
        RunState.CANCELLED,
        RunState.SUCCEEDED,
    ]
