"""What the caller of the present request may reach. The stores of the API hide all else.

A key that is restricted by labels reaches the jobs that have all of them, and their runs. Other
jobs do not exist for it: not listed, not found, and their ids cannot be taken over. A run
of an earlier job of the same id, whose labels are no longer known, is hidden too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from functions.api.identity import Identity
from functions.api.seen import SeenJobs, SeenRuns
from nextfire.domain.errors import ConflictError, ForbiddenError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job, JobDefinition
from nextfire.domain.keys import Scope
from nextfire.domain.ports import JobStore, Page
from nextfire.domain.restriction import UNRESTRICTED, RestrictedError, Restriction
from nextfire.domain.run import Run
from nextfire.domain.script import code_variables


@dataclass(frozen=True, slots=True)
class Reach:
    """What a caller may reach. `may_upload`: it may choose the code that jobs run."""

    restriction: Restriction = UNRESTRICTED
    may_upload: bool = True

    @property
    def limited(self) -> bool:
        return bool(self.restriction.labels)

    def has(self, job: Job) -> bool:
        return self.restriction.admits_labels(job.definition.labels)

    def check_labels(self, definition: JobDefinition) -> None:
        """Let a job of this *definition* be stored.

        Raises:
            RestrictedError: It lacks one of the labels.
        """
        if not self.restriction.admits_labels(definition.labels):
            labels = ", ".join(f"{n}={v}" for n, v in sorted(self.restriction.labels.items()))
            raise RestrictedError(
                f"Your key is restricted to jobs labelled {labels}. Give the job these labels, and "
                "keep them when you change it."
            )


_ALL = Reach()
_reach: ContextVar[Reach | None] = ContextVar("reach", default=_ALL)


@contextmanager
def nothing_reached() -> Iterator[None]:
    """Within, the stores refuse to work until `reach_as` says for whom."""
    token = _reach.set(None)
    try:
        yield
    finally:
        _reach.reset(token)


def reach_as(caller: Identity) -> None:
    """From now on this request reaches what *caller* may."""
    _reach.set(Reach(caller.restriction, Scope.UPLOAD in caller.scopes))


def _now() -> Reach:
    reach = _reach.get()
    if reach is None:
        raise PermissionError("a store was asked before it was known who calls")
    return reach


def check_code(definition: JobDefinition, was: JobDefinition | None) -> None:
    """Refuse variables by which a caller without the scope `upload` would choose the code that a
    script runs. What a job *was* stored with may stay.

    Raises:
        ForbiddenError: *definition* has one that is new, or has another value.
    """
    if _now().may_upload:
        return
    old = {} if was is None else code_variables(was.target)
    new = {n for n, value in code_variables(definition.target).items() if old.get(n) != value}
    if new:
        raise ForbiddenError(
            f"target.env: {', '.join(sorted(new))} can change which code a script runs, so it "
            "needs the scope `upload` too. Leave it out, or use a key with the scope `write`."
        )


class ReachedJobs(SeenJobs):
    """The jobs that the caller reaches."""

    def get(self, key: JobKey) -> Job | None:
        reach = _now()
        try:
            job = super().get(key)
        except UndecodableError:
            if not reach.limited:
                raise
            return None  # its labels are not known
        return job if job is not None and reach.has(job) else None

    def get_many(self, keys: Collection[JobKey]) -> Mapping[JobKey, Job | Exception]:
        reach, found = _now(), super().get_many(keys)
        if not reach.limited:
            return found
        return {k: job for k, job in found.items() if isinstance(job, Job) and reach.has(job)}

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        reach, page = _now(), super().list(tenant, cursor=cursor, limit=limit)
        if not reach.limited:
            return page
        return Page([job for job in page.items if reach.has(job)], page.cursor, [])

    def create(self, job: Job, *given: Any, **named: Any) -> Job | None:  # noqa: ANN401 — as given
        reach = _now()
        reach.check_labels(job.definition)
        _check_free(reach, named.get("former"))
        there = super().create(job, *given, **named)
        _check_free(reach, there)
        return there

    def update(self, job: Job, *given: Any, **named: Any) -> bool:  # noqa: ANN401 — as given
        _now().check_labels(job.definition)
        return super().update(job, *given, **named)


def _check_free(reach: Reach, there: Job | None) -> None:
    if there is not None and not reach.has(there):
        raise ConflictError(
            f"The id {there.key.job_id!r} belongs to a job that your key does not reach",
            "Choose another id.",
        )


class ReachedRuns(SeenRuns):
    """The runs of the jobs that the caller reaches."""

    def __init__(self, *given: Any, jobs: JobStore, **named: Any) -> None:  # noqa: ANN401 — as given
        super().__init__(*given, **named)
        self._reached = jobs

    def get(self, key: RunKey) -> Run | None:
        if _now().limited and self._uid(key.job) != key.uid:
            return None
        return super().get(key)

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        if not _now().limited:
            return super().list(job, cursor=cursor, limit=limit, first=first, before=before)
        uid = self._uid(job)
        if uid is None:
            return Page([], None, [])
        page = super().list(job, cursor=cursor, limit=limit, first=first, before=before)
        unreadable = [each for each in page.unreadable if each.identity.endswith(f"-{uid}")]
        return Page([run for run in page.items if run.key.uid == uid], page.cursor, unreadable)

    def between(self, job: JobKey, *given: Any, **named: Any) -> Iterator[Run]:  # noqa: ANN401 — as given
        if not _now().limited:
            return super().between(job, *given, **named)
        uid = self._uid(job)
        if uid is None:
            return iter(())
        return (run for run in super().between(job, *given, **named) if run.key.uid == uid)

    def list_dead(self, tenant: str, **named: Any) -> Page[Run]:  # noqa: ANN401 — as given
        page = super().list_dead(tenant, **named)
        if not _now().limited:
            return page
        uids = {job: self._uid(job) for job in {run.key.job for run in page.items}}
        items: Sequence[Run] = [run for run in page.items if uids[run.key.job] == run.key.uid]
        return replace(page, items=items, unreadable=[])

    def _uid(self, key: JobKey) -> str | None:
        """What tells the present job of this id from former ones; None: it is not reached."""
        job = self._reached.get(key)
        return None if job is None else job.uid
