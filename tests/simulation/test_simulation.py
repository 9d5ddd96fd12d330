"""Tests that the simulation finds defects: planted races, planted defects, dead actors.

``python -m tests.simulation`` plays the histories themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.due_decisions import Decision, Drop, decide_due
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.runs import Written
from nextfire.domain.run import Run
from nextfire.testing.kernel import SECOND, Actor, Kernel
from nextfire.usecases import message_batch
from nextfire.usecases.audit_snapshot import DueSnapshot
from nextfire.usecases.audit_visit import JobVisits
from nextfire.usecases.dispatch.actions import Actions
from nextfire.usecases.dispatch.gates import TenantQuotaGate
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.message_batch import MessageBatch
from nextfire.usecases.return_held import ReturnHeld
from nextfire.usecases.watcher_life import WatcherLife
from tests.builders import at
from tests.fakes import Killed, MemoryControlStore, MemoryJobStore, MemoryRunStore
from tests.simulation.endpoint_flows import ENDPOINT_FLOWS
from tests.simulation.flows import FLOWS, TENANTS
from tests.simulation.history import CALLING, History
from tests.simulation.sequences import SEQUENCE_FLOWS
from tests.simulation.system import _Runner
from tests.simulation.wire import Weather, Wire

TRIES = 80
"""Number of seeds; a few of them reveal each planted defect."""


def read_then_write(name: str, method: str) -> Callable[[History], None]:
    """Plant an adapter that checks whether it may write and writes a moment later."""

    def plant(history: History) -> None:
        store, kernel = getattr(history.stores, name), history.kernel

        def racy(*args: Any, **kwargs: Any) -> Any:
            seen = copy(store)
            seen.items = dict(store.items)
            before = dict(seen.items)
            answer = getattr(type(store), method)(seen, *args, **kwargs)
            kernel.step(SECOND // 10)
            for key, value in seen.items.items():
                if before.get(key) is not value:
                    store.items[key] = value
            return answer

        setattr(store, method, racy)

    return plant


RACES = {
    "a claim that checks, then writes": read_then_write("runs", "claim"),
    "an outcome that checks the fence, then writes": read_then_write("runs", "advance"),
    "a change of a job that checks the revision, then writes": read_then_write("jobs", "update"),
}


@pytest.mark.parametrize("race", RACES.values(), ids=[*RACES])
def test_a_planted_race_is_found_by_interleaving_and_by_nothing_else(
    race: Callable[[History], None],
) -> None:
    def violated(seed: int, *, interleaves: bool) -> bool:
        history = History(seed, interleaves=interleaves)
        race(history)
        return bool(history.play().violations)

    found = next((seed for seed in range(TRIES) if violated(seed, interleaves=True)), None)
    assert found is not None
    assert not any(violated(seed, interleaves=False) for seed in range(found + 1))


def count_later(history: History) -> None:
    """A separate write counts the job."""
    jobs, kernel = history.stores.jobs, history.kernel

    def create(job: Job, *args: Any, **kwargs: Any) -> Any:
        before = jobs.counts[job.key.tenant]
        there = MemoryJobStore.create(jobs, job, *args, **kwargs)
        counts = jobs.counts[job.key.tenant] - before
        jobs.counts[job.key.tenant] -= counts
        kernel.step(SECOND // 10)
        jobs.counts[job.key.tenant] += counts
        return there

    jobs.create = create  # type: ignore[method-assign]


def reset_taken_runs(history: History) -> None:
    """A watcher that takes over starts the minute's count of runs from zero."""
    control = history.stores.control

    def replace_lease(group: int, was: Lease | None, to: Lease) -> bool:
        if was is not None and was.epoch != to.epoch:
            control.taken.clear()
        return MemoryControlStore.replace_lease(control, group, was, to)

    control.replace_lease = replace_lease  # type: ignore[method-assign]


def drop_held_back_entries(patch: pytest.MonkeyPatch) -> None:
    def drop(rates: Any, entries: Any, *_: object) -> None:
        if entries:
            rates._waiting._due.delete([stored.slot for stored in entries])  # noqa: SLF001

    patch.setattr(TenantQuotaGate, "_wait", drop)


def ungroup_retries(patch: pytest.MonkeyPatch) -> None:
    def message(dispatch: Any, decision: Any) -> RunMessage:
        made = grouped(dispatch, decision)
        return made if made.dispatch == 1 else made.model_copy(update={"max_concurrent": None})

    grouped = Actions._message  # noqa: SLF001
    patch.setattr(Actions, "_message", message)


def different_answers(history: History) -> None:
    history.stores.requests.finish = lambda *args: args[-1]  # type: ignore[method-assign]


def a_uid_for_each_request(patch: pytest.MonkeyPatch) -> None:
    numbers = count()
    patch.setattr(IdempotentRequest, "token", lambda *_: f"{next(numbers):016x}")


def skip_without_record(history: History) -> None:
    """Only the job shows that the occurrence is skipped; a record is missing."""
    runs = history.stores.runs

    def skip_next(run: Run, job: Job) -> Written:
        written = MemoryRunStore.skip_next(runs, run, job)
        if written is Written.DONE:
            runs.forget(run.key)
        return written

    runs.skip_next = skip_next  # type: ignore[method-assign]


def skip_again_without_record(history: History) -> None:
    """An occurrence whose skip was undone cannot be skipped again."""
    runs = history.stores.runs
    undone: set[RunKey] = set()

    def skip_next(run: Run, job: Job) -> Written:
        written = MemoryRunStore.skip_next(runs, run, job)
        if written is Written.DONE and run.key in undone:
            runs.forget(run.key)
        return written

    def unskip(run: RunKey, job: Job) -> Written:
        undone.add(run)
        return MemoryRunStore.unskip(runs, run, job)

    runs.skip_next = skip_next  # type: ignore[method-assign]
    runs.unskip = unskip  # type: ignore[method-assign]


def undo_and_keep_the_record(history: History) -> None:
    runs = history.stores.runs

    def unskip(run: RunKey, job: Job) -> Written:
        record = runs.items.get(run)
        written = MemoryRunStore.unskip(runs, run, job)
        if record is not None and written is Written.DONE:
            runs.items[run] = record
        return written

    runs.unskip = unskip  # type: ignore[method-assign]


def free_ids_early(patch: pytest.MonkeyPatch) -> None:
    """The id of a deleted job is free immediately, and its due entries are dropped."""

    def drop(entry: Any, job: Any, *more: Any) -> Decision:
        decision = decide_due(entry, job, *more)
        former = job is not None and job.uid != entry.uid
        return Drop("planted") if former else decision

    patch.setattr("nextfire.usecases.dispatch.deciding.decide_due", drop)
    patch.setattr(FindUnsent, "of", lambda *_: [])


def leave_gaps(patch: pytest.MonkeyPatch) -> None:
    """The auditor finds occurrences without a record, and does nothing."""
    patch.setattr(JobVisits, "_repair", lambda *_: None)


def consider_queues_empty(patch: pytest.MonkeyPatch) -> None:
    """The auditor does not check whether a run may still be in a queue."""
    patch.setattr(DueSnapshot, "is_empty", lambda *_: True)


def continue_group(patch: pytest.MonkeyPatch) -> None:
    """The batch begins messages of a group after one that stays in the queue."""

    class Blind(set[str]):
        def __contains__(self, _: object) -> bool:
            return False

    patch.setattr(message_batch, "set", Blind, raising=False)


def skip_hand_back(patch: pytest.MonkeyPatch) -> None:
    """What the batch did not start stays hidden until its visibility timeout ends."""

    def hide(batch: Any, message: Any, duration: timedelta) -> None:
        if duration:
            whole(batch, message, duration)

    whole = MessageBatch._hide  # noqa: SLF001
    patch.setattr(MessageBatch, "_hide", hide)


def name_only_the_first(patch: pytest.MonkeyPatch) -> None:
    """The messages of a group after one that stays are missing from the answer and so deleted."""

    def carry_out(batch: Any, messages: Any, **terms: Any) -> Any:
        stay = whole(batch, messages, **terms)
        firsts = {message.group: message for message in reversed(stay)}
        return [message for message in stay if firsts[message.group] is message]

    whole = MessageBatch.carry_out
    patch.setattr(MessageBatch, "carry_out", carry_out)


def delete_before_handling(patch: pytest.MonkeyPatch) -> None:
    """A worker's messages are deleted when they begin."""

    def carry_out(batch: Any, messages: Any, **terms: Any) -> Any:
        for message in messages:
            batch._done(message)  # noqa: SLF001
        return whole(batch, messages, **terms)

    whole = MessageBatch.carry_out
    patch.setattr(MessageBatch, "carry_out", carry_out)


def keep_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatcherLife, "end", lambda _: None)


def end_in_outage(patch: pytest.MonkeyPatch) -> None:
    """A store error ends the watcher's life."""

    def turn(life: Any, now: Any) -> Any:
        report, again_at = life._watch.step(now)  # noqa: SLF001
        life.dispatched += len(report.dispatched) if report else 0
        return again_at

    patch.setattr(WatcherLife, "turn", turn)


def end_any_lease(patch: pytest.MonkeyPatch) -> None:
    """A supervisor does not check who holds the claim of a run."""

    def end_lease(use_case: Any, delivery: Any) -> bool:
        run = use_case._runs.get(decode_message(delivery.body).key)  # noqa: SLF001
        if run is None:
            return False
        past = use_case._clock.now() - timedelta(seconds=5)  # noqa: SLF001
        return use_case._runs.extend(run, lease_until=past) is not None  # noqa: SLF001

    patch.setattr(ReturnHeld, "_end_lease", end_lease)


LOOPS = {
    "a supervisor that ends another worker's lease": (
        end_any_lease,
        "called runs.extend on .*'s run",
    ),
    "a batch that continues a group after one that stays": (
        continue_group,
        "was not handed back|began on .* ran",
    ),
    "a missing hand-back": (skip_hand_back, "was not handed back"),
    "an answer that names only the first message of a group": (
        name_only_the_first,
        "not at rest|occurrences without a record",
    ),
    "a message that is deleted before it is handled": (
        delete_before_handling,
        "not at rest|began on .* ran",
    ),
    "a watcher that does not release its lease": (keep_lease, "keeps its lease"),
    "a watcher that ends in an outage": (end_in_outage, "UnavailableError"),
}


RARE: dict[Callable[[pytest.MonkeyPatch], None], range] = {
    name_only_the_first: range(58, 400),
    end_any_lease: range(280, 540),
    continue_group: range(58, 300),
}
"""The seeds to try for defects that few histories reveal."""


@pytest.mark.parametrize(("plant", "expected"), LOOPS.values(), ids=[*LOOPS])
def test_a_planted_defect_of_a_loop_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], expected: str
) -> None:
    seeds = RARE.get(plant, range(TRIES))
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = (each for seed in seeds for each in History(seed).play().violations)
        assert any(re.search(expected, each) for each in found)


def nothing(_: object) -> None:
    pass


PLANTS = {
    "a count written apart from its job": (
        "jobs",
        count_later,
        nothing,
        "jobs, more than|jobs of .* count as",
    ),
    "a takeover that forgets the runs taken": (
        "runs_per_minute",
        reset_taken_runs,
        nothing,
        "were taken in",
    ),
    "a held-back entry that is dropped": (
        "runs_per_minute",
        nothing,
        drop_held_back_entries,
        "deleted before it was sent",
    ),
    "a retry in a separate message group": (
        "concurrent_runs",
        nothing,
        ungroup_retries,
        "began on .* ran",
    ),
    "a different answer for each request": (
        None,
        different_answers,
        nothing,
        "key .* was answered",
    ),
    "a skip without its record": (None, skip_without_record, nothing, "skipped, but has no record"),
    "a second skip without its record": (
        None,
        skip_again_without_record,
        nothing,
        "skipped, but (has no record|is)",
    ),
    "an undo that keeps the record": (None, undo_and_keep_the_record, nothing, "that was undone"),
    "an id that is free too early": (None, nothing, free_ids_early, "occurrences without a record"),
    "a different uid for each request": (
        None,
        nothing,
        a_uid_for_each_request,
        "key .* (used the uids|made)|used the tokens",
    ),
    "an audit that leaves gaps": (None, nothing, leave_gaps, "occurrences without a record"),
    "an audit that considers queues empty": (
        None,
        nothing,
        consider_queues_empty,
        "repaired undamaged data",
    ),
}
_MOST_SEEDS = 300
_FIRST_SEED: dict[Callable[..., None], int] = {
    reset_taken_runs: 220,
    ungroup_retries: 97,
    skip_again_without_record: 621,
    leave_gaps: 85,
    skip_without_record: 8,
    undo_and_keep_the_record: 22,
    free_ids_early: 639,
    consider_queues_empty: 243,
}
"""The first seed that reveals the defect, for defects that few histories reveal."""


@pytest.mark.parametrize(
    ("quota", "plant", "plant_code", "expected"), PLANTS.values(), ids=[*PLANTS]
)
def test_a_planted_defect_of_quotas_keys_skips_and_ids_is_found(
    quota: str | None,
    plant: Callable[[History], None],
    plant_code: Callable[[pytest.MonkeyPatch], None],
    expected: str,
) -> None:
    first = _FIRST_SEED.get(plant, _FIRST_SEED.get(plant_code, 0))
    for seed in range(first, first + _MOST_SEEDS):
        history = History(seed)
        quotas = history.setting.shares.quotas.of(TENANTS[0])
        if quota is not None and getattr(quotas, quota) is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(history)
            plant_code(patch)
            if any(re.search(expected, each) for each in history.play().violations):
                return
    pytest.fail("not found")


def test_a_script_that_runs_twice_is_found() -> None:
    def twice(runner: Any, call: Any, supervisor: Any) -> Any:
        once(runner, call, supervisor)
        return once(runner, call, supervisor)

    once = _Runner.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Runner, "run", twice)
        wrong = [each for seed in range(10) for each in History(seed).play().violations]
    assert any("without its own claim" in each for each in wrong)


def test_a_history_without_end_is_ended() -> None:
    kernel = Kernel(1, at("12:00"))
    actor = Actor(kernel, "restless")

    def restless() -> None:
        while True:
            kernel.pause(0)

    actor.submit(restless)
    with pytest.raises(AssertionError, match="no end"):
        kernel.run(lambda: False)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_occurrence_is_accounted_for(seed: int) -> None:
    assert not History(seed).play().violations


@pytest.mark.parametrize(
    "seed",
    [
        1295,
        271,
        2717,
        2939,
        3740,
        5438,
        5982,
        7861,
        8883,
        10298,
        11284,
        11601,
        12994,
        18881,
        30224,
        31128,
        37701,
        47472,
        54239,
        61606,
        62842,
        67711,
        83393,
    ],
)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    assert not History(seed).play().violations


def test_a_seed_replays_exactly_in_any_process() -> None:
    # In seed 33 a process with several threads dies; seed 1774 depends on the order of a set, which
    # differs between the hash seeds 1 and 5.
    seeds = [0, 1, 2, 33, 1774]
    script = (
        "from tests.simulation.history import History\n"
        f"print([History(seed).play().digest for seed in {seeds}])"
    )

    def digests(hash_seed: str) -> str:
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    first = digests("1")
    assert first == digests("5")
    assert first.strip() == str([History(seed).play().digest for seed in seeds])


def test_a_history_can_be_read() -> None:
    history = History(3, logs=True)
    history.play()
    assert history.kernel.events
    assert any("jobs.create" in event for event in history.kernel.events)


class _Counter:
    def __init__(self) -> None:
        self.calls = 0

    def touch(self) -> None:
        self.calls += 1


def test_a_dead_process_never_reaches_a_port() -> None:
    kernel = Kernel(1, at("12:00"))
    port = _Counter()
    wire = Wire(kernel, {"port": port}, Weather())
    actor = Actor(kernel, "doomed")
    seen = wire.port(actor, "port")
    ends: list[str] = []

    def work() -> None:
        try:
            seen.touch()
            kernel.pause(10 * SECOND)
        except Killed:
            ends.append("except")
            seen.touch()
        finally:
            ends.append("finally")
            seen.touch()

    actor.submit(work)
    other = Actor(kernel, "other")

    def kill() -> None:
        kernel.pause(5 * SECOND)
        actor.kill()

    other.submit(kill)
    kernel.run(lambda: False)
    assert ends == ["except", "finally"]
    assert port.calls == 1


@pytest.mark.parametrize("half_steps", range(3))
def test_a_process_dies_before_or_after_a_call(half_steps: int) -> None:
    kernel = Kernel(1, at("12:00"))
    port = _Counter()
    actor = Actor(kernel, "doomed")
    actor.dies_in = half_steps
    seen = Wire(kernel, {"port": port}, Weather()).port(actor, "port")
    actor.submit(seen.touch)
    kernel.run(lambda: False)
    assert not actor.alive
    assert port.calls == (1 if half_steps == 2 else 0)


_MANY_SCRIPTS = 40
REMOVALS = [49, 309, 489]
"""Seeds in which runs wait for a pool that was removed for longer than its grace."""
_RICH = [84, 19, 283, 117, 46, 87, 94, 66, 78, 107, 32, 103, 140]
"""Seeds in which much happens. They are played first; others follow if something was not seen."""
WRITES = ["queue.send", "due.put", "due.delete", "runs.claim", "runs.advance", "jobs.update"]


@dataclass
class _Seen:
    """What happened in several histories."""

    begun: set[str] = field(default_factory=set)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    scripts: int = 0

    def missing(self) -> list[object]:
        """The flows that have not begun, and the faults that have not happened."""
        flows = {flow.name for flow in [*FLOWS, *ENDPOINT_FLOWS, *SEQUENCE_FLOWS]}
        deaths = ("died before", "died after")
        missing: list[object] = [*flows - self.begun]
        for call in WRITES:
            kinds = [("refused",), ("unsent",), ("unanswered",), deaths]
            missing += [(call, *each) for each in kinds if not any(self.hit[call, k] for k in each)]
        return missing if self.scripts > _MANY_SCRIPTS else [*missing, "scripts"]


def test_every_flow_happens_and_every_write_goes_wrong() -> None:
    """Over some seeds every flow begins, and the most important writes are refused, left without an
    answer, and the last call of a process that dies.
    """
    seen = _Seen()
    for seed in [*_RICH, *range(160), *range(163, 663, CALLING)]:
        history = History(seed, logs=True)
        outcome = history.play()
        begun = {event[32:] for event in history.kernel.events or [] if " dice " in event}
        seen.begun |= begun
        seen.hit += outcome.hit
        seen.scripts += outcome.scripts
        if not seen.missing():
            return
    pytest.fail(f"not seen in any history: {seen.missing()}")


@pytest.mark.parametrize("seed", REMOVALS)
def test_runs_of_a_removed_pool_end_after_the_grace(seed: int) -> None:
    history = History(seed)

    assert not history.play().violations

    runs = history.stores.runs.items.values()
    reasons = [attempt.reason or "" for run in runs for attempt in run.attempts]
    assert any("no longer exists" in reason for reason in reasons)
