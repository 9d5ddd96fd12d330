"""The commands of `nextfire jobs`."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from nextfire.domain.job import MisfirePolicy, Overlap
from nextfire_cli import render, session
from nextfire_cli.client import Document
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
Misfire = Annotated[
    MisfirePolicy | None,
    typer.Option(
        case_sensitive=False,
        help="Which runs that were missed, in an outage or a pause, are made up for. "
        "[dim]Default: RUN_LATEST[/]",
    ),
]
RelevancyWindow = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="A run that would start later than this after it was due is skipped: 30s, 10m. "
        "[dim]Default: none[/]",
    ),
]
OverlapChoice = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        case_sensitive=False,
        help="When one is due while an earlier one has not ended: run both, wait, skip it, or "
        "cancel the earlier one. [dim]Default: ALLOW[/]",
    ),
]
Count = Annotated[int, typer.Option(min=1, max=100, help="At most so many.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="May be repeated.")
]


def _document(
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
    misfire: Misfire = None,
    relevancy_window: RelevancyWindow = None,
    overlap: OverlapChoice = None,
    label: Labels = None,
    file: File = None,
) -> Document:
    """What the flags of a definition say."""
    return definition(
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
        misfire=misfire,
        relevancy_window=relevancy_window,
        overlap=overlap,
        labels=label or (),
    )


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """*command* with the flags of `_document` in place of its parameter `document`."""
    own = inspect.signature(command).parameters
    flags = inspect.signature(_document).parameters

    @wraps(command)
    def call(**given: Any) -> None:  # noqa: ANN401 - whatever the flags are
        document = _document(**{name: given.pop(name) for name in flags})
        command(document=document, **given)

    kept = [own[name] for name in own if name != "document"]
    call.__signature__ = inspect.Signature([*kept, *flags.values()])  # type: ignore[attr-defined]
    return call


@app.command()
@_with_flags
def create(context: typer.Context, document: Document) -> None:
    """Create a job. Once this answers, its next run is stored and will happen.

    [bold]Examples[/]
      nextfire jobs create --in 5s --handler hello
      nextfire jobs create --cron '0 3 * * 1-5' --timezone Europe/Paris --handler etl
      nextfire jobs create --cron '*/5 * * * *' --handler sync --overlap skip --misfire skip
      nextfire jobs create --at 2027-01-01T00:00:00Z --handler hello --payload @a.json
      nextfire jobs create -f job.yaml --name nightly
    """
    by_flags = context.params["file"] is None
    if by_flags and "type" not in document:
        raise typer.BadParameter("say when: give one of them", param_hint="--cron, --at, --in")
    if by_flags and context.params["handler"] is None:
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
@_with_flags
def update(context: typer.Context, job_id: JobId, document: Document) -> None:
    """Change a job. What no flag names stays as it is.

    [bold]Examples[/]
      nextfire jobs update job_a93f2 --cron '*/10 * * * *'
      nextfire jobs update job_a93f2 --overlap queue
      nextfire jobs update job_a93f2 -f changes.json
    """
    if not document:
        raise typer.BadParameter("name at least one thing to change, e.g. --cron or -f")
    caller = session.of(context)
    job = caller.client().update_job(job_id, document)
    caller.show(job, render.job(job))


@app.command()
def pause(
    context: typer.Context,
    job_id: JobId,
    reason: Annotated[
        str | None, typer.Option(help="Why, for whoever looks at it later. 256 characters.")
    ] = None,
) -> None:
    """Pause a job: nothing of it is due until it is resumed. What runs already goes on."""
    caller = session.of(context)
    job = caller.client().pause_job(job_id, reason)
    caller.show(job, render.job(job))


@app.command()
def resume(context: typer.Context, job_id: JobId) -> None:
    """Resume a paused job. Its misfire policy decides over what was due in the pause."""
    caller = session.of(context)
    job = caller.client().resume_job(job_id)
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
