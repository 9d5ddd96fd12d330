"""Builders of test values with readable defaults. Noon is 2026-05-24T12:00:00Z, a Sunday."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import DispatchEntry, FireEntry, fire
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import to_ms
from nextfire.domain.job import Job
from nextfire.domain.key_text import SECRET_BYTES, write_key
from nextfire.domain.keys import ApiKey, Scope, mint
from nextfire.domain.message import RunMessage
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.run import Run, RunState

UID = "uid00001"
LEASE = timedelta(seconds=60)
MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}
"""Fields of a definition."""
RUN_ALL = {"policy": "RUN_ALL"}
RUN_LATEST = {"policy": "RUN_LATEST"}
SKIP = {"policy": "SKIP"}


def at(time: str) -> datetime:
    """The instant at *time* (``12:00``, ``12:00:00.5``) UTC on the tests' day."""
    return datetime.fromisoformat(f"2026-05-24T{time}").replace(tzinfo=UTC)


NOON = at("12:00")


def job_key(job_id: str = "report", tenant: str = "acme") -> JobKey:
    return JobKey(tenant, job_id)


def a_definition(schedule: str = "0 * * * *", type: str = "CRON", **fields: Any) -> JobDefinition:
    """An hourly definition by default. *fields* use the API's spelling."""
    document = {"target": {"handler": "report"}, "type": type, "schedule": schedule} | fields
    return JobDefinition.model_validate(document)


def a_job(
    job_id: str = "report",
    *,
    tenant: str = "acme",
    uid: str = UID,
    revision: int = 1,
    since: datetime = NOON,
    version: int | None = None,
    state: JobState = JobState.ACTIVE,
    definition: JobDefinition | None = None,
    **fields: Any,
) -> Job:
    """A job stored at *since*, hourly by default; *fields* are fields of the definition."""
    return Job(
        key=JobKey(tenant, job_id),
        uid=uid,
        revision=revision,
        schedule_version=to_ms(since) if version is None else version,
        effective_from=since,
        state=state,
        definition=definition or a_definition(**fields),
        created_at=since,
        updated_at=since,
    )


def key_text(tenant: str = "acme", letter: str = "A") -> str:
    """An API key of *tenant*. Its secret consists of *letter*."""
    return write_key(tenant, "3f9c0a77d1e2b456", 43 * letter)


def a_fire(job: Job, due_at: datetime, *, version: int | None = None) -> FireEntry:
    """The FIRE entry of *job* for the occurrence due at *due_at*."""
    return fire(job.key, job.uid, job.schedule_version if version is None else version, due_at)


def a_retry(
    run: RunKey, due_at: datetime, *, dispatch: int = 2, pool: str = "default"
) -> DispatchEntry:
    """The RETRY entry for a dispatch of *run*."""
    return DispatchEntry(run.job, run.uid, due_at, run.run_id, dispatch, pool)


def run_key(
    scheduled_at: datetime = NOON, *, job_id: str = "report", tenant: str = "acme", uid: str = UID
) -> RunKey:
    return RunKey(JobKey(tenant, job_id), run_id(uid, scheduled_at))


def a_message(
    run: RunKey | None = None, *, dispatch: int = 1, dispatched_at: datetime = NOON
) -> RunMessage:
    return RunMessage.of(run or run_key(), dispatch, dispatched_at)


def a_run(state: RunState = RunState.RUNNING, **fields: Any) -> Run:
    return Run(run_key(), state, **fields)


def a_key(
    key_id: str = "00000000000000aa",
    *scopes: Scope,
    tenant: str = "acme",
    name: str = "ci",
    since: datetime = NOON,
    life: timedelta = timedelta(days=90),
) -> ApiKey:
    """A key, by default with the scope WRITE. Its secret is all zero bytes."""
    return mint(
        tenant,
        key_id=key_id,
        secret=bytes(SECRET_BYTES),
        name=name,
        scopes=scopes or (Scope.WRITE,),
        now=since,
        life=life,
    ).key


def claim_run(
    runs: RunStore,
    message: RunMessage,
    now: datetime,
    *,
    lease_until: datetime | None = None,
    worker: str = "w",
    token: str = "t",  # noqa: S107 — no password
    pool: str = "default",
) -> Claim:
    """Let *worker* claim the run of *message*, for `LEASE` by default."""
    return runs.claim(
        message,
        token=token,
        worker=worker,
        pool=pool,
        job_revision=1,
        now=now,
        lease_until=lease_until or now + LEASE,
    )
