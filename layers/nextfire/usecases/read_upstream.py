"""What the target of a run is passed about the runs of its parents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from pydantic import JsonValue

from nextfire.domain.attempt import is_nested_too_deeply
from nextfire.domain.awaited import ParentRun
from nextfire.domain.edges import Which
from nextfire.domain.ids import JobKey, RunKey, first_run_id
from nextfire.domain.instants import MOMENT, isoformat
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.target import TargetKind
from nextfire.usecases.read_parents import iter_parents
from nextfire.usecases.run_supervisor import RETRIED_FOR, RunSupervisor

MAX_UPSTREAM_BYTES = 4 * 1024 * 1024
"""Maximum size of all results together: with `all`, a parent can have a thousand runs."""
ABSENT = "ABSENT"
"""State of a parent that has no record for this logical time: it did not run, or the record has
expired."""


def read_upstream(jobs: JobStore, runs: RunStore, job: Job, key: RunKey) -> dict[str, JsonValue]:
    """Return the runs of the parents of *job* with the logical time of *key*, by consistent reads:
    by parent, an object with `state`, `executionId` and `result`. For `all`, an object with `runs`:
    a list of such objects, each also with `scheduledAt`, the earliest first.

    `result` is null if the parent set none, or one that is not on its record, or if those before it
    have `MAX_UPSTREAM_BYTES`, or if it is nested too deeply, as an older version kept it: then
    `resultBytes` is its size, and the API returns it.

    Raises:
        UndecodableError: A record does not decode.
        UnavailableError: The store did not answer.
    """
    if job.definition.is_timed_join:
        return _of_timed(job, iter_parents(jobs, runs, job, key.scheduled_at, results=True))
    found: dict[str, JsonValue] = {}
    describe = _Describe()
    for edge in job.definition.after:
        parent = JobKey(key.job.tenant, edge.job)
        at = key.scheduled_at
        # A parent that was deleted and recreated can have two: the later one is decisive.
        first, last = first_run_id(at), first_run_id(at + MOMENT)
        records = [*runs.between(parent, first, last)]
        latest = max(records, key=lambda run: (run.finished_at or at, run.key.uid), default=None)
        found[edge.job] = describe(latest)
    return found


def _of_timed(job: Job, parents: Iterable[ParentRun]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    edges, describe = job.definition.after, _Describe()
    lists: dict[str, list[JsonValue]] = {e.job: [] for e in edges if e.which is Which.ALL}
    for each in parents:
        described = describe(each.run)
        if each.edge.which is not Which.ALL or each.at is None:
            found[each.edge.job] = described
            continue
        described["scheduledAt"] = isoformat(each.at)
        lists[each.edge.job].append(described)
    return found | {name: {"runs": runs} for name, runs in lists.items()}


def with_upstream(
    jobs: JobStore, runs: RunStore, job: Job, run: Run, supervisor: RunSupervisor
) -> Run:
    """Return the claimed *run* with the runs of its parents, for its target. Raises as
    `read_upstream`, after a few seconds in which the store does not answer.
    """
    if not job.definition.after:
        return run
    target = job.definition.target
    if target.kind is not TargetKind.SCRIPT and "upstream" not in target.model_dump_json():
        return run  # no placeholder names it
    read = supervisor.retry(lambda: read_upstream(jobs, runs, job, run.key), within=RETRIED_FOR)
    return replace(run, upstream=json.dumps(read, ensure_ascii=False))


class _Describe:
    """Describes runs, with results as long as these have at most `MAX_UPSTREAM_BYTES` together."""

    def __init__(self) -> None:
        self._left = MAX_UPSTREAM_BYTES

    def __call__(self, run: Run | None) -> dict[str, JsonValue]:
        if run is None:
            return {"state": ABSENT, "executionId": None, "result": None}
        described: dict[str, JsonValue] = {
            "state": run.state.value,
            "executionId": run.key.execution_id,
            "result": None,
        }
        if run.result is None:
            return described
        text = run.result.text
        if text is None or run.result.size > self._left or is_nested_too_deeply(text.encode()):
            return described | {"resultBytes": run.result.size}
        self._left -= run.result.size
        return described | {"result": json.loads(text)}
