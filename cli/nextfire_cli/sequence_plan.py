"""Changes of a sequence, which show their plan and ask before they change anything."""

from collections.abc import Callable

from rich.text import Text

from nextfire.responses.base import ApiResponse
from nextfire_cli import render
from nextfire_cli.confirmation import confirm
from nextfire_cli.session import Session


def change_sequence(
    caller: Session,
    ask: Callable[..., ApiResponse],
    *,
    question: str,
    action: str,
    done: str,
    nothing: str,
    reason: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Show the plan of a change, and make the change after a confirmation.

    Args:
        caller: The session.
        ask: The request of the client, called with `dry_run` or `reason`.
        question: What the confirmation asks; *yes* skips it.
        action: The steps with this action are listed after the change, behind *done*.
        done: Such as "Started".
        nothing: Shown, without a confirmation, if the plan keeps every run.
        reason: Stored with the change.
        dry_run: Only show the plan.
        yes: Do not ask.
    """
    plan = ask(dry_run=True).document
    changes = any(step["action"] != "KEEP" for step in plan["items"])
    if dry_run or not changes:
        caller.show(plan, render.sequence_plan(plan))
    else:
        if not caller.for_programs:
            caller.show(plan, render.sequence_plan(plan))
        confirm(caller, question, yes=yes)
        changed = ask(reason=reason).document
        names = [step["jobId"] for step in changed["items"] if step["action"] == action]
        caller.show(changed, Text(f"{done}: {', '.join(map(render.escaped, names)) or 'none'}."))
    if not changes:
        caller.say(nothing)
