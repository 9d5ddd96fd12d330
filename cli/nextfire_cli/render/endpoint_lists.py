"""Endpoints of HTTP callbacks."""

from collections.abc import Sequence

from rich.console import RenderableType

from nextfire_cli.documents import Document
from nextfire_cli.render.tables import fields, table
from nextfire_cli.render.text import minute, state


def endpoints(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No endpoints: no call has failed in the last 30 days; none is paused or limited."
    return table(
        ("POOL", "DESTINATION", "STATE", "FAILURES", "LIMIT", "SINCE (UTC)", "REASON"),
        (
            (
                item["pool"],
                item["destination"],
                state(item["state"]),
                item.get("failures", ""),
                _limit(item),
                minute(item.get("openedAt", item.get("pausedAt", item.get("changedAt")))),
                item.get("pauseReason") or item.get("reason") or _probe(item),
            )
            for item in items
        ),
    )


def _probe(item: Document) -> str:
    """When an endpoint that is down is called again."""
    return f"next probe from {minute(item['probeAt'])} on" if "probeAt" in item else ""


def _limit(item: Document) -> str:
    parts = [
        f"{item['perMinute']}/min" if "perMinute" in item else "",
        f"{item['parallel']} parallel" if "parallel" in item else "",
    ]
    return ", ".join(filter(None, parts))


def endpoint(document: Document) -> RenderableType:
    """One endpoint."""
    return fields(
        ("Destination", document["destination"]),
        ("Pool", document["pool"]),
        ("State", state(document["state"])),
        ("Failures", document["failures"]),
        ("Down since", document.get("openedAt")),
        ("Next probe", document.get("probeAt")),
        ("Not before", document.get("notBefore")),
        ("Calls per minute", document.get("perMinute")),
        ("Calls at the same time", document.get("parallel")),
        ("Paused", document.get("pausedAt")),
        ("Reason", document.get("pauseReason")),
        ("Changed", document.get("changedAt")),
    )
