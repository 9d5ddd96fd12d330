"""The commands of `nextfire jobs` that pause, resume, skip and cancel."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from nextfire.domain.instants import isoformat
from nextfire.domain.occurrences import JobState
from nextfire.responses.many_jobs import ManyResponse
from nextfire_cli import render, session, waiting
from nextfire_cli.completing_ids import job_ids
from nextfire_cli.confirmation import confirm
from nextfire_cli.documents import Document
from nextfire_cli.durations import ahead, present
from nextfire_cli.errors import CliError
from nextfire_cli.job_files import read_labels
from nextfire_cli.session import Session
from nextfire_cli.shared_options import Reason, Yes

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", show_default=False, autocompletion=job_ids)]
OneJob = Annotated[
    str | None,
    typer.Argument(metavar="JOB_ID", show_default=False, help="One job.", autocompletion=job_ids),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        help=(
            "All jobs with this label. Repeat the option: with all of them. Exit code 1: some "
            "failed; 0, with a message, if none matches."
        ),
    ),
]

All = Annotated[
    bool,
    typer.Option("--all", help="All jobs; asks first. Exit code 1: some failed."),
]
YesToAll = Annotated[
    bool, typer.Option("--yes", "-y", help="Skip the confirmation, which --all asks for.")
]


def pause(
    context: typer.Context,
    job_id: OneJob = None,
    label: Labels = None,
    every: All = False,
    reason: Reason = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANT|HH:MM|SPAN",
            help="When to resume it automatically: an instant, the next HH:MM (UTC), or a time "
            "from now: 30m, 12h, 2d.",
        ),
    ] = None,
    yes: YesToAll = False,
) -> None:
    """Pause a job, all jobs with given labels, or all jobs: nothing due later is dispatched until
    it is resumed.

    Runs in progress continue.

    [bold]Examples[/]
      nextfire jobs pause job_a93f2
      nextfire jobs pause job_a93f2 --reason 'the ledger is closed'
      nextfire jobs pause job_a93f2 --until 2027-01-02T06:00:00Z
      nextfire jobs pause job_a93f2 --until 2h
      nextfire jobs pause --label team=etl --label env=prod
      nextfire jobs pause --all --reason 'the database moves'
    """
    caller = session.of(context)
    if until is not None:
        until = isoformat(ahead(until, "--until", present()))
    if _is_one(job_id, label, every=every):
        job = caller.client().pause_job(str(job_id), reason=reason, until=until).document
        if job.get("pauseReason") != reason:
            caller.say("It was paused already; since when and why are unchanged.")
        caller.show(job, render.job(job))
        return
    if every:
        confirm(caller, "Pause all jobs?", yes=yes)
    act = partial(caller.client().pause_jobs, reason=reason, until=until)
    _change(caller, act, label, every=every)


def drain(
    context: typer.Context,
    job_id: JobId,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until these runs have ended.")] = False,
) -> None:
    """Pause a job and track when its runs in progress and earlier due runs have ended.

    Until then [bold]nextfire jobs get[/] shows that it is draining. With --wait, exit code 1: it
    was resumed meanwhile.

    [bold]Examples[/]
      nextfire jobs drain job_a93f2 --reason 'the database moves'
      nextfire jobs drain job_a93f2 --wait
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=wait)
    job = client.drain_job(job_id, reason=reason).document
    job = waiting.drained(client, job) if wait else job
    caller.show(job, render.job(job))
    if wait and job["state"] != JobState.PAUSED:
        raise CliError(
            f"The drain has ended early: the job is {job['state']}, so new runs may start.",
            f"Pause it again: nextfire jobs drain {job_id} --wait",
        )


def resume(
    context: typer.Context,
    job_id: OneJob = None,
    label: Labels = None,
    every: All = False,
    yes: YesToAll = False,
) -> None:
    """Resume a paused job, all jobs with given labels, or all jobs. The misfire policy decides
    which missed occurrences run.

    With --all, jobs that were paused one by one are resumed too.

    [bold]Examples[/]
      nextfire jobs resume job_a93f2
      nextfire jobs resume --label team=etl
      nextfire jobs resume --all
    """
    caller = session.of(context)
    if _is_one(job_id, label, every=every):
        job = caller.client().resume_job(str(job_id)).document
        caller.show(job, render.job(job))
        return
    if every:
        question = "Resume all paused jobs, whenever and for whatever reason they were paused?"
        confirm(caller, question, yes=yes)
    _change(caller, caller.client().resume_jobs, label, every=every)


def skip_next(
    context: typer.Context,
    job_id: JobId,
    reason: Reason = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the skip.")] = False,
) -> None:
    """Skip a job's next occurrence. Later occurrences are not affected.

    [bold]Examples[/]
      nextfire jobs skip-next job_a93f2 --reason 'the ledger is closed'
      nextfire jobs skip-next job_a93f2 --undo
    """
    if undo and reason is not None:
        raise typer.BadParameter("--undo takes no reason", param_hint="--reason")
    client = session.of(context).client()
    job = client.undo_skip_next(job_id) if undo else client.skip_next(job_id, reason=reason)
    session.of(context).show(job.document, render.job(job.document))


def delete(
    context: typer.Context,
    job_id: OneJob = None,
    label: Labels = None,
    yes: Yes = False,
) -> None:
    """Cancel a job, or all jobs with given labels: they never run again. Past runs remain visible.

    [bold]Examples[/]
      nextfire jobs delete job_a93f2
      nextfire jobs delete --label team=etl --label env=test --yes
    """
    caller = session.of(context)
    if _is_one(job_id, label):
        confirm(caller, f"Cancel job {job_id} for good?", yes=yes)
        job = caller.client().delete_job(str(job_id)).document
        caller.show(job, render.job(job))
        return
    confirm(caller, f"Cancel all jobs labelled {_listed(label)} for good?", yes=yes)
    _change(caller, caller.client().cancel_jobs, label, of="job")


def _is_one(job_id: str | None, label: list[str] | None, *, every: bool | None = None) -> bool:
    """Whether the command is for one job. *every*: of its option --all; None: it has none."""
    given = [job_id is not None, bool(label), bool(every)].count(True)
    if given > 1:
        which = "JOB_ID and --label" if every is None else "JOB_ID, --label and --all"
        raise typer.BadParameter(f"give only one of {which}", param_hint="JOB_ID")
    if not given:
        several = "--label for many jobs" + (" or --all" if every is not None else "")
        raise typer.BadParameter(f"give a JOB_ID, or {several}", param_hint="JOB_ID")
    return job_id is not None


def _listed(label: list[str] | None) -> str:
    """The labels, as they were given."""
    return " ".join(f"{key}={value}" for key, value in read_labels(label or ()).items())


def _change(
    caller: Session,
    act: Callable[..., ManyResponse],
    label: list[str] | None,
    *,
    every: bool = False,
    of: str = "ACTIVE or PAUSED job",
) -> None:
    """Do *act* to the jobs with these labels, or to *every* job, call by call. May be interrupted,
    and repeated, so it also succeeds if no job matches. *of*: the kind of jobs it acts on.
    """
    selected: Document = {"all_jobs": True} if every else {"labels": read_labels(label or ())}
    done: Document = {"matched": 0, "changed": 0, "failed": []}
    token = None
    while True:
        answer = act(**selected, progress_token=token)
        for name in done:
            done[name] += answer.document[name]
        token = answer.progress_token
        if token is None:
            break
        caller.say(f"{done['matched']} met, {done['changed']} changed so far")
    caller.show(done, render.changed(done, every=every))
    if done["failed"]:
        raise typer.Exit(1)
    if not done["matched"]:
        caller.say(f"No {of} found{'' if every else f' with {_listed(label)}'}.")
