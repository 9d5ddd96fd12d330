"""The `nextfire` command."""

# Imported on first use, so that `--help` and the completion of words are quick.
# ruff: noqa: PLC0415

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

import typer

from nextfire.client.auth import Auth
from nextfire_cli.errors import EXIT_CODES, USAGE, CliError, exit_code, problem_document
from nextfire_cli.extras import missing_package
from nextfire_cli.global_options import asks_for_json, globals_first, is_typed
from nextfire_cli.lazy import Later, LazyGroup
from nextfire_cli.output import Output, replace_unencodable, to_json
from nextfire_cli.slow_imports import defer_slow_imports

_COMMANDS = {
    "up": Later(
        "nextfire_cli.local_stack",
        "up",
        "Start the local stack in the foreground. Ctrl-C stops it and keeps its jobs, runs and "
        "scripts.",
    ),
    "down": Later(
        "nextfire_cli.local_stack",
        "down",
        "Stop the local stack and remove its jobs, runs, scripts and logs.",
    ),
    "worker": Later(
        "nextfire_cli.worker",
        "worker",
        "Serve a pool from this machine until Ctrl-C or SIGTERM, then hand its runs back.",
    ),
    "apply": Later(
        "nextfire_cli.pipelines",
        "apply",
        "Create, change and remove jobs until they are as declared in the files of pipelines.",
    ),
    "export": Later(
        "nextfire_cli.pipelines",
        "export",
        "Print jobs as the file of their pipeline, for `nextfire apply`, or as a diagram.",
    ),
    "backup": Later(
        "nextfire_cli.backup",
        "backup",
        "Back up the embedded stack: jobs, runs, keys, scripts, outputs and secrets.",
    ),
    "restore": Later(
        "nextfire_cli.backup",
        "restore",
        "Restore a backup of an embedded stack into this folder, which must not have a stack.",
    ),
    "status": Later(
        "nextfire_cli.state",
        "status",
        "Check whether jobs run on time, by default on the local stack. Exit code 1: they do not.",
    ),
    "login": Later(
        "nextfire_cli.login",
        "login",
        "Save the endpoint of an API and the credentials for it as a context, and use it.",
    ),
    "context": Later(
        "nextfire_cli.contexts", "app", "List, select and delete contexts: the APIs of `login`."
    ),
    "doctor": Later(
        "nextfire_cli.doctor",
        "doctor",
        "Check the setup: the installation, the endpoint, the API, its clock and your "
        "credentials. Exit code 1: something is wrong.",
    ),
    "quotas": Later("nextfire_cli.state", "quotas", "Show your tenant's quotas and their usage."),
    "demo": Later(
        "nextfire_cli.local_stack",
        "demo",
        "Run three jobs on the local stack and show when each was due and when it ran.",
    ),
    "jobs": Later("nextfire_cli.jobs", "app", "Create, show, change and cancel jobs."),
    "runs": Later("nextfire_cli.runs", "app", "List, show, cancel and redrive runs."),
    "schedules": Later("nextfire_cli.schedules", "app", "Preview schedules."),
    "plan": Later("nextfire_cli.what_if", "app", "Look ahead: what jobs would do."),
    "cost": Later(
        "nextfire_cli.cost.command",
        "cost",
        "Estimate what runs cost on AWS in a month, item by item, next to other services.",
    ),
    "dlq": Later("nextfire_cli.dlq", "app", "List, redrive and purge a pool's dead letters."),
    "scripts": Later(
        "nextfire_cli.scripts", "app", "Upload, list and delete the scripts that jobs run."
    ),
    "secrets": Later(
        "nextfire_cli.secrets", "app", "Store, list and delete the secrets that jobs refer to."
    ),
    "endpoints": Later(
        "nextfire_cli.endpoints", "app", "List, pause and resume destinations of HTTP callbacks."
    ),
    "audit": Later("nextfire_cli.audit", "app", "List and verify the audit chain."),
    "keys": Later("nextfire_cli.keys", "app", "Create, list, rotate and revoke API keys."),
}


_WITHOUT_CONTEXT = {"up", "down", "demo", "backup", "restore", "login", "context", "cost"}
"""Commands that call no API, or only the local stack."""
_USAGE_ERROR: type[Exception] = typer.BadParameter.mro()[1]
"""Click's class, which Typer vendors and does not export."""
_JSON = "nextfire.json"  # in the context of a call: whether it asks for JSON
_UNUSABLE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
_FULL = {errno.ENOSPC, errno.EDQUOT}


class _Group(LazyGroup):
    """Accepts global options anywhere, and prints errors without tracebacks."""

    later = _COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        try:
            with _wrong_usage(ctx):
                ctx.meta[_JSON] = asks_for_json(args)
                return super().parse_args(ctx, globals_first(args))
        except OSError as error:
            typer.echo(f"Error: {_full(error)}", err=True)
            raise typer.Exit(1) from error

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        from nextfire_cli import session

        try:
            with _wrong_usage(ctx):
                return super().invoke(ctx)
        except CliError as error:
            session.of(ctx).fail(error)
            raise typer.Exit(exit_code(error)) from error
        except ModuleNotFoundError as error:
            if (lacks := missing_package(error)) is None:
                raise
            session.of(ctx).fail(lacks)
            raise typer.Exit(1) from error
        except (*_UNUSABLE, KeyError) as error:
            if ctx.params.get("debug"):
                raise
            # A value given by a user must not cause a traceback.
            session.of(ctx).fail(_unusable(error))
            raise typer.Exit(1) from error
        except OSError as error:
            session.of(ctx).fail(_full(error))
            raise typer.Exit(1) from error


def _unusable(error: Exception) -> CliError:
    """What to say about *error*, which nothing expected."""
    defect = "If that is right, this is a defect: --debug shows where."
    if isinstance(error, KeyError):
        return CliError(
            f"An answer has no {error}: it is not that of a nextfire API of this version.",
            f"Check the endpoint: nextfire doctor. {defect}",
        )
    return CliError(
        f"Something given here cannot be used: {type(error).__name__}: {error}.",
        f"Check the flags and files against --help. {defect}",
    )


def _full(error: OSError) -> CliError:
    """What to say about *error*, that of a full disk.

    Raises:
        OSError: *error*, if it is another one.
    """
    if error.errno not in _FULL:
        raise error
    where = error.filename or "standard output"
    return CliError(f"Cannot write to {where}: {error.strerror}.", "Free some space.")


@contextmanager
def _wrong_usage(ctx: Any) -> Iterator[None]:  # noqa: ANN401 - typer's own
    """Add to errors about wrong usage what was probably meant. A call that asks for JSON gets them
    as a problem document.
    """
    try:
        yield
    except _USAGE_ERROR as error:
        from nextfire_cli.usage_hints import add_hint, in_one_line

        add_hint(error)
        if not ctx.meta[_JSON]:
            raise
        document = problem_document(HTTPStatus.BAD_REQUEST, in_one_line(error))
        typer.echo(to_json(document), err=True)
        raise typer.Exit(USAGE) from error


defer_slow_imports()
app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Global options can be anywhere in a command. Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    + ".",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 — typer calls it
    if wanted:
        from nextfire.client.version import version

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
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    output: Annotated[
        Output,
        typer.Option(
            "--output",
            "-o",
            help="Results as a table for people, with more columns (wide); as one JSON or YAML "
            "document; or only their ids, a line each (name). Everything else goes to stderr.",
        ),
    ] = Output.TABLE,
    profile: Annotated[
        str | None, typer.Option(help="The AWS profile to use, unless the stack is local.")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="The API's AWS region. [dim]Default: the one in its URL, else AWS_REGION[/]"
        ),
    ] = None,
    context_name: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            envvar="NEXTFIRE_CONTEXT",
            help="Use the endpoint and credentials of this context (nextfire login). "
            "[dim]Default: without --endpoint and without a local stack, the current one[/]",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show requests and responses on stderr, without keys and payloads; "
            "and the traceback of a defect.",
        ),
    ] = False,
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
    from nextfire_cli.session import Session

    replace_unencodable()
    # What is there already stands in for the network (tests).
    output = Output.JSON if as_json else output
    endpoint = endpoint.strip() if endpoint else None  # of a file with Windows line ends
    caller = Session(endpoint, output, profile, region, transport=context.obj, auth=auth)
    context.obj = caller
    if debug:
        from nextfire_cli.debug import show_exchanges

        context.call_on_close(show_exchanges(caller))
    if context.invoked_subcommand in _WITHOUT_CONTEXT:
        return
    typed = is_typed(context, "context_name")
    if typed and is_typed(context, "endpoint"):
        raise typer.BadParameter("use only one of them", param_hint="--context, --endpoint")
    if typed or not endpoint:
        context.obj = caller.in_context(context_name)


def whole_command() -> Any:  # noqa: ANN401 — Click's classes, as Typer vendors them
    """The command `nextfire` with all that it consists of, for its documentation."""
    command: Any = typer.main.get_command(app)
    command.load_all()
    return command


if __name__ == "__main__":
    app()
