"""The commands of `nextfire schedules`."""

from typing import Annotated

import typer

from nextfire.domain.job import SCHEDULE_FIELDS, WhenDocument
from nextfire.domain.schedule import Dst
from nextfire_cli import render, session
from nextfire_cli.definition import definition, whole_seconds
from nextfire_cli.jobs import At, Count, Cron, File, In, Timezone

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Every = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Again and again, so long after one another: 10s, 90m, 1h30m or PT90M.",
        rich_help_panel="When (one of them)",
    ),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        "--date",
        metavar="INSTANT",
        help="On dates; repeat it for each. As for --at; without a time it is midnight.",
        rich_help_panel="When (one of them)",
    ),
]
_FIELDS = frozenset(WhenDocument.model_fields[name].alias or name for name in SCHEDULE_FIELDS)


@app.command()
def preview(
    context: typer.Context,
    cron: Cron = None,
    at: At = None,
    in_: In = None,
    every: Every = None,
    date: Dates = None,
    timezone: Timezone = None,
    start_at: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="None before; --every counts from it.")
    ] = None,
    end_at: Annotated[str | None, typer.Option(metavar="INSTANT", help="None after.")] = None,
    dst: Annotated[
        Dst | None,
        typer.Option(help="How often a time fires that comes twice. [dim]Default: ONCE[/]"),
    ] = None,
    max_runs: Annotated[int | None, typer.Option(min=1, help="So many and no more.")] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Due up to so much later: 30s, 10m.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="As if created then. [dim]Default: now[/]"),
    ] = None,
    count: Count = 10,
    file: File = None,
) -> None:
    """Show when a schedule would fire, and what the clock's changes do to it. Stores nothing.

    [bold]Examples[/]
      nextfire schedules preview --cron '30 2 * * *' --timezone Europe/Berlin --after 2026-10-24
      nextfire schedules preview --every 90m --start-at 2027-01-01T06:00:00Z
      nextfire schedules preview -f job.yaml --count 20
    """
    whole = definition(
        file=file,
        cron=cron,
        at=at,
        in_=in_,
        every=every,
        dates=date or (),
        timezone=timezone,
    )
    document = {name: value for name, value in whole.items() if name in _FIELDS}
    more = {
        "startAt": start_at,
        "endAt": end_at,
        "dst": dst and dst.value,
        "maxRuns": max_runs,
        "jitterSec": None if jitter is None else whole_seconds(jitter, "--jitter"),
        "after": after,
        "count": count,
    }
    document |= {name: value for name, value in more.items() if value is not None}
    if "type" not in document:
        raise typer.BadParameter(
            "say when: give one of them", param_hint="--cron, --at, --in, --every, --date, --file"
        )
    caller = session.of(context)
    items = caller.client().preview(document)
    caller.show({"items": items}, render.upcoming(items))
