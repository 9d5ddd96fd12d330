"""Access by label: the stores of the API hide jobs and runs that the caller may not access.

A key that is restricted by labels accesses only jobs that have all of them, and their runs. Other
jobs do not exist for it: they are not listed or found, and their ids cannot be taken over. Runs of
an earlier job with the same id are hidden too, because the labels of that job are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar

from functions.api.identity import Identity
from functions.api.request_record import RecordingJobStore, RecordingRunStore
from nextfire.dataclass import dataclass, replace
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import ConflictError, ForbiddenError, UnavailableError, UndecodableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.keys import Scope
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Page
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.restriction import UNRESTRICTED, RestrictedError, Restriction
from nextfire.domain.run import Run
from nextfire.domain.script import code_variables


@dataclass(frozen=True, slots=True)
class CallerAccess:
    """Access of a caller. `may_upload`: the caller may choose the code that jobs run."""

    tenant: str
    restriction: Restriction = UNRESTRICTED
    may_upload: bool = True

    @property
    def limited(self) -> bool:
        return bool(self.restriction.labels)

    def has(self, job: Job) -> bool:
        return self.restriction.admits_labels(job.definition.labels)

    def check_labels(self, definition: JobDefinition) -> None:
        """Check that the caller may store a job with this *definition*.

        Raises:
            RestrictedError: The job lacks one of the required labels.
        """
        if not self.restriction.admits_labels(definition.labels):
            labels = ", ".join(f"{n}={v}" for n, v in sorted(self.restriction.labels.items()))
            raise RestrictedError(
                f"Your key is restricted to jobs labelled {labels}. Give the job these labels, and "
                "keep them when you change it."
            )


T = TypeVar("T")

_reach: ContextVar[CallerAccess | None] = ContextVar("reach", default=None)
"""None: no caller is known, in a thread without the context of a request too; no access."""


@contextmanager
def without_access() -> Iterator[None]:
    """In this context, no caller is known until `set_access` sets one; then, none again."""
    token = _reach.set(None)
    try:
        yield
    finally:
        _reach.reset(token)


def set_access(caller: Identity) -> None:
    """Set the access of the current request to that of *caller*."""
    _reach.set(CallerAccess(caller.tenant, caller.restriction, Scope.UPLOAD in caller.scopes))


def _now() -> CallerAccess:
    reach = _reach.get()
    if reach is None:
        raise PermissionError("a store was asked before it was known who calls")
    return reach


def sees_all_jobs() -> bool:
    """Whether the caller may access all jobs of its tenant."""
    return not _now().limited


def check_code(definition: JobDefinition, was: JobDefinition | None) -> None:
    """Reject variables with which a caller without the scope `upload` could choose the code that a
    script runs. Variables of the stored definition *was* may stay.

    Raises:
        ForbiddenError: *definition* adds or changes such a variable.
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


class AccessiblePools(Mapping[str, T]):
    """What is known of the pools that the tenant of the caller may use. *closed*: the tenants of
    each pool that is closed; for others, it does not exist.
    """

    def __init__(self, pools: Mapping[str, T], closed: Mapping[str, Collection[str]]) -> None:
        self._pools = pools
        self._closed = closed

    def __getitem__(self, name: str) -> T:
        caller, tenants = _now(), self._closed.get(name)
        if tenants is not None and caller.tenant not in tenants:
            raise KeyError(name)
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, self._pools)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class AccessibleJobs(RecordingJobStore):
    """The jobs that the caller may access."""

    def get(self, key: JobKey) -> Job | None:
        reach = _now()
        try:
            job = super().get(key)
        except UndecodableError:
            if not reach.limited:
                raise
            return None  # its labels are unknown
        return job if job is not None and reach.has(job) else None

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        reach, found = _now(), self._store.get_many(keys, consistent=consistent)
        if not reach.limited:
            return found
        return {
            key: job
            for key, job in found.items()
            if isinstance(job, UnavailableError) or (isinstance(job, Job) and reach.has(job))
        }

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        reach, page = _now(), self._store.list(tenant, cursor=cursor, limit=limit)
        if not reach.limited:
            return page
        return Page([job for job in page.items if reach.has(job)], page.cursor, [])

    def create(self, job: Job, *given: Any, **named: Any) -> Job | None:  # noqa: ANN401 — as given
        reach = _now()
        reach.check_labels(job.definition)
        _check_free(reach, named.get("former"))
        existing = super().create(job, *given, **named)
        _check_free(reach, existing)
        return existing

    def update(self, job: Job, *given: Any, **named: Any) -> bool:  # noqa: ANN401 — as given
        _now().check_labels(job.definition)
        return super().update(job, *given, **named)


def _check_free(reach: CallerAccess, job: Job | None) -> None:
    if job is not None and not reach.has(job):
        raise ConflictError(
            f"The id {job.key.job_id!r} belongs to a job that your key does not reach",
            "Choose another id.",
        )


class AccessibleRuns(RecordingRunStore):
    """The runs of the jobs that the caller may access."""

    def __init__(self, runs: RunStore, jobs: JobStore) -> None:
        super().__init__(runs)
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
            return self._store.list(job, cursor=cursor, limit=limit, first=first, before=before)
        uid = self._uid(job)
        if uid is None:
            return Page([], None, [])
        page = self._store.list(job, cursor=cursor, limit=limit, first=first, before=before)
        unreadable = [each for each in page.unreadable if each.identity.endswith(f"-{uid}")]
        return Page([run for run in page.items if run.key.uid == uid], page.cursor, unreadable)

    def between(self, job: JobKey, *given: Any, **named: Any) -> Iterator[Run]:  # noqa: ANN401 — as given
        if not _now().limited:
            return self._store.between(job, *given, **named)
        uid = self._uid(job)
        if uid is None:
            return iter(())
        return (run for run in self._store.between(job, *given, **named) if run.key.uid == uid)

    def list_dead(self, tenant: str, **named: Any) -> Page[Run]:  # noqa: ANN401 — as given
        page = self._store.list_dead(tenant, **named)
        if not _now().limited:
            return page
        reached = self._reachable([run.key for run in page.items])
        items = [run for run in page.items if run.key in reached]
        return replace(page, items=items, unreadable=[])

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:
        if _now().limited:
            keys = self._reachable(keys)
        return super().find(keys, consistent=consistent)

    def _reachable(self, keys: Sequence[RunKey]) -> Sequence[RunKey]:
        """Those of *keys* that the caller may access, by one read of their jobs."""
        jobs = self._reached.get_many({key.job for key in keys}, consistent=True)
        return [key for key in keys if _is_of(key, jobs.get(key.job))]

    def _uid(self, key: JobKey) -> str | None:
        """The uid of the current job with this id; None if the caller may not access it."""
        job = self._reached.get(key)
        return None if job is None else job.uid


def _is_of(run: RunKey, job: Job | Exception | None) -> bool:
    """Whether *run* is one of *job*, as read: not of an earlier job with the same id."""
    if isinstance(job, UnavailableError):
        raise job
    return isinstance(job, Job) and job.uid == run.uid
