"""Reads what exists of pipelines, and applies a plan, call by call.

Each call can be repeated: creations have an idempotency key that their content determines, updates
and removals name the version of the job that the plan was made for. After an interruption, the plan
of the next application contains the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import ValidationError

from nextfire.client.api import Client
from nextfire.client.errors import (
    ClientError,
    Conflict,
    NotFound,
    PreconditionFailed,
    UnreachableError,
)
from nextfire.client.pipelines.document import OWNER, Pipeline, owned, split, unreadable
from nextfire.client.pipelines.graph import parents
from nextfire.client.pipelines.plan import (
    Action,
    Declared,
    Existing,
    JobChange,
    Plan,
    declare,
    gains_parents,
    new_schedules,
    plan,
    schedule_faults,
)
from nextfire.domain.occurrences import JobState

_READERS = 8
_MAYBE_DONE = (Conflict, NotFound, PreconditionFailed, UnreachableError)
"""Errors that also follow a request that a lost response hid."""


class ApplyError(ClientError):
    """A change of a plan failed. `change`: the change. `done`: the number of changes before it.
    The error of the call is the cause.
    """

    def __init__(self, change: JobChange, error: ClientError, done: int, total: int) -> None:
        self.change = change
        self.done = done
        progress = f"{done} of {total} changes are done. Apply again: it continues with the rest."
        super().__init__(
            f"Job {change.job_id} ({change.action}): {error.problem}",
            "\n".join(filter(None, [error.remedy, progress])),
        )


def make_plan(client: Client, pipelines: Iterable[Pipeline], *, adopt: bool = False) -> Plan:
    """Compare *pipelines* with the jobs that exist. Changes nothing; `apply_plan` makes the
    changes. *adopt*: take over jobs that belong to another pipeline or to none.

    Raises:
        PipelineError: The pipelines cannot be applied. Its `errors` name all reasons.
        ClientError: A call failed.
    """
    declared = declare(pipelines)
    existing = _existing(client, declared)
    checked = new_schedules(declared, existing)
    faults = [*schedule_faults(checked, client.get_health().time)] if checked else []
    return plan(declared, existing, adopt=adopt, faults=faults)


def apply_plan(
    client: Client, changes: Plan, *, report: Callable[[JobChange], None] = lambda _: None
) -> None:
    """Make *changes*, in order. *report* is called after each of them.

    Raises:
        ApplyError: A change failed. The ones before it are done.
    """
    wanted = [each for each in changes.changes if each.action is not Action.UNCHANGED]
    for done, change in enumerate(wanted):
        try:
            _apply(client, change)
        except ClientError as error:
            raise ApplyError(change, error, done, len(wanted)) from error
        report(change)


def _apply(client: Client, change: JobChange) -> None:
    etag = None if change.was is None else change.was.etag
    try:
        if change.action is Action.CREATE:
            document = {"jobId": change.job_id, **change.request()}
            client.create_job(document, idempotency_key=change.key())
        elif change.action is Action.UPDATE:
            client.put_job(change.job_id, change.request(), if_match=etag)
        else:
            client.delete_job(change.job_id, if_match=etag)
    except _MAYBE_DONE:
        if not _is_done(change, _read(client, change.job_id)):
            raise


def _is_done(change: JobChange, now: Existing | None) -> bool:
    """Whether the job is *now* as *change* makes it."""
    if change.definition is None or now is None or now.definition is None:
        return change.definition is None and (now is None or now.definition is None)
    return owned(now.definition, now.owner) == owned(change.definition, change.owner)


def _existing(client: Client, declared: Declared) -> Mapping[str, Existing]:
    """The jobs that the plan for *declared* needs."""
    listed = {
        str(job.document["jobId"])
        for name in sorted(declared.names)
        for job in client.jobs(label=f"{OWNER}:{name}")
    }
    # A listing may lag by a second, and has no versions.
    found = _read_all(client, {*declared.jobs, *declared.outside(), *listed})
    if gains_parents(declared, found):
        found |= _ancestors(client, declared, found)
    removed = listed - declared.jobs.keys()
    if any(job_id in removed and job.definition is not None for job_id, job in found.items()):
        found = {**_waiting(client.jobs()), **found}
    return found


def _ancestors(
    client: Client, declared: Declared, known: Mapping[str, Existing]
) -> dict[str, Existing]:
    """The jobs above those that are *declared*, without those that are *known*."""
    asked, level, found = {*declared.jobs, *known}, {*declared.outside()}, dict[str, Existing]()
    while level:
        jobs = [(found.get(each) or known.get(each)) for each in level]
        living = [job.definition for job in jobs if job is not None and job.definition is not None]
        level = {parent for each in living for parent in parents(each)} - asked
        asked |= level
        found |= _read_all(client, level)
    return found


def _waiting(jobs: Iterable[Any]) -> Mapping[str, Existing]:
    """The jobs of a listing that have parents: they may wait for one that is removed."""
    waiting = [job.document for job in jobs if job.document.get("after")]
    return {str(each["jobId"]): _of(each, "") for each in waiting}


def _read_all(client: Client, job_ids: Iterable[str]) -> dict[str, Existing]:
    """Those of the jobs that exist, deleted ones too, by id."""
    wanted = sorted(job_ids)
    with ThreadPoolExecutor(_READERS) as executor:
        read = zip(wanted, executor.map(lambda each: _read(client, each), wanted), strict=True)
        return {job_id: job for job_id, job in read if job is not None}


def _read(client: Client, job_id: str) -> Existing | None:
    try:
        job = client.get_job(job_id)
    except NotFound:
        return None
    return _of(job.document, job.etag or "")


def _of(document: Mapping[str, Any], etag: str) -> Existing:
    if document.get("state") == JobState.CANCELLED:
        return Existing(etag, None)
    try:
        owner, definition = split(document)
    except ValidationError as error:
        raise unreadable(document) from error
    return Existing(etag, definition, owner)
