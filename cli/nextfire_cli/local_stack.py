"""The commands `nextfire up`, `nextfire down` and `nextfire demo`: the local stack."""

# Imported on first use: an emulated stack takes a second.
# ruff: noqa: PLC0415

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nextfire.client.folder import FOLDER
from nextfire_cli import session
from nextfire_cli.confirmation import confirm
from nextfire_cli.errors import CliError
from nextfire_cli.shared_options import Yes

if TYPE_CHECKING:
    from nextfire_cli.local.embedded import EmbeddedStack
    from nextfire_cli.local.stack import LocalStack


_STOPPING = "Stopping. The workers hand their runs back first."
_SAVING = " At the end the emulator saves its data, which can take two minutes."


def up(
    context: typer.Context,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of each pool.")] = 1,
    emulator: Annotated[
        bool, typer.Option(help="Deploy the AWS app into an emulator. Needs a checkout.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="With --emulator: enforce AWS's limits, and imitate its latency and its faults.",
        ),
    ] = False,
) -> None:
    """Start the local stack in the foreground. Ctrl-C stops it and keeps its jobs, runs and
    scripts.

    By default the embedded stack: the API, the watcher and the workers, on SQLite.

    [bold]Examples[/]
      nextfire up
      nextfire up --workers 4
      nextfire up --emulator --strict
    """
    from nextfire_cli.local.processes import InterruptedBySignal

    caller = session.of(context)
    if strict and not emulator:
        raise CliError(
            "--strict needs --emulator: the embedded stack does not call AWS.",
            "Try: nextfire up --emulator --strict",
        )
    stack = _local_stack(emulator=emulator, strict=strict)
    with stack.running(caller.say, workers=workers) as info:
        caller.show({"endpoint": info.endpoint}, Text(f"nextfire is up: {info.endpoint}"))
        caller.say("Ctrl-C stops it. In another terminal: nextfire jobs create --help")
        with contextlib.suppress(KeyboardInterrupt, InterruptedBySignal):
            while stack.status() is not None or stack.restart_workers(caller.say):
                stack.renew_key()
                time.sleep(1)
            raise _ended(stack.deaths(), emulator=emulator)
        caller.say(_STOPPING + (_SAVING if emulator else ""))
    caller.say("Stopped. Jobs, runs and scripts are kept; `nextfire down` removes them.")


def _local_stack(*, emulator: bool, strict: bool = False) -> "EmbeddedStack | LocalStack":
    if emulator:
        from nextfire_cli.local.stack import LocalStack

        return LocalStack(session.project(), strict=() if strict else None)
    from nextfire_cli.local.embedded import EmbeddedStack

    return EmbeddedStack(session.local_root() / FOLDER, sources=session.sources())


def _ended(deaths: list[str], *, emulator: bool) -> CliError:
    """Why the stack has ended."""
    if not deaths:
        return CliError("The stack was stopped by `nextfire down`.")
    return CliError(
        "\n".join(deaths),
        "The rest of the stack was stopped, and its data are kept. Start it again with"
        " `nextfire up`." + (session.LOST_IN_EMULATOR if emulator else ""),
    )


def down(
    context: typer.Context,
    yes: Yes = False,
) -> None:
    """Stop the local stack and remove its jobs, runs, scripts and logs.

    Ctrl-C in [bold]nextfire up[/] stops it and keeps them. Asks for confirmation; without a
    terminal, add --yes.

    [bold]Example[/]
      nextfire down --yes
    """
    from nextfire_cli.local.embedded import EmbeddedStack
    from nextfire_cli.local.stack import LocalStack
    from nextfire_cli.local.state import has_stack

    root = session.local_root()
    if not has_stack(root / FOLDER):
        session.of(context).say(f"{root} has no local stack: nothing was removed.")
        return
    what = f"Delete all jobs, runs, scripts and logs of the local stack of {root}?"
    confirm(session.of(context), what, yes=yes)
    EmbeddedStack(root / FOLDER).remove()
    LocalStack(root).remove()
    session.of(context).say(f"The local stack of {root} is stopped and removed.")


def demo(
    context: typer.Context,
    emulator: Annotated[
        bool, typer.Option(help="Deploy the AWS app into an emulator. Needs a checkout.")
    ] = False,
) -> None:
    """Run three jobs on the local stack and show when each was due and when it ran.

    Starts the stack if it is not running, and stops it at the end. Takes up to two minutes.

    [bold]Example[/]
      nextfire demo
    """
    from nextfire_cli import demo as play
    from nextfire_cli.local.processes import interrupts_raised

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
                ending.callback(report, "stopping." + _SAVING if emulator else "stopping")
            display.tell("local stack", f"up at {caller.api_endpoint()}", done=True)
            caller.client().push_script(play.HANDLER, play.script())
            display.tell("script", f"uploaded examples/{play.HANDLER}.py", done=True)
            done = play.Demo(caller.client(), display).play()
    except CliError as error:
        logs = f"The logs of the local stack are in {root}/.nextfire/logs."
        raise CliError(error.problem, f"{error.remedy}\n{logs}".strip()) from error
    caller.show({"runs": done}, play.report(done))
