"""The commands of `nextfire schedules`."""

import json
from typing import Annotated

import typer
from pydantic import ValidationError

from nextfire.domain.definition import JobDefinition
from nextfire.domain.short_form import LONG_NAMES
from nextfire_cli import render, session
from nextfire_cli.definition import SCHEDULE_FIELDS, SCHEDULE_FLAGS
from nextfire_cli.documents import Document
from nextfire_cli.flags import WHEN
from nextfire_cli.jobs import Count
from nextfire_cli.options import takes

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.command()
@takes(SCHEDULE_FLAGS)
def preview(
    context: typer.Context,
    document: Document,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANT", help="Preview as if the job were created then. [dim]Default: now[/]"
        ),
    ] = None,
    count: Count = 10,
) -> None:
    """Show when a schedule would fire and the effect of clock changes. Stores nothing.

    [bold]Examples[/]
      nextfire schedules preview --cron '30 2 * * *' --timezone Europe/Berlin --after 2026-10-24
      nextfire schedules preview --every 90m --start-at 2027-01-01T06:00:00Z
      nextfire schedules preview -f job.yaml --count 20
    """
    document = _long(document)
    _check_other_fields(document)
    asked = {name: value for name, value in document.items() if name in SCHEDULE_FIELDS}
    if "type" not in asked:
        raise typer.BadParameter(
            "no schedule. Use one of them, for example --cron '0 3 * * *'",
            param_hint=f"{WHEN}, --file",
        )
    asked |= {"count": count} if after is None else {"count": count, "after": after}
    caller = session.of(context)
    caller.flags["after"] = "--after"
    items = caller.client().preview_schedule(asked).document["items"]
    caller.show({"items": items}, render.upcoming(items))


def _long(document: Document) -> Document:
    """*document* in the long form, as far as a preview needs it."""
    others = {"type", *LONG_NAMES.values()}
    if not document.keys() & LONG_NAMES.keys() or document.keys() & others:
        return document
    return {"type": "CRON"} | {LONG_NAMES.get(n, n): value for n, value in document.items()}


def _check_other_fields(document: Document) -> None:
    """Check the fields that are not part of the schedule. The API checks the schedule, with better
    messages.

    Raises:
        typer.BadParameter: A field is unknown, or its value is invalid.
    """
    try:
        JobDefinition.model_validate_json(
            json.dumps({name: value for name, value in document.items() if name != "jobId"}),
            by_alias=True,
            by_name=False,
        )
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            field = ".".join(map(str, fault["loc"]))
            if (
                fault["type"] != "missing"
                and fault["loc"]
                and fault["loc"][0] not in SCHEDULE_FIELDS
            ):
                problem = fault["msg"].removeprefix("Value error, ")
                if fault["type"] == "extra_forbidden":
                    problem = "a job has no such field; check its spelling"
                raise typer.BadParameter(f"{field}: {problem}", param_hint="--file") from error
