"""Options that several commands have."""

from typing import Annotated

import typer

from nextfire_cli.completing_ids import execution_ids

STACK = "Nextfire"
"""Name of the stack in the CDK app."""

ExecutionId = Annotated[
    str, typer.Argument(metavar="EXECUTION_ID", show_default=False, autocompletion=execution_ids)
]
ExecutionIds = Annotated[
    list[str],
    typer.Argument(metavar="EXECUTION_ID", show_default=False, autocompletion=execution_ids),
]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of results.")]
Reason = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Reason, stored with the change; at most 256 characters."),
]
PAST = "INSTANT|HH:MM|SPAN"
"""Metavar of an option that takes a time in the past; `durations.moment` reads it."""
PAST_FORMS = "an instant, the last HH:MM (UTC), or a time ago: 30m, 12h, 2d"
Stack = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"The CloudFormation stack. [dim]Default: the local stack, else {STACK}[/]",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
OfPool = Annotated[str | None, typer.Option(help="Of one pool.")]
OfJobs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Only jobs with this label. Repeat the option: only jobs with all of them.",
    ),
]
