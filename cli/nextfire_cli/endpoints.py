"""The commands of `nextfire endpoints`."""

from functools import partial
from typing import Annotated

import typer

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.call_limit import MAX_PARALLEL, MAX_PER_MINUTE
from nextfire.domain.endpoints import parse_destination
from nextfire.domain.errors import InvalidInputError
from nextfire_cli import render, session
from nextfire_cli.documents import Document, first
from nextfire_cli.endpoint_test import EndpointTest, attempt_of, job_of
from nextfire_cli.flags import CALL_FLAGS
from nextfire_cli.options import takes
from nextfire_cli.shared_options import Limit, OfPool, Reason

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
    pool: OfPool = None,
    limit: Limit = 100,
) -> None:
    """List the endpoints that failed or changed in the last 30 days, are paused or have a limit.

    [bold]Example[/]
      nextfire endpoints list
    """
    caller = session.of(context)
    items, more = first(limit, partial(caller.client().list_endpoints, pool=pool))
    caller.show({"items": items, "more": more}, render.endpoints(items))
    caller.say_if_more(limit, more=more)


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
    wait ends, within 20 minutes, or 50 after an outage or a pause of hours.

    [bold]Examples[/]
      nextfire endpoints resume api.example.com --pool calls
    """
    caller = session.of(context)
    endpoint = caller.client().resume_endpoint(pool, host).document
    caller.show(endpoint, render.endpoint(endpoint))


@app.command()
def limit(
    context: typer.Context,
    host: Host,
    pool: Pool = "default",
    per_minute: Annotated[
        int | None, typer.Option(min=1, max=MAX_PER_MINUTE, help="Calls per minute.")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, max=MAX_PARALLEL, help="Calls at the same time.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove both limits.")] = False,
) -> None:
    """Limit the calls of an endpoint, by all jobs of the pool together. A limit that is not given
    is removed. Runs that must wait use up no attempts.

    [bold]Examples[/]
      nextfire endpoints limit api.example.com --pool calls --per-minute 600 --parallel 10
      nextfire endpoints limit api.example.com --pool calls --none
    """
    if none == (per_minute is not None or parallel is not None):
        raise typer.BadParameter("give --per-minute, --parallel or both; or --none alone.")
    caller = session.of(context)
    endpoint = (
        caller.client()
        .limit_endpoint(pool, host, per_minute=per_minute, parallel=parallel)
        .document
    )
    caller.show(endpoint, render.endpoint(endpoint))


@app.command("test")
@takes(CALL_FLAGS)
def call_once(
    context: typer.Context,
    document: Document,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", show_default=False, help="URL to call. [dim]Default: that of --file[/]"
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the job.")] = False,
) -> None:
    """Call a URL once, as a job would, and show request and response.

    This sends a real request, by a new job that is deleted afterwards.
    Values of secrets are shown as ***. The connection adds Host, Accept-Encoding,
    Connection and Content-Length. Exit code 1: the call did not succeed.

    [bold]Examples[/]
      nextfire endpoints test https://api.example.com/hooks --pool calls --payload '{"id": 7}'
      nextfire endpoints test https://api.example.com/hooks --pool calls --sign webhook-secret
      nextfire endpoints test -f job.yaml
    """
    from nextfire_cli.local.processes import interrupts_raised  # noqa: PLC0415 — only here

    job = job_of(url, document)
    caller = session.of(context)
    if url is not None:
        caller.flags["target.http.url"] = "URL"
    with interrupts_raised():  # SIGTERM deletes the job too
        run = EndpointTest(caller.client(), job, caller.say, keep=keep).play()
    caller.show(run, render.tested(run))
    attempt = attempt_of(run)
    if attempt is None or attempt["outcome"] != AttemptOutcome.SUCCEEDED:
        raise typer.Exit(1)
