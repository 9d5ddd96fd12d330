"""A defect planted into quotas, keys, skips or ids is found by the simulation."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nextfire.domain.due_decisions import Decision, Drop, decide_due
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.runs import Written
from nextfire.domain.run import Run
from nextfire.testing.kernel import SECOND
from nextfire.usecases.audit_snapshot import DueSnapshot
from nextfire.usecases.audit_visit import JobVisits
from nextfire.usecases.dispatch.actions import Actions
from nextfire.usecases.dispatch.gates import TenantQuotaGate
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest
from tests.fakes import MemoryControlStore, MemoryJobStore, MemoryRunStore
from tests.simulation.flow import TENANTS
from tests.simulation.history import History


def count_later(history: History) -> None:
    """A separate write counts the job."""
    jobs, kernel = history.stores.jobs, history.kernel

    def create(job: Job, *args: Any, **kwargs: Any) -> Any:
        before = jobs.counts[job.key.tenant]
        existing = MemoryJobStore.create(jobs, job, *args, **kwargs)
        counts = jobs.counts[job.key.tenant] - before
        jobs.counts[job.key.tenant] -= counts
        kernel.step(SECOND // 10)
        jobs.counts[job.key.tenant] += counts
        return existing

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
    reset_taken_runs: 225,
    ungroup_retries: 146,
    skip_again_without_record: 851,
    leave_gaps: 336,
    skip_without_record: 190,
    undo_and_keep_the_record: 22,
    free_ids_early: 640,
    consider_queues_empty: 912,
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
