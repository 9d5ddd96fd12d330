"""The command `nextfire runs cancel`."""

from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from nextfire.domain.run import RunState
from nextfire_cli import render, session
from nextfire_cli.confirmation import confirm
from nextfire_cli.run_redrive import Reason
from nextfire_cli.session import Session
from nextfire_cli.waiting import ended


def cancel(
    context: typer.Context,
    execution_id: Annotated[str, typer.Argument(metavar="EXECUTION_ID", show_default=False)],
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream", help="Also cancel the runs below it in its sequence; asks first."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan of --downstream and change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation of --downstream.")
    ] = False,
) -> None:
    """Cancel a run. A waiting run is cancelled immediately. The script of a running one is ended
    within seconds: SIGTERM, then SIGKILL 5 s later.

    With --downstream, runs below it in its sequence that have not ended are cancelled too, and
    those that wait for their parents never start. Safe to repeat.

    [bold]Examples[/]
      nextfire runs cancel EXECUTION_ID --reason 'wrong input'
      nextfire runs cancel EXECUTION_ID --wait
      nextfire runs cancel EXECUTION_ID --downstream --dry-run
    """
    caller = session.of(context)
    if downstream:
        if wait:
            raise typer.BadParameter("not with --downstream", param_hint="--wait")
        _cancel_sequence(caller, execution_id, reason, dry_run=dry_run, yes=yes)
        return
    if given := [name for name, value in {"--dry-run": dry_run, "--yes": yes}.items() if value]:
        raise typer.BadParameter("only with --downstream", param_hint=given)
    client = caller.client()
    run = client.cancel_execution(execution_id, reason=reason).document
    if run["state"] == RunState.RUNNING:
        caller.say("Its worker is asked to end it.")
    run = ended(client, run) if wait else run
    caller.show(run, render.execution_line(run))


def _cancel_sequence(
    caller: Session, execution_id: str, reason: str | None, *, dry_run: bool, yes: bool
) -> None:
    ask = partial(caller.client().cancel_chain, execution_id)
    plan = ask(dry_run=True).document
    chosen = any(step["action"] != "KEEP" for step in plan["items"])
    if dry_run or not chosen:
        caller.show(plan, render.sequence_plan(plan))
    else:
        if not caller.for_programs:
            caller.show(plan, render.sequence_plan(plan))
        confirm(caller, "Cancel these runs?", yes=yes)
        done = ask(reason=reason).document
        names = [step["jobId"] for step in done["items"] if step["action"] != "KEEP"]
        caller.show(done, Text(f"Cancelled: {', '.join(map(render.escaped, names)) or 'none'}."))
    if not chosen:
        caller.say("All of them have ended.")
