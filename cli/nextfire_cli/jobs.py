"""The commands of `nextfire jobs`."""

from typing import Annotated

import typer

from nextfire_cli import render, session
from nextfire_cli.definition import definition

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", show_default=False)]
File = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A job document in JSON or YAML, [bold]-[/] for standard input. "
        "Flags are put over what it says.",
    ),
]
Name = Annotated[str | None, typer.Option(help="What people call the job.")]
Cron = Annotated[
    str | None,
    typer.Option(
        metavar="EXPR",
        help="Run again and again: minute, hour, day of month, month, day of week.",
        rich_help_panel="When (one of them)",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="Run once: 2026-05-24T10:00:00Z; without an offset it is in --timezone.",
        rich_help_panel="When (one of them)",
    ),
]
In = Annotated[
    str | None,
    typer.Option(
        "--in",
        metavar="DURATION",
        help="Run once, so long from now: 5s, 90m, 1h30m, 2d or PT5S.",
        rich_help_panel="When (one of them)",
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="IANA name, e.g. Europe/Berlin. [dim]Default: UTC[/]"),
]
Handler = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The script to run, by its name in the pool."),
]
Pool = Annotated[str | None, typer.Option(help="Whose executors run it. [dim]Default: default[/]")]
Payload = Annotated[
    str | None,
    typer.Option(metavar="JSON|@FILE", help="What the script is given; [bold]@-[/] reads stdin."),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Longest time of one attempt: seconds, or 90s, 10m, PT10M. [dim]Default: 300[/]",
    ),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(min=1, max=100, help="How often a run is tried. [dim]Default: 3[/]"),
]
Count = Annotated[int, typer.Option(min=1, max=100, help="At most so many.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="May be repeated.")
]


@app.command()
def create(
    context: typer.Context,
    cron: Cron = None,
    at: At = None,
    in_: In = None,
    timezone: Timezone = None,
    handler: Handler = None,
    pool: Pool = None,
    payload: Payload = None,
    name: Name = None,
    timeout: Timeout = None,
    max_attempts: MaxAttempts = None,
    label: Labels = None,
    file: File = None,
) -> None:
    """Create a job. Once this answers, its next run is stored and will happen.

    [bold]Examples[/]
      nextfire jobs create --in 5s --handler hello
      nextfire jobs create --cron '0 3 * * 1-5' --timezone Europe/Paris --handler etl
      nextfire jobs create --at 2027-01-01T00:00:00Z --handler hello --payload @a.json
      nextfire jobs create -f job.yaml --name nightly
    """
    document = definition(
        file=file,
        name=name,
        cron=cron,
        at=at,
        in_=in_,
        timezone=timezone,
        handler=handler,
        pool=pool,
        payload=payload,
        timeout=timeout,
        max_attempts=max_attempts,
        labels=label or (),
    )
    if file is None and "type" not in document:
        raise typer.BadParameter("say when: give one of them", param_hint="--cron, --at, --in")
    if file is None and handler is None:
        raise typer.BadParameter("say what to run", param_hint="--handler")
    caller = session.of(context)
    job = caller.client().create_job(document)
    caller.show(job, render.job(job))


@app.command("list")
def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
) -> None:
    """List jobs."""
    caller = session.of(context)
    items, more = caller.client().jobs(limit=limit)
    caller.show({"items": items}, render.jobs(items))
    if more:
        caller.say(f"There are more than {limit}: raise --limit.")


@app.command()
def get(context: typer.Context, job_id: JobId) -> None:
    """Show one job: its state, its next run, its definition."""
    caller = session.of(context)
    job = caller.client().job(job_id)
    caller.show(job, render.job(job))


@app.command()
def upcoming(context: typer.Context, job_id: JobId, count: Count = 10) -> None:
    """Show when a job fires next, and what the clock's changes do to it."""
    caller = session.of(context)
    items = caller.client().upcoming(job_id, count=count)
    caller.show({"items": items}, render.upcoming(items))


@app.command()
def update(
    context: typer.Context,
    job_id: JobId,
    cron: Cron = None,
    at: At = None,
    in_: In = None,
    timezone: Timezone = None,
    handler: Handler = None,
    pool: Pool = None,
    payload: Payload = None,
    name: Name = None,
    timeout: Timeout = None,
    max_attempts: MaxAttempts = None,
    label: Labels = None,
    file: File = None,
) -> None:
    """Change a job. What no flag names stays as it is.

    [bold]Examples[/]
      nextfire jobs update job_a93f2 --cron '*/10 * * * *'
      nextfire jobs update job_a93f2 -f changes.json
    """
    changes = definition(
        file=file,
        name=name,
        cron=cron,
        at=at,
        in_=in_,
        timezone=timezone,
        handler=handler,
        pool=pool,
        payload=payload,
        timeout=timeout,
        max_attempts=max_attempts,
        labels=label or (),
    )
    if not changes:
        raise typer.BadParameter("name at least one thing to change, e.g. --cron or -f")
    caller = session.of(context)
    job = caller.client().update_job(job_id, changes)
    caller.show(job, render.job(job))


@app.command()
def delete(
    context: typer.Context,
    job_id: JobId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Cancel a job: it never runs again. Its runs so far can still be looked up."""
    caller = session.of(context)
    if not yes and caller.as_json:
        raise typer.BadParameter("with --json nobody is asked: give --yes", param_hint="--yes")
    if not yes:
        typer.confirm(f"Cancel job {job_id} for good?", abort=True, err=True)
    job = caller.client().cancel_job(job_id)
    caller.show(job, render.job(job))
