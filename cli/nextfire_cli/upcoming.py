"""The command `nextfire jobs upcoming`: the next occurrences of a job, or of all jobs."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from nextfire import Client
from nextfire.client.errors import NotFound
from nextfire.domain.occurrences import JobState
from nextfire_cli import render, session
from nextfire_cli.delayed_runs import may_be_delayed
from nextfire_cli.documents import Document
from nextfire_cli.durations import ahead, present
from nextfire_cli.job_control import OneJob
from nextfire_cli.job_files import listed_labels
from nextfire_cli.session import Session
from nextfire_cli.shared_options import OfJobs

MOST = 100
"""Occurrences that the API returns for a job, and so at most of all jobs."""
PAGES = 50
"""Pages of the listing of jobs that are read."""
_PAGE = 100
"""Jobs of a page."""
_SIDE_BY_SIDE = 5
"""Concurrent requests."""
_FEW = 10
_NARROW = ": give an earlier --until"
_FEWER = ", or leave jobs out by --label"


def upcoming(
    context: typer.Context,
    job_id: OneJob = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANT|HH:MM|SPAN",
            help="Only occurrences up to this: an instant, the next HH:MM (UTC), or a time from "
            "now: 30m, 12h, 2d.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help=f"Maximum number of results. [dim]Default: {_FEW}, with --until {MOST}[/]",
        ),
    ] = None,
    label: OfJobs = None,
) -> None:
    """Show what runs next: the next occurrences of a job and the effect of clock changes, or
    without JOB_ID those of all jobs in order of time.

    Not shown are jobs that have no instant: PAUSED and MANUAL ones, and those that run after their
    parents. Of all jobs, up to 5,000 are looked at; the output says if there are more.

    [bold]Examples[/]
      nextfire jobs upcoming
      nextfire jobs upcoming --until 08:00
      nextfire jobs upcoming --until 12h --count 30 --label team=etl
      nextfire jobs upcoming job_a93f2 --count 3 --json
    """
    now = present()
    end = None if until is None else ahead(until, "--until", now)
    wanted = count or (_FEW if end is None else MOST)
    labels = listed_labels(label)
    if labels and job_id is not None:
        raise typer.BadParameter("not with JOB_ID: it selects jobs", param_hint="--label")
    caller = session.of(context)
    client = caller.client()
    if job_id is not None:
        found = client.list_upcoming(job_id, count=wanted).document["items"]
        items = [each for each in found if _is_before(each["at"], end)]
        more = len(items) == wanted
        caller.show({"items": items}, render.upcoming(items))
        if not found and not caller.for_programs:
            caller.say(render.why_none(client.get_job(job_id).document))
    else:
        items, more = _of_all(caller, client, end, wanted, labels)
        caller.show({"items": items}, render.upcoming_of_all(items))
    if more and end is not None:
        narrow = _NARROW + ("" if job_id else _FEWER)
        do = ": raise --count" if wanted < MOST else narrow
        caller.say(f"There may be more than {wanted} until then{do}.")


def _of_all(
    caller: Session, client: Client, end: datetime | None, wanted: int, labels: list[str] | None
) -> tuple[list[Document], bool]:
    """The first *wanted* occurrences of all jobs until *end*, and whether there may be more.

    A job whose next occurrence is not among the first *wanted* of all jobs has none that is, unless
    jitter delays the run of an earlier one.
    """
    now = present()
    active = _active(caller, client, labels)
    delayed = [job for job in active if may_be_delayed(job, now)]
    if delayed[MOST:]:
        caller.say(
            f"Incomplete: runs of over {MOST} jobs may be delayed by jitterSec; of {MOST} of them,"
            " the delayed runs are shown. Show one with nextfire jobs upcoming JOB_ID."
        )
    delayed = delayed[:MOST]
    asked = {job["jobId"] for job in delayed}
    jobs = sorted(
        (
            job
            for job in active
            if job["jobId"] not in asked and job.get("nextFireAt")
            if _is_before(job["nextFireAt"], end)
        ),
        key=lambda job: (datetime.fromisoformat(job["nextFireAt"]), job["jobId"]),
    )
    items: list[Document] = []
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as executor:
        for found in executor.map(partial(_of_one, client, wanted), delayed + jobs[:wanted]):
            items += [each for each in found if _is_before(each["at"], end)]
    items.sort(key=lambda each: (datetime.fromisoformat(each["at"]), each["jobId"]))
    return items[:wanted], len(items) >= wanted or len(jobs) > wanted


def _active(caller: Session, client: Client, labels: list[str] | None) -> list[Document]:
    """The ACTIVE jobs with all *labels*."""
    found: list[Document] = []
    cursor = None
    for _ in range(PAGES):
        page = client.list_jobs(state=JobState.ACTIVE, label=labels, limit=_PAGE, cursor=cursor)
        found += [job.document for job in page.items]
        cursor = page.cursor
        if not cursor:
            return found
    caller.say(
        f"Incomplete: only the first {PAGES * _PAGE:,} jobs by id were looked at. Show one with"
        " nextfire jobs upcoming JOB_ID."
    )
    return found


def _of_one(client: Client, wanted: int, job: Document) -> list[Document]:
    """The next occurrences of *job*, each with its id, name and target."""
    try:
        found = client.list_upcoming(job["jobId"], count=wanted).document["items"]
    except NotFound:
        return []  # deleted since it was listed
    what = {name: job[name] for name in ("jobId", "name", "target") if name in job}
    return [what | each for each in found]


def _is_before(at: str, end: datetime | None) -> bool:
    return end is None or datetime.fromisoformat(at) <= end
