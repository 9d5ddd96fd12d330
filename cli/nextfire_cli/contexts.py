"""The commands of `nextfire context`."""

from typing import Annotated

import typer
from rich.text import Text

from nextfire.client import access
from nextfire.client.contexts import Context, change_contexts, read_contexts
from nextfire.client.folder import FOLDER, STACK_FILE
from nextfire_cli import render, session
from nextfire_cli.confirmation import confirm
from nextfire_cli.documents import Document
from nextfire_cli.shared_options import Yes

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command("list")
def list_(context: typer.Context) -> None:
    """List the contexts; the current one has an asterisk. Keys are not shown.

    [bold]Example[/]
      nextfire context list
    """
    caller = session.of(context)
    contexts = read_contexts(access.contexts_file())
    items = [_document(name, each) for name, each in contexts.by_name.items()]
    for item in items:
        item["current"] = item["context"] == contexts.current
    rows = [
        ("*" if item["current"] else "", item["context"], item["endpoint"], item["credentials"])
        for item in items
    ]
    empty = Text("No contexts. Create one: nextfire login URL --name NAME")
    view = render.table(("", "CONTEXT", "ENDPOINT", "CREDENTIALS"), rows) if rows else empty
    caller.show({"items": items}, view)


@app.command()
def use(context: typer.Context, name: Name) -> None:
    """Select the context that commands use in folders without a local stack.

    For one command: --context NAME, or the variable NEXTFIRE_CONTEXT.

    [bold]Example[/]
      nextfire context use prod
    """
    caller = session.of(context)
    file = access.contexts_file()
    found = change_contexts(file, lambda contexts: contexts.using(name)).find(name)
    caller.show(_document(name, found), Text(f"Context {name}: {found.endpoint}"))
    if access.from_environment(access.ENDPOINT):
        caller.warn(f"{access.ENDPOINT} is set, and overrides the context.")
    elif session.has_local_stack():
        caller.warn(
            f"This folder has a local stack ({STACK_FILE}), which commands use here. To call the"
            f" context, add --context {name}, or change into a folder without {FOLDER}."
        )


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
) -> None:
    """Delete a context and its key from this machine. The key itself stays valid.

    [bold]Example[/]
      nextfire context delete prod --yes
    """
    caller = session.of(context)
    file = access.contexts_file()
    found = read_contexts(file).find(name)
    confirm(caller, f"Delete the context {name} and its key?", yes=yes)
    change_contexts(file, lambda contexts: contexts.without(name))
    caller.show(_document(name, found), Text(f"Context {name} is deleted."))
    caller.say("Its key is still valid. To revoke it: nextfire keys revoke KEY_ID")


def _document(name: str, found: Context) -> Document:
    kind = "API key" if found.key else str(found.auth or "from the environment")
    who = f", profile {found.profile}" if found.profile else ""
    return {"context": name, "endpoint": found.endpoint, "credentials": f"{kind}{who}"}
