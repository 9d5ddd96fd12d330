"""The commands of `nextfire endpoints`."""

from functools import partial
from typing import Annotated

import typer

from nextfire.domain.endpoints import parse_destination
from nextfire.domain.errors import InvalidInputError
from nextfire_cli import render, session
from nextfire_cli.documents import first
from nextfire_cli.runs import Reason

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def _destination(text: str) -> str:
    try:
        return parse_destination(text)
    except InvalidInputError as error:
        raise typer.BadParameter(f"{text!r} is {error.problem}. {error.remedy}") from error


Host = Annotated[
    str,
    typer.Argument(
        metavar="HOST[:PORT]",
        help="The destination. [dim]Default port: 443[/]",
        show_default=False,
        callback=_destination,
    ),
]
Pool = Annotated[str, typer.Option(help="The pool whose jobs call it.")]


@app.command("list")
def list_(
    context: typer.Context,
    pool: Annotated[str | None, typer.Option(help="Of one pool.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of results.")] = 100,
) -> None:
    """List the endpoints that failed, or were paused or changed in the last 30 days."""
    caller = session.of(context)
    items, more = first(limit, partial(caller.client().list_endpoints, pool=pool))
    caller.show({"items": items, "more": more}, render.endpoints(items))
    if more:
        caller.say(f"There are more than {limit}: raise --limit.")


@app.command()
def pause(
    context: typer.Context, host: Host, pool: Pool = "default", reason: Reason = None
) -> None:
    """Pause an endpoint: all runs that call it wait until it is resumed.

    [bold]Examples[/]
      nextfire endpoints pause api.example.com --pool calls --reason 'maintenance until noon'
      nextfire endpoints pause hooks.example.com:8443 --pool calls
    """
    caller = session.of(context)
    endpoint = caller.client().pause_endpoint(pool, host, reason=reason).document
    caller.show(endpoint, render.endpoint(endpoint))


@app.command()
def resume(context: typer.Context, host: Host, pool: Pool = "default") -> None:
    """Resume an endpoint that is PAUSED, or OPEN after failures. Runs that wait start when their
    wait ends, within 15 minutes.

    [bold]Examples[/]
      nextfire endpoints resume api.example.com --pool calls
    """
    caller = session.of(context)
    endpoint = caller.client().resume_endpoint(pool, host).document
    caller.show(endpoint, render.endpoint(endpoint))
