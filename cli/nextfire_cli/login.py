"""The command `nextfire login`: saves an endpoint and its credentials as a context."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.text import Text

from nextfire.client import access
from nextfire.client.auth import Auth
from nextfire.client.contexts import Context, change_contexts
from nextfire_cli import session
from nextfire_cli.confirmation import in_terminal
from nextfire_cli.errors import CliError


def login(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The API, without /v1.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the context. [dim]Default: the first part of the host[/]"),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            help="Read the API key from this file, [bold]-[/] for standard input."
            " [dim]Default: asks in a terminal, else standard input[/]",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Call the API before anything is saved.")
    ] = True,
) -> None:
    """Save the endpoint of an API and the credentials for it as a context, and use it.

    Both are in one file that only you can read. The key is never an argument, which other users and
    the history of the shell could show. With --auth iam, or jwt, no key is saved; --profile and
    --region are. The variables NEXTFIRE_ENDPOINT and NEXTFIRE_API_KEY override the context.

    [bold]Examples[/]
      nextfire login https://abc123.execute-api.eu-central-1.amazonaws.com --name prod
      nextfire login https://api.example.com --key-file key.txt
      nextfire login https://api.example.com --auth iam --profile ops --region eu-central-1
    """
    caller = session.of(context)
    endpoint = access.checked_endpoint(url)
    host = "local" if access.is_local(endpoint) else urlsplit(endpoint).hostname or "default"
    name = name or host.partition(".")[0]
    key = _key(key_file) if caller.auth in {None, Auth.KEYS} else None
    found = Context(endpoint, key, caller.auth, caller.profile, caller.region)
    if check:
        session.called(caller, found).client().get_quotas()
        caller.say(f"{endpoint} accepts these credentials.")
    file = access.contexts_file()
    change_contexts(file, lambda contexts: contexts.having(name, found))
    document = {"context": name, "endpoint": endpoint, "file": str(file)}
    caller.show(document, Text(f"Context {name}: {endpoint}"))
    caller.say(f"It is in {file}, which only you can read, and is used from now on.")


def _key(file: str | None) -> str:
    if file is None and in_terminal():
        text: str = typer.prompt("API key", hide_input=True, err=True)
        return access.checked_key(text.strip(), "The input")
    place = "Standard input" if file in {None, "-"} else str(file)
    try:
        text = sys.stdin.read() if file in {None, "-"} else Path(str(file)).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(f"{place} cannot be read: {why}.") from error
    return access.checked_key(text.strip(), place)
