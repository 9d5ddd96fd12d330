"""The commands of `nextfire jobs`."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from nextfire.domain.backfill import MOST, Order
from nextfire.domain.occurrences import JobState
from nextfire.responses.many_jobs import ManyResponse
from nextfire_cli import render, session
from nextfire_cli.documents import Document, first
from nextfire_cli.flag_kinds import one_of
from nextfire_cli.flags import WHEN
from nextfire_cli.job_files import read_jobs, read_labels, read_payload
from nextfire_cli.options import takes
from nextfire_cli.run_redrive import Reason
from nextfire_cli.session import Session
from nextfire_cli.waiting import ended, exit_by_outcome

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", show_default=False)]
OneJob = Annotated[
    str | None, typer.Argument(metavar="[JOB_ID]", show_default=False, help="One job.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        help=(
            "All jobs with this label. Repeat the option: with all of them. Exit code 1: some "
            "failed."
        ),
    ),
]
AT_ONCE = 25
"""Number of jobs in a request, which has at most 256 KiB."""
Count = Annotated[int, typer.Option(min=1, max=100, help="Maximum number of results.")]


@app.command()
@takes()
def create(
    context: typer.Context,
    document: Document,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="1 to 64 letters, digits, hyphens, underscores. [dim]Default: generated[/]",
        ),
    ] = None,
) -> None:
    """Create a job. When this returns, the job and its next run are stored.

    [bold]Examples[/]
      nextfire jobs create --in 5s --handler hello
      nextfire jobs create --cron '0 3 * * 1-5' --timezone Europe/Paris --handler etl
      nextfire jobs create --cron '*/5 * * * *' --handler sync --overlap SKIP --misfire SKIP
      nextfire jobs create --at 2027-01-01T00:00:00Z --handler hello --payload @a.json
      nextfire jobs create --every 90m --start-at 2027-01-01 --handler hello --id every-90m
      nextfire jobs create --date 2027-03-01 --date 2027-06-01 --handler quarterly
      nextfire jobs create -f job.yaml --name nightly
    """
    if id_ is not None:
        document["jobId"] = id_
    by_flags = context.params["file"] is None
    if by_flags and "type" not in document:
        raise typer.BadParameter(
            "say when: give one of them. A job without a schedule is a document (--file) of type"
            " MANUAL.",
            param_hint=WHEN,
        )
    if by_flags and not document.get("target", {}).keys() - {"pool", "env"}:
        raise typer.BadParameter("say what to run", param_hint="--handler, --http or --aws")
    caller = session.of(context)
    job = caller.client().create_job(document).document
    caller.show(job, render.job(job))


@app.command("create-many")
def create_many(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A list of job documents in JSON or YAML, [bold]-[/] for standard input.",
        ),
    ],
) -> None:
    """Create many jobs. Invalid ones do not affect the rest. Exit code 1: some were not created.

    [bold]Examples[/]
      nextfire jobs create-many jobs.yaml
    """
    caller = session.of(context)
    client = caller.client()
    jobs = read_jobs(file)
    results: list[Document] = []
    for at in range(0, len(jobs), AT_ONCE):
        made = client.create_jobs(jobs[at : at + AT_ONCE])
        results += made.document["results"]
        if len(jobs) > AT_ONCE:
            caller.say(f"{len(results)} of {len(jobs)}")
    caller.show({"results": results}, render.created(results))
    if any("problem" in result for result in results):
        raise typer.Exit(1)


@app.command("list")
def list_(
    context: typer.Context,
    state: Annotated[
        JobState | None,
        typer.Option(parser=one_of(JobState), metavar="|".join(JobState), help="Of one state."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only jobs with this label. Repeat the option: only jobs with all of them.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs whose name starts with this.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of results.")] = 50,
) -> None:
    """List jobs by id, including cancelled ones.

    [bold]Examples[/]
      nextfire jobs list --state ACTIVE --label team=etl --label env=prod
      nextfire jobs list --name nightly
    """
    labels = read_labels(label or ())
    if any(":" in key or "," in key + value for key, value in labels.items()):
        problem = "a listing takes no key with a colon, and no comma"
        raise typer.BadParameter(problem, param_hint="--label")
    caller = session.of(context)
    pairs = [":".join(pair) for pair in labels.items()]
    ask = partial(caller.client().list_jobs, state=state, label=pairs or None, name=name)
    items, more = first(limit, ask)
    caller.show({"items": items}, render.jobs(items))
    if more:
        caller.say(f"There are more than {limit}: raise --limit.")


@app.command()
def get(context: typer.Context, job_id: JobId) -> None:
    """Show a job: its state, its next run and its definition."""
    caller = session.of(context)
    job = caller.client().get_job(job_id).document
    caller.show(job, render.job(job))


@app.command()
def upcoming(context: typer.Context, job_id: JobId, count: Count = 10) -> None:
    """Show the next occurrences of a job and the effect of clock changes.

    [bold]Examples[/]
      nextfire jobs upcoming job_a93f2
      nextfire jobs upcoming job_a93f2 --count 3 --json
    """
    caller = session.of(context)
    items = caller.client().list_upcoming(job_id, count=count).document["items"]
    caller.show({"items": items}, render.upcoming(items))


@app.command()
@takes()
def update(context: typer.Context, job_id: JobId, document: Document) -> None:
    """Change a job. Fields without a flag keep their values.

    [bold]Examples[/]
      nextfire jobs update job_a93f2 --cron '*/10 * * * *'
      nextfire jobs update job_a93f2 --overlap QUEUE
      nextfire jobs update job_a93f2 --relevancy-window none
      nextfire jobs update job_a93f2 -f changes.json
    """
    if not document:
        raise typer.BadParameter("name at least one thing to change, e.g. --cron or -f")
    caller = session.of(context)
    job = caller.client().change_job(job_id, document).document
    caller.show(job, render.job(job))


@app.command()
def pause(
    context: typer.Context,
    job_id: OneJob = None,
    label: Labels = None,
    reason: Reason = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="When to resume it automatically; ISO 8601, UTC."),
    ] = None,
) -> None:
    """Pause a job, or all jobs with given labels: nothing due later is dispatched until it is
    resumed.

    Runs in progress continue.

    [bold]Examples[/]
      nextfire jobs pause job_a93f2
      nextfire jobs pause job_a93f2 --reason 'the ledger is closed'
      nextfire jobs pause job_a93f2 --until 2027-01-02T06:00:00Z
      nextfire jobs pause --label team=etl --label env=prod
    """
    caller = session.of(context)
    if _is_one(job_id, label):
        job = caller.client().pause_job(str(job_id), reason=reason, until=until).document
        if job.get("pauseReason") != reason:
            caller.say("It was paused already; since when and why are unchanged.")
        caller.show(job, render.job(job))
        return
    _change(caller, partial(caller.client().pause_jobs, reason=reason, until=until), label)


@app.command()
def drain(
    context: typer.Context,
    job_id: JobId,
    reason: Reason = None,
) -> None:
    """Pause a job and track when its runs in progress and earlier due runs have ended.

    Until then [bold]nextfire jobs get[/] shows that it is draining.

    [bold]Examples[/]
      nextfire jobs drain job_a93f2 --reason 'the database moves'
      nextfire jobs get job_a93f2
    """
    caller = session.of(context)
    job = caller.client().drain_job(job_id, reason=reason).document
    caller.show(job, render.job(job))


@app.command()
def resume(context: typer.Context, job_id: OneJob = None, label: Labels = None) -> None:
    """Resume a paused job, or all jobs with given labels. The misfire policy decides which missed
    occurrences run.

    [bold]Examples[/]
      nextfire jobs resume job_a93f2
      nextfire jobs resume --label team=etl
    """
    caller = session.of(context)
    if _is_one(job_id, label):
        job = caller.client().resume_job(str(job_id)).document
        caller.show(job, render.job(job))
        return
    _change(caller, caller.client().resume_jobs, label)


@app.command()
def run(
    context: typer.Context,
    job_id: JobId,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Replaces the job's payload: JSON, or @FILE."),
    ] = None,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended.")] = False,
) -> None:
    """Run a job now, in addition to its schedule, which does not change. With --wait, exit code 1:
    the run did not succeed.

    [bold]Examples[/]
      nextfire jobs run job_a93f2
      nextfire jobs run job_a93f2 --wait
      nextfire jobs run job_a93f2 --payload '{"day": "2026-05-23"}' --reason 'the report was wrong'
    """
    override: Document = {} if payload is None else {"payload": read_payload(payload)}
    caller = session.of(context)
    client = caller.client()
    execution = client.run_job(job_id, reason=reason, **override).document
    execution = ended(client, execution) if wait else execution
    caller.show(execution, render.execution(execution))
    if wait:
        exit_by_outcome(execution)


@app.command("skip-next")
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


@app.command()
def backfill(
    context: typer.Context,
    job_id: JobId,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="INSTANT", help="Start of the range, inclusive; ISO 8601, UTC."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="End of the range, exclusive; ISO 8601, UTC."),
    ] = None,
    max_: Annotated[
        int | None,
        typer.Option(
            "--max",
            min=1,
            max=MOST,
            help="Reject the backfill if there are more. [dim]Default: 1000[/]",
        ),
    ] = None,
    newest_first: Annotated[
        bool, typer.Option("--newest-first", help="Run the newest occurrences first.")
    ] = False,
    reason: Reason = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the current backfill: start no more runs.")
    ] = False,
) -> None:
    """Run past occurrences of a job that have no record, ten at a time.

    [bold]Examples[/]
      nextfire jobs backfill job_a93f2 --from 2026-05-01T00:00:00Z --to 2026-05-03T00:00:00Z
      nextfire jobs backfill job_a93f2 --stop
    """
    client = session.of(context).client()
    if stop:
        if any(each is not None for each in (from_, to, max_, reason)) or newest_first:
            raise typer.BadParameter("it takes nothing else", param_hint="--stop")
        job = client.stop_backfill(job_id).document
        session.of(context).show(job, render.job(job))
        return
    if from_ is None or to is None:
        raise typer.BadParameter("say from when to when", param_hint="--from and --to")
    order = Order.NEWEST_FIRST if newest_first else None
    asked = client.begin_backfill(
        job_id, from_=from_, to=to, max=max_, order=order, reason=reason
    ).document
    session.of(context).show(asked, render.backfill(asked))


@app.command()
def delete(
    context: typer.Context,
    job_id: JobId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Cancel a job: it never runs again. Its past runs remain visible."""
    caller = session.of(context)
    if not yes and caller.for_programs:
        raise typer.BadParameter(
            f"--output {caller.output} does not ask for confirmation: add --yes", param_hint="--yes"
        )
    if not yes:
        typer.confirm(f"Cancel job {job_id} for good?", abort=True, err=True)
    job = caller.client().delete_job(job_id).document
    caller.show(job, render.job(job))


@app.command()
def cancel(
    context: typer.Context,
    label: Labels = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Cancel all jobs with given labels: they never run again. For one job: nextfire jobs delete.

    [bold]Examples[/]
      nextfire jobs cancel --label team=etl --label env=test
    """
    caller = session.of(context)
    if not label:
        raise typer.BadParameter("name the jobs by at least one label", param_hint="--label")
    labels = " ".join(f"{key}={value}" for key, value in read_labels(label).items())
    if not yes and caller.for_programs:
        raise typer.BadParameter(
            f"--output {caller.output} does not ask for confirmation: add --yes", param_hint="--yes"
        )
    if not yes:
        typer.confirm(f"Cancel all jobs labelled {labels} for good?", abort=True, err=True)
    _change(caller, caller.client().cancel_jobs, label)


def _is_one(job_id: str | None, label: list[str] | None) -> bool:
    if (job_id is None) == (not label):
        raise typer.BadParameter("give a JOB_ID, or --label for many jobs", param_hint="JOB_ID")
    return job_id is not None


def _change(caller: Session, act: Callable[..., ManyResponse], label: list[str] | None) -> None:
    """Do *act* to all jobs with these labels, call by call. May be interrupted, and repeated."""
    labels = read_labels(label or ())
    done: Document = {"matched": 0, "changed": 0, "failed": []}
    token = None
    while True:
        answer = act(labels, progress_token=token)
        for name in done:
            done[name] += answer.document[name]
        token = answer.progress_token
        if token is None:
            break
        caller.say(f"{done['matched']} met, {done['changed']} changed so far")
    caller.show(done, render.changed(done))
    if done["failed"]:
        raise typer.Exit(1)
