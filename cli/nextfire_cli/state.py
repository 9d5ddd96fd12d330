"""The commands `nextfire status` and `nextfire quotas`."""

from typing import Any

import typer

from nextfire_cli import render, session

_STATUS = {"endpoint", "aws_endpoint", "scripts_bucket", "pools", "processes"}
"""Fields of a running local stack that `status` shows."""


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


def quotas(context: typer.Context) -> None:
    """Show your tenant's quotas and their usage."""
    caller = session.of(context)
    found = caller.client().get_quotas().document
    caller.show(found, render.quotas(found))
