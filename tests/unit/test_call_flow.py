"""Limits of endpoints: which runs may call, and when the others come."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.call_flow import WAIT_AT_MOST, CallFlow, WaitingRun, enter, leave
from nextfire.domain.call_limit import BURST, CallLimit
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.usecases.call_flows import CallFlows
from tests.builders import NOON
from tests.fakes import Clock, MemoryEndpointStore
from tests.integration.races import at_once

KEY = EndpointKey("calls", "acme", "api.example.com:443")
NEW = CallFlow(KEY)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def caller(name: str = "a", *, first: bool = True, lasts: timedelta = MINUTE) -> WaitingRun:
    return WaitingRun(name, NOON + lasts, first)


def simulate(
    limit: CallLimit, runs: int, *, takes: timedelta = SECOND / 10, processes: int = 1
) -> list[tuple[datetime, datetime]]:
    """Start and end of each of *runs* calls that are due at noon. A dispatch takes up to 1 s."""
    store, clock = MemoryEndpointStore(), Clock(NOON)
    flows = [CallFlows(store, clock) for _ in range(processes)]
    events: list[tuple[datetime, int, str, bool]] = [(NOON, n, "come", True) for n in range(runs)]
    calls = []
    while events:
        now, run, what, first = heapq.heappop(events)
        clock.move_to(max(now, clock.now()))
        process = flows[run % processes]
        if what == "leave":
            process.leave(KEY, str(run))
            continue
        until = clock.now() + takes + 15 * SECOND
        hold = process.enter(KEY, limit, str(run), until=until, first=first)
        if hold is None:
            calls.append((clock.now(), clock.now() + takes))
            heapq.heappush(events, (clock.now() + takes, run, "leave", False))
        else:
            assert hold.until > now
            late = timedelta(milliseconds=run * 37 % 1000)
            heapq.heappush(events, (hold.until + late, run, "come", False))
    return calls


def most_in_a_minute(starts: list[datetime]) -> int:
    return max(sum(at <= each < at + MINUTE for each in starts) for at in starts)


@pytest.mark.parametrize("per_minute", [1, 7, 60, 600])
@pytest.mark.parametrize("processes", [1, 4])
def test_a_rate_is_kept_and_used(per_minute: int, processes: int) -> None:
    runs = min(per_minute * 3 + 5, 600)

    calls = simulate(CallLimit(per_minute=per_minute), runs, processes=processes)

    starts = [start for start, _ in calls]
    assert len(starts) == runs, "each run calls once"
    assert most_in_a_minute(starts) <= per_minute + per_minute * (BURST / MINUTE) + 1
    assert starts[-1] - starts[0] <= MINUTE / per_minute * runs * 1.2 + 5 * SECOND


@pytest.mark.parametrize("parallel", [1, 3, 20])
@pytest.mark.parametrize("takes", [SECOND / 10, 5 * SECOND])
def test_calls_at_the_same_time_are_limited(parallel: int, takes: timedelta) -> None:
    calls = simulate(CallLimit(parallel=parallel), 100, takes=takes)

    assert len(calls) == 100
    edges = sorted([(end, -1) for _, end in calls] + [(start, 1) for start, _ in calls])
    under_way = most = 0
    for _, change in edges:
        under_way += change
        most = max(most, under_way)
    assert most == parallel


def test_few_runs_come_twice_from_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    came: Counter[str] = Counter()
    whole = CallFlows.enter

    def counted(
        self: CallFlows, key: EndpointKey, limit: CallLimit, run: str, **more: object
    ) -> object:
        came[run] += 1
        return whole(self, key, limit, run, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(CallFlows, "enter", counted)
    simulate(CallLimit(per_minute=600), 1200)

    assert came.total() <= 2.2 * 1200


def test_runs_come_one_step_apart() -> None:
    limit = CallLimit(per_minute=60)
    flow = replace(NEW, free_at=NOON + MINUTE, limit=limit)
    comes = []
    for number in range(10):
        flow, at = enter(flow, limit, caller(str(number)), NOON)
        assert at is not None
        comes.append(at)

    assert {later - sooner for sooner, later in pairwise(comes)} == {SECOND}


@pytest.mark.parametrize("limit", [CallLimit(per_minute=60), CallLimit(parallel=1)], ids=str)
def test_new_runs_do_not_overtake_the_line(limit: CallLimit) -> None:
    flow = replace(NEW, line_at=NOON + MINUTE, limit=limit)

    waiting, at = enter(flow, limit, caller(), NOON)
    assert at == NOON + MINUTE + SECOND
    assert waiting.free_at is None
    assert enter(flow, limit, caller(first=False), NOON)[1] is None


def test_new_runs_overtake_the_line_while_more_than_one_place_is_free() -> None:
    limit = CallLimit(parallel=3)
    flow = replace(NEW, line_at=NOON + MINUTE, limit=limit)
    comes = []
    for number in range(3):
        flow, at = enter(flow, limit, caller(str(number)), NOON)
        comes.append(at)

    assert comes[:2] == [None, None]
    assert comes[2] is not None


def test_a_new_limit_ends_the_line() -> None:
    slow, fast = CallLimit(per_minute=1), CallLimit(per_minute=6000)
    flow = NEW
    for number in range(50):
        flow, _ = enter(flow, slow, caller(str(number)), NOON)

    changed, at = enter(flow, fast, caller("new"), NOON + 10 * SECOND)

    assert at is None
    assert (changed.limit, changed.line_at) == (fast, None)


def test_calls_that_hang_do_not_slow_the_line_for_hours() -> None:
    limit = CallLimit(parallel=5)
    flow = replace(NEW, limit=limit)
    for number in range(20):
        flow, _ = enter(flow, limit, caller(str(number), first=False), NOON)
        flow = leave(flow, {str(number): 15 * MINUTE})
    for number in range(5):
        flow, _ = enter(flow, limit, caller(str(number), first=False), NOON)

    waits = []
    for number in range(10):
        flow, at = enter(flow, limit, caller(f"w{number}"), NOON)
        assert at is not None
        waits.append(at)

    assert waits[-1] <= NOON + 10 * 30 * SECOND + SECOND


def test_a_line_of_over_an_hour_does_not_grow() -> None:
    limit, flow = CallLimit(per_minute=1), NEW
    for number in range(100):
        flow, _ = enter(flow, limit, caller(str(number)), NOON)

    same, at = enter(flow, limit, caller("last"), NOON)

    assert same is flow, "there is nothing to write"
    assert at is not None
    assert NOON + WAIT_AT_MOST / 2 <= at <= NOON + WAIT_AT_MOST


def test_the_place_of_a_lost_executor_ends() -> None:
    limit = CallLimit(parallel=1)
    flow, at = enter(NEW, limit, caller("a"), NOON)
    assert at is None

    assert enter(flow, limit, caller("b"), NOON + 59 * SECOND)[1] is not None
    again, at = enter(flow, limit, caller("b", first=False), NOON + MINUTE)
    assert at is None
    assert [*again.places] == ["b"]


def test_a_clock_that_went_back_delays_no_run_for_long() -> None:
    year, limit = timedelta(days=365), CallLimit(per_minute=60, parallel=1)
    ahead = NOON + year
    flow = CallFlow(KEY, ahead, ahead, {"a": ahead}, limit=limit, version=1)

    _, at = enter(flow, limit, caller(first=False), NOON)

    assert at is not None
    assert at <= NOON + 5 * SECOND


def test_a_clock_that_is_a_little_slow_keeps_the_line() -> None:
    limit, slow = CallLimit(per_minute=60), NOON - 2 * SECOND
    flow = replace(NEW, line_at=NOON + WAIT_AT_MOST - SECOND, limit=limit, version=1)

    assert enter(flow, limit, caller(), slow)[1] is not None
    full = replace(NEW, line_at=NOON + WAIT_AT_MOST, limit=limit, version=1)
    assert enter(full, limit, caller(), slow)[0] is full


def test_a_call_that_ended_gives_its_place_back_once() -> None:
    flow, _ = enter(NEW, CallLimit(parallel=1), caller("a"), NOON)

    ended = leave(flow, {"a": 11 * SECOND})

    assert ended.places == {}
    assert ended.usual == 3 * SECOND, "it follows the durations slowly"
    assert leave(ended, {"a": SECOND}) is ended


def test_threads_of_processes_that_race_keep_the_limit() -> None:
    store, clock = MemoryEndpointStore(), Clock(NOON)
    limit = CallLimit(parallel=5)
    processes = [CallFlows(store, clock) for _ in range(8)]

    held = at_once(
        *(
            lambda number=number: processes[number % 8].enter(
                KEY, limit, str(number), until=NOON + MINUTE, first=True
            )
            for number in range(40)
        )
    )

    started = [number for number, hold in enumerate(held) if hold is None]
    assert len(started) <= 5
    assert len(store.flows[KEY].places) == len(started)
    for number in started:
        processes[number % 8].leave(KEY, str(number))
    assert store.flows[KEY].places == {}


class Slow(MemoryEndpointStore):
    """A store whose writes take some milliseconds, so that processes conflict."""

    def replace_flow(self, was: CallFlow, to: CallFlow) -> bool:
        time.sleep(0.003)
        return super().replace_flow(was, to)


def test_no_place_stays_taken_after_processes_that_race() -> None:
    store, clock = Slow(), SystemClock()
    limit, processes = CallLimit(parallel=100), [CallFlows(store, clock) for _ in range(8)]

    def call(number: int) -> None:
        flows = processes[number % 8]
        until = clock.now() + MINUTE
        if flows.enter(KEY, limit, str(number), until=until, first=False) is None:
            flows.leave(KEY, str(number))

    at_once(*(lambda number=number: call(number) for number in range(80)))
    for number, flows in enumerate(processes):  # what a later call of each process does
        flows.enter(KEY, limit, f"last-{number}", until=clock.now(), first=False)

    assert len(store.flows[KEY].places) <= len(processes)


def test_while_the_store_does_not_answer_runs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    store, errors = MemoryEndpointStore(), list[Exception]()
    asked: list[object] = []

    def fail(*_: object) -> None:
        asked.append(_)
        raise UnavailableError("no answer")

    flows = CallFlows(store, Clock(NOON), on_error=errors.append)
    limit = CallLimit(parallel=1)
    assert flows.enter(KEY, limit, "a", until=NOON + MINUTE, first=True) is None
    with monkeypatch.context() as patch:
        patch.setattr(store, "flow", fail)
        patch.setattr(store, "replace_flow", fail)
        flows.leave(KEY, "a")
        held = [flows.enter(KEY, limit, "b", until=NOON + MINUTE, first=False) for _ in range(10)]

    assert all(hold and NOON + 10 * SECOND <= hold.until <= NOON + 20 * SECOND for hold in held)
    assert len(asked) == len(errors) == 1, "the store is not asked again for 5 s"


def test_a_call_whose_end_could_not_be_written_is_taken_out_with_the_next_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = MemoryEndpointStore(), Clock(NOON)
    flows, limit = CallFlows(store, clock), CallLimit(parallel=1)
    assert flows.enter(KEY, limit, "a", until=NOON + 60 * MINUTE, first=True) is None

    def fail(*_: object) -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(store, "replace_flow", fail)
        flows.leave(KEY, "a")
    assert len(store.flows[KEY].places) == 1
    clock.advance(10 * SECOND)

    assert flows.enter(KEY, limit, "b", until=NOON + 60 * MINUTE, first=False) is None
    assert len(store.flows[KEY].places) == 1


def test_a_flow_that_does_not_decode_limits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, errors = MemoryEndpointStore(), list[Exception]()

    def fail(*_: object) -> None:
        raise UndecodableError("not a flow")

    monkeypatch.setattr(store, "flow", fail)
    flows = CallFlows(store, Clock(NOON), on_error=errors.append)

    for run in ("a", "b"):
        assert flows.enter(KEY, CallLimit(parallel=1), run, until=NOON, first=True) is None
        flows.leave(KEY, run)
    assert len(errors) == 1


def test_costs() -> None:
    store = MemoryEndpointStore()
    flows = CallFlows(store, Clock(NOON))
    for number in range(10):
        flows.enter(KEY, CallLimit(per_minute=6000), str(number), until=NOON, first=True)
        flows.leave(KEY, str(number))
    assert (store.reads, store.writes) == (1, 10)

    for number in range(10):
        flows.enter(KEY, CallLimit(parallel=10), str(number), until=NOON + MINUTE, first=True)
        flows.leave(KEY, str(number))
    assert (store.reads, store.writes) == (1, 30)
