"""The `nextfire` command."""

# Imported on first use: boto3 and the local stack take a second.
# ruff: noqa: PLC0415

import contextlib
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from nextfire.client import Auth
from nextfire.client.folder import FOLDER
from nextfire.client.version import version
from nextfire_cli import (
    audit,
    backup,
    dlq,
    endpoints,
    jobs,
    keys,
    pipelines,
    render,
    runs,
    schedules,
    scripts,
    session,
    what_if,
    worker,
)
from nextfire_cli.errors import EXIT_CODES, CliError, exit_code
from nextfire_cli.extras import missing_package
from nextfire_cli.session import Session

if TYPE_CHECKING:
    from nextfire_cli.local.embedded import EmbeddedStack
    from nextfire_cli.local.stack import LocalStack

_GLOBAL = {"--json": 0, "--endpoint": 1, "--profile": 1, "--region": 1, "--auth": 1}
"""The global options and their number of values."""
_STATUS = {"endpoint", "aws_endpoint", "scripts_bucket", "pools", "processes"}
"""Fields of a running local stack that `status` shows."""


_UNUSABLE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


class _Group(TyperGroup):
    """Accepts global options anywhere, and prints errors without tracebacks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        return super().parse_args(ctx, _globals_first(args))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        try:
            return super().invoke(ctx)
        except CliError as error:
            session.of(ctx).fail(error)
            raise typer.Exit(exit_code(error)) from error
        except ModuleNotFoundError as error:
            if (lacks := missing_package(error)) is None:
                raise
            session.of(ctx).fail(lacks)
            raise typer.Exit(1) from error
        except _UNUSABLE as error:
            # A value given by a user must not cause a traceback.
            what = CliError(
                f"Something given here cannot be used: {type(error).__name__}: {error}.",
                "Check the flags and files against --help. If they are right, this is a defect.",
            )
            session.of(ctx).fail(what)
            raise typer.Exit(1) from error


def _globals_first(args: list[str]) -> list[str]:
    head: list[str] = []
    tail: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            tail += [arg, *rest]
        elif (name := arg.partition("=")[0]) in _GLOBAL:
            values = 0 if name != arg else _GLOBAL[name]
            head += [arg, *(value for _, value in zip(range(values), rest, strict=False))]
        else:
            tail.append(arg)
    return head + tail


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Global options can be anywhere in a command. Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    + ".",
)
app.add_typer(jobs.app, name="jobs", help="Create, show, change and cancel jobs.")
app.add_typer(runs.app, name="runs", help="List, show, cancel and redrive runs.")
app.add_typer(schedules.app, name="schedules", help="Preview schedules.")
app.add_typer(what_if.app, name="plan", help="Look ahead: what jobs would do.")
app.add_typer(dlq.app, name="dlq", help="List, redrive and purge a pool's dead letters.")
app.add_typer(scripts.app, name="scripts", help="Upload the scripts that jobs run.")
app.add_typer(
    endpoints.app, name="endpoints", help="List, pause and resume destinations of HTTP callbacks."
)
app.add_typer(audit.app, name="audit", help="List and verify the audit chain.")
app.add_typer(keys.app, name="keys", help="Create, list, rotate and revoke API keys.")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 — typer calls it
    if wanted:
        typer.echo(f"nextfire {version()}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 — handled by its callback
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar="NEXTFIRE_ENDPOINT",
            metavar="URL",
            help="The API. [dim]Default: the local stack of this folder[/]",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON document on stdout, everything else on stderr."
        ),
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="The AWS profile to use, unless the stack is local.")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="The API's AWS region. [dim]Default: the one in its URL, else AWS_REGION[/]"
        ),
    ] = None,
    auth: Annotated[
        Auth | None,
        typer.Option(
            envvar="NEXTFIRE_AUTH",
            help="Authenticate with an API key (NEXTFIRE_API_KEY), an AWS signature (iam), or a "
            "token (NEXTFIRE_TOKEN). [dim]Default: the first available of keys, jwt, iam[/]",
        ),
    ] = None,
) -> None:
    """Schedules jobs, to the second, on AWS or on this machine.

    [bold]Begin with[/]
      nextfire demo                                 see it work on this machine
      nextfire up                                   start the local stack
      nextfire scripts push examples/hello.py       upload a script
      nextfire jobs create --in 5s --handler hello  run it in five seconds
      nextfire runs list JOB_ID --follow            watch it run
    """
    # What is there already stands in for the network (tests).
    context.obj = Session(endpoint, as_json, profile, region, transport=context.obj, auth=auth)


@app.command()
def up(
    context: typer.Context,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of each pool.")] = 1,
    emulator: Annotated[
        bool, typer.Option(help="Deploy the AWS app into an emulator. Needs a checkout.")
    ] = False,
) -> None:
    """Start the local stack in the foreground. Ctrl-C stops it and keeps its jobs, runs and
    scripts.

    By default the embedded stack: the API, the watcher and the workers, on SQLite.
    """
    from nextfire_cli.local.processes import InterruptedBySignal
    from nextfire_cli.local.state import LocalStackError

    caller = session.of(context)
    stack = _local_stack(emulator=emulator)
    try:
        with stack.running(caller.say, workers=workers) as info:
            caller.show({"endpoint": info.endpoint}, Text(f"nextfire is up: {info.endpoint}"))
            caller.say("Ctrl-C stops it. In another terminal: nextfire jobs create --help")
            with contextlib.suppress(KeyboardInterrupt, InterruptedBySignal):
                while stack.status() is not None:
                    time.sleep(1)
                raise _ended(stack.casualties(), emulator=emulator)
    except LocalStackError as error:
        raise CliError(str(error)) from error
    caller.say("Stopped. Jobs, runs and scripts are kept; `nextfire down` removes them.")


def _local_stack(*, emulator: bool) -> "EmbeddedStack | LocalStack":
    if emulator:
        from nextfire_cli.local.stack import LocalStack

        return LocalStack(session.project())
    from nextfire_cli.local.embedded import EmbeddedStack

    return EmbeddedStack(session.local_root() / FOLDER, sources=session.sources())


def _ended(casualties: list[str], *, emulator: bool) -> CliError:
    """Why the stack has ended."""
    if not casualties:
        return CliError("The stack has ended: `nextfire down` came.")
    return CliError(
        "\n".join(casualties),
        "The rest of the stack was stopped, and its data are kept. Start it again with"
        " `nextfire up`." + (session.LOST_IN_EMULATOR if emulator else ""),
    )


def _in_terminal() -> bool:
    return sys.stdin.isatty()


@app.command()
def down(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Stop the local stack and remove its jobs, runs, scripts and logs.

    Asks for confirmation in a terminal.
    """
    from nextfire_cli.local.embedded import EmbeddedStack
    from nextfire_cli.local.stack import LocalStack
    from nextfire_cli.local.state import LocalStackError

    root = session.local_root()
    if not yes and _in_terminal():
        what = f"Delete all jobs, runs, scripts and logs of the local stack of {root}?"
        if not typer.confirm(what, err=True):
            raise CliError(
                "Nothing was stopped, nothing deleted.", "Ctrl-C in `nextfire up` stops it."
            )
    try:
        if (root / FOLDER).exists():
            EmbeddedStack(root / FOLDER).remove()
            LocalStack(root).remove()
    except LocalStackError as error:
        raise CliError(str(error)) from error
    session.of(context).say(f"The local stack of {root} is stopped and removed.")


app.command("worker")(worker.worker)
app.command("apply")(pipelines.apply)
app.command("export")(pipelines.export)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)


@app.command()
def status(context: typer.Context) -> None:
    """Check the health of the endpoint, by default the local stack. Exit code 1: unhealthy."""
    caller = session.of(context)
    health = caller.client().get_health().document
    info = caller.stack()
    stack: dict[str, Any] = {"endpoint": caller.endpoint}
    if info:
        stack = info.model_dump(mode="json", include=_STATUS)
    if info and info.kind == "embedded":
        stack["parts"] = info.parts()
    caller.show(health | stack, render.health(health | stack))


@app.command()
def quotas(context: typer.Context) -> None:
    """Show your tenant's quotas and their usage."""
    caller = session.of(context)
    found = caller.client().get_quotas().document
    caller.show(found, render.quotas(found))


@app.command()
def demo(
    context: typer.Context,
    emulator: Annotated[
        bool, typer.Option(help="Deploy the AWS app into an emulator. Needs a checkout.")
    ] = False,
) -> None:
    """Run one job of each type on the local stack and show when each was due and when it ran.

    Starts the stack if it is not running, and stops it at the end. Takes up to two minutes.
    """
    from nextfire_cli import demo as play
    from nextfire_cli.local.processes import interrupts_raised
    from nextfire_cli.local.state import LocalStackError

    caller = replace(session.of(context), endpoint=None, quiet=True)
    root = session.local_root()
    display = play.Display(caller.err)

    def report(text: str) -> None:
        display.tell("local stack", text)

    try:
        with interrupts_raised(), display.shown(), contextlib.ExitStack() as ending:
            if caller.stack() is None:
                ending.callback(report, "stopped")
                ending.enter_context(_local_stack(emulator=emulator).running(report))
                ending.callback(report, "stopping")
            display.tell("local stack", f"up at {caller.api_endpoint()}", done=True)
            caller.client().push_script(play.HANDLER, play.script())
            display.tell("script", f"uploaded examples/{play.HANDLER}.py", done=True)
            done = play.Demo(caller.client(), display).play()
    except (LocalStackError, CliError) as error:
        problem, remedy = (
            (error.problem, error.remedy) if isinstance(error, CliError) else (str(error), "")
        )
        logs = f"The logs of the local stack are in {root}/.nextfire/logs."
        raise CliError(problem, f"{remedy}\n{logs}".strip()) from error
    caller.show({"runs": done}, play.report(done))


if __name__ == "__main__":
    app()
