"""Lists of scripts, of their versions, and of secrets."""

from collections.abc import Sequence

from rich.console import RenderableType

from nextfire_cli.documents import Document
from nextfire_cli.render.tables import table
from nextfire_cli.render.text import minute


def scripts(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No scripts. Push one: nextfire scripts push examples/hello.py"
    return table(
        ("POOL", "HANDLER", "BYTES", "MODIFIED (UTC)"),
        (
            (item["pool"], item["handler"], item["size"], minute(item["modifiedAt"]))
            for item in items
        ),
    )


def versions(items: Sequence[Document]) -> RenderableType:
    """Versions of a script."""
    return table(
        ("VERSION", "SINCE (UTC)", "BYTES"),
        (
            (each["versionId"], minute(each["modifiedAt"]), each.get("size", "deleted"))
            for each in items
        ),
    )


def secrets(items: Sequence[Document], pool: str) -> RenderableType:
    """Names of the secrets and parameters of *pool*."""
    if not items:
        return f"No secrets in the pool {pool}. Store one: nextfire secrets put NAME --pool {pool}"
    return table(("KIND", "NAME"), ((each["kind"], each["name"]) for each in items))
