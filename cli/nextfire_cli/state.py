"""The commands `nextfire status` and `nextfire quotas`."""

# Imported on first use: the database takes a second.
# ruff: noqa: PLC0415

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from nextfire.client.errors import ApiError, UnreachableError
from nextfire.domain.activity import (
    RECENT,
    Activity,
    is_behind,
    not_running,
    problems,
    short_of_space,
)
from nextfire.domain.instants import MINUTE
from nextfire.domain.quotas import Quota
from nextfire.domain.run import RunState
from nextfire.domain.watchers import WatcherState
from nextfire_cli import render, session
from nextfire_cli.disk import write_time
from nextfire_cli.documents import Document, first
from nextfire_cli.errors import reported
from nextfire_cli.run_reindex import INCOMPLETE
from nextfire_cli.session import Session

_STATUS = {"endpoint", "aws_endpoint", "scripts_bucket", "pools", "processes"}
"""Fields of a running local stack that `status` shows."""
_MOST_FAILURES = 100
_TAKEOVER = "another one takes over within about a minute. If none does, read the watcher's log"
_RUNBOOK = "see watcher-silent in docs/operate/runbook.md"
_ONLY_ONE = (
    "it is the only one of the embedded stack: until it runs again, nothing is sent. If it died, it"
    " is started again within seconds; if it hangs, about a minute later. If it is not, stop"
    " `nextfire up` and start it again. Its log, .nextfire/logs/watcher.log, names the error if it"
    " cannot write"
)
ANSWERS_WITHIN = 5.0
"""Seconds within which the API of an embedded stack answers, unless something is wrong."""
SILENT = (
    "the API is busy, waits for the disk, or hangs. If it hangs, it is killed and started again"
    " about a minute later. If it is not, stop `nextfire up` and start it again. Its log is"
    " .nextfire/logs/api.log"
)


def status(context: typer.Context) -> None:
    """Check whether jobs run on time, by default on the local stack. Exit code 1: they do not.

    On the embedded stack: its processes, late and held due entries, up to 5 late jobs, queued and
    running runs, and the runs that died in the last 15 minutes. Of a deployed API: its health,
    running and waiting runs, those that ended in the last 15 minutes, a quota of runs that is used
    up, and its watchers with those that were lost; its queues have alarms and a dashboard. Of the
    stack on the emulator: that, and its processes with their deaths.

    [bold]Examples[/]
      nextfire status
      nextfire status --json
    """
    caller = session.of(context)
    info = caller.stack()
    embedded = info is not None and info.kind == "embedded"
    found, wrong = _health(caller, embedded=embedded)
    runs: dict[str, bool] = {}
    if info is None:
        found |= {"endpoint": caller.endpoint}
    else:
        found |= info.model_dump(mode="json", include=_STATUS) | {"parts": info.parts()}
        runs = {name: part["pid"] is not None for name, part in found["parts"].items()}
    if info and info.kind == "embedded":
        activity = _activity(info.key_file.parent, info.account_id)
        found["activity"] = _document(activity)
        write = write_time(info.key_file.parent) if is_behind(activity) else timedelta()
        wrong = wrong or _watcher_problems(caller)
        wrong = [*short_of_space(info.free_space()), *wrong, *problems(activity, runs, write)]
        found |= {"onTime": not wrong, "problems": wrong}
    else:
        found |= (_overview(caller) or _failures(caller)) | _used_up(caller)
        wrong = [*not_running(runs), *_in_words(lost_watchers(found))]
    caller.show(found, render.health(found))
    if begins_at := found.get("activity", {}).get("beginsAt"):
        caller.say(
            f"Running and waiting runs may be more: the overview lacks those that have not changed "
            f"since {begins_at}. {INCOMPLETE}"
        )
    if wrong:
        caller.say("\n".join(f"Not on time: {problem}." for problem in wrong))
        raise typer.Exit(1)


def _health(caller: Session, *, embedded: bool) -> tuple[Document, list[str]]:
    """The health of the API, and the problem if that of the embedded stack does not answer: the
    rest is shown without it.
    """
    try:
        return caller.client(ANSWERS_WITHIN if embedded else None).get_health().document, []
    except UnreachableError as error:
        if not embedded:
            raise
        return {"status": "no answer"}, [_unanswered(error)]


def _watcher_problems(caller: Session) -> list[str]:
    """Whether the watcher of the embedded stack runs; or that the API no longer answers."""
    try:
        return [*_in_words(lost_watchers(_overview(caller, ANSWERS_WITHIN), embedded=True))]
    except UnreachableError as error:
        return [_unanswered(error)]


def _unanswered(error: UnreachableError) -> str:
    return f"{error.problem.rstrip('.')}: {SILENT}"


def _activity(data: Path, tenant: str) -> Activity:
    from nextfire.adapters.files.stack_folder import DATABASE
    from nextfire.adapters.sqlite.activity import read_activity
    from nextfire.adapters.sqlite.database import Database

    now = datetime.now(UTC)  # noqa: TID251 — compared with what the stack wrote on this machine
    with reported():
        return read_activity(Database(data / DATABASE, as_is=True), tenant, now)


def _document(activity: Activity) -> Document:
    return {
        "lagSec": round(activity.lag.total_seconds(), 1),
        "late": activity.late,
        "lateJobs": [
            {"jobId": job.job_id, "lagSec": round(job.lag.total_seconds(), 1)}
            for job in activity.late_jobs
        ],
        "held": activity.held,
        "queued": activity.queued,
        "waitSec": round(activity.wait.total_seconds(), 1),
        "running": activity.running,
        "failed": activity.failed,
        "aheadSec": round(activity.ahead.total_seconds(), 1),
    }


def _overview(caller: Session, within: float | None = None) -> Document:
    """The numbers of running and recent runs; nothing if the API has no overview, or the key may
    not read it.
    """
    try:
        found = caller.client(within).get_overview(minutes=RECENT // MINUTE).document
    except ApiError:
        return {}
    minutes = found.get("minutes")
    if minutes is None:
        return {}  # not from an API of this version
    return {
        **{name: found[name] for name in ("watchers",) if name in found},
        "activity": {
            "running": found["running"],
            "waiting": found["pending"],
            "succeeded": sum(each["succeeded"] for each in minutes),
            "failed": sum(each["dead"] for each in minutes),
            "countedFrom": found["from"],
            **found["overview"],
        },
    }


def lost_watchers(found: Document, *, embedded: bool = False) -> Iterator[tuple[str, str, str]]:
    """The name and the state of each watcher in *found*, an overview, that does not run although
    it should; and what happens, or is to be done, next. *embedded*: of the embedded stack, whose
    watcher has no standby.
    """
    for each in found.get("watchers", []):
        name = f"the watcher of group {each['group']}"
        if each["state"] == WatcherState.LOST:
            may = "died, hangs or cannot write to the database" if embedded else "died or hangs"
            state = f"has not renewed its lease since {each['renewedAt']}, so it {may}"
            yield name, state, _ONLY_ONE if embedded else _TAKEOVER
        elif each["state"] == WatcherState.STOPPED:
            yield name, "has not run for minutes", _ONLY_ONE if embedded else _RUNBOOK


def _in_words(lost: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    return (f"{name} {state}: {then}" for name, state, then in lost)


def _failures(caller: Session) -> Document:
    """The number of recent dead runs; nothing if the key may not list runs."""
    since = datetime.now(UTC) - RECENT  # noqa: TID251 — the API has no relative times
    try:
        items, more = first(
            _MOST_FAILURES,
            lambda **page: caller.client().list_all_executions(
                state=RunState.DEAD, from_=since, **page
            ),
        )
    except ApiError:
        return {}
    return {"activity": {"failed": len(items), "more": more}}


def _used_up(caller: Session) -> Document:
    """The quota of runs per minute, if it is used up: runs that are due wait."""
    try:
        found = caller.client().get_quotas().document
    except ApiError:
        return {}
    name = Quota.RUNS_PER_MINUTE.value
    most, used = found.get("quotas", {}).get(name), found.get("used", {}).get(name, 0)
    if most is None or used < most:
        return {}
    return {"usedUp": {name: most, "minuteEndsAt": found["minuteEndsAt"]}}


def quotas(context: typer.Context) -> None:
    """Show your tenant's quotas and their usage.

    [bold]Example[/]
      nextfire quotas
    """
    caller = session.of(context)
    found = caller.client().get_quotas().document
    caller.show(found, render.quotas(found))
