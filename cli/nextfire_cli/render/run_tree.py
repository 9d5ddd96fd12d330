"""The runs of a sequence as a tree."""

from rich.console import RenderableType
from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped
from nextfire_cli.render.tables import table
from nextfire_cli.render.text import between, state, with_reason


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
    more = node["after"][1:]
    name = "  " * depth + escaped(node["jobId"])
    if more:
        name += f" (also after {', '.join(map(escaped, more))})"
    reason = node.get("reason") if node["state"] not in {"SUCCEEDED", "RUNNING"} else None
    return (
        Text(name),
        state(node["state"]),
        between(node, "startedAt", "finishedAt"),
        str(node.get("attempt", "")),
        "*" if node["critical"] else "",
        with_reason(node["executionId"], reason),
    )
