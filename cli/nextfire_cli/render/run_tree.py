"""The runs of a sequence as a tree, and the plan of a redrive or cancel."""

from rich.console import RenderableType
from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped
from nextfire_cli.render.tables import table
from nextfire_cli.render.text import between, state, with_reason

_ACTIONS = {"RUN": "starts again", "FOLLOW": "follows", "KEEP": "stays", "CANCEL": "cancel"}


def run_tree(found: Document) -> RenderableType:
    """The runs, each indented below its first parent. Runs on the critical path have a ``*``."""
    nodes = {node["jobId"]: node for node in found["items"]}
    depths: dict[str, int] = {}
    children: dict[str, list[str]] = {}
    roots: list[str] = []
    for name, node in nodes.items():  # parents come first
        parent = next((each for each in node["after"] if each in depths), None)
        depths[name] = 0 if parent is None else depths[parent] + 1
        (roots if parent is None else children.setdefault(parent, [])).append(name)
    ordered: list[str] = []
    left = roots[::-1]
    while left:
        ordered.append(left.pop())
        left += children.get(ordered[-1], [])[::-1]
    return table(
        ("JOB", "STATE", "TOOK", "TRY", "", "EXECUTION"),
        (_row(nodes[name], depths[name]) for name in ordered),
    )


def _row(node: Document, depth: int) -> tuple[RenderableType | str, ...]:
    also = [*map(escaped, node["after"][1:])]
    if "moreParents" in node:
        also.append(f"{node['moreParents']:,} more")
    name = "  " * depth + escaped(node["jobId"])
    if also:
        name += f" (also after {', '.join(also)})"
    reason = node.get("reason") if node["state"] not in {"SUCCEEDED", "RUNNING"} else None
    return (
        Text(name),
        state(node["state"]),
        between(node, "startedAt", "finishedAt"),
        str(node.get("attempt", "")),
        "*" if node["critical"] else "",
        with_reason(node["executionId"], reason),
    )


def sequence_plan(found: Document) -> RenderableType:
    """What a redrive or a cancel of a sequence does with each run, and why."""
    return table(
        ("JOB", "STATE", "ACTION", "REASON"),
        (
            (
                Text(escaped(step["jobId"])),
                state(step["state"]),
                Text(_ACTIONS.get(step["action"], step["action"])),
                Text(escaped(step["reason"])),
            )
            for step in found["items"]
        ),
        folding=(3,),
    )
