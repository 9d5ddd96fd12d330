"""A plan for pipelines."""

import json
from typing import Any

from rich.text import Text

from nextfire.client.pipelines.diff import ABSENT, FieldChange
from nextfire.client.pipelines.document import compact
from nextfire.client.pipelines.plan import Action, JobChange, Plan
from nextfire_cli.escaping import escaped

_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.UPDATE: ("~", "yellow"),
    Action.REMOVE: ("-", "red"),
    Action.UNCHANGED: (" ", "dim"),
}
_MAX_VALUE = 120
_DONE = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.REMOVE: "removed",
    Action.UNCHANGED: "unchanged",
}


def plan(changes: Plan, *, done: bool = False, wide: bool = False) -> Text:
    """The changes by pipeline, and their numbers. *done*: they were made. *wide*: with the jobs
    that do not change.
    """
    text = Text()
    shown = [each for each in changes.changes if wide or each.action is not Action.UNCHANGED]
    for owner in sorted({each.owner or "" for each in shown}):
        text.append(f"Pipeline {escaped(owner)}\n" if owner else "No pipeline\n", "bold")
        for each in shown:
            if (each.owner or "") == owner:
                _add(text, each)
    return text.append(summary(changes, done=done))


def summary(changes: Plan, *, done: bool) -> str:
    """Return the numbers of changes: ``1 to create``, or with *done* ``1 created``."""
    counts = {action: len(changes.of(action)) for action in Action}
    if not changes:
        return f"No changes: {counts[Action.UNCHANGED]} unchanged."
    parts = [
        f"{count} {_DONE[action] if done or action is Action.UNCHANGED else f'to {action}'}"
        for action, count in counts.items()
        if count
    ]
    return f"{', '.join(parts)}."


def _add(text: Text, change: JobChange) -> None:
    sign, style = _SIGNS[change.action]
    line = f"  {sign} {escaped(change.job_id)}  {change.action}"
    text.append(f"{line}{', adopted' if change.adopted else ''}\n", style)
    if change.action is Action.CREATE and change.definition is not None:
        for name, value in compact(change.definition).items():
            text.append(f"      {name}: {_value(value)}\n")
    for field in change.fields:
        text.append(f"      {_field(field)}\n")


def _field(field: FieldChange) -> str:
    return f"{escaped(field.path)}: {_value(field.old)} -> {_value(field.new)}"


def _value(value: Any) -> str:  # noqa: ANN401 — JSON
    """A JSON value on one line: texts without quotes if they are unambiguous."""
    if value is ABSENT:
        return "(none)"
    if isinstance(value, str) and value.isprintable() and value.strip() == value != "":
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return escaped(text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…")
