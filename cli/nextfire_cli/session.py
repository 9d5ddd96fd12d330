"""One call of the command: what its global options chose, and where it prints."""

# What a call does not need it does not import: boto3 and the stack's parts take a second.
# ruff: noqa: PLC0415

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import typer
from rich.console import Console, RenderableType
from rich.text import Text

from nextfire_cli import render
from nextfire_cli.client import Client, is_local
from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from nextfire_cli.aws import Account
    from nextfire_cli.local.stack import StackInfo

_API_HOST = re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_PIPE_WIDTH = 500
"""Columns where nobody looks: tables are as wide as they need, ids are never cut."""


@dataclass(frozen=True)
class Session:
    """`transport` stands in for the network in tests."""

    endpoint: str | None
    as_json: bool
    profile: str | None
    region: str | None
    transport: httpx.BaseTransport | None = None

    @property
    def out(self) -> Console:
        """For results."""
        return _console(stderr=False)

    @property
    def err(self) -> Console:
        """For everything else."""
        return _console(stderr=True)

    def show(self, document: object, view: RenderableType) -> None:
        """Print a result: *document* for programs, *view* for people."""
        if self.as_json:
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        else:
            # A narrow terminal wraps long lines itself: an id can then still be copied whole.
            self.out.print(view, crop=False, soft_wrap=isinstance(view, Text))

    def say(self, text: str) -> None:
        """Tell people something that is no result."""
        self.err.print(Text(render.escaped(text, keep="\n")))

    def fail(self, error: CliError) -> None:
        """Print why the call fails; for programs, as one JSON document on stderr."""
        if self.as_json:
            typer.echo(json.dumps(error.document(), ensure_ascii=False), err=True)
        else:
            problem = render.escaped(error.problem, keep="\n")
            self.err.print(Text.assemble(("Error: ", "bold red"), problem))
            for line in error.remedy.split("\n") if error.remedy else ():
                self.err.print(Text("  " + render.escaped(line, keep="\t")))

    def stack(self) -> "StackInfo | None":
        """The local stack that this call speaks to; None where it speaks to another endpoint.

        Raises:
            CliError: The local stack has lost one of its processes.
        """
        if self.endpoint and not is_local(self.endpoint):
            return None
        root = _above(Path.cwd(), ".nextfire/stack.json")
        if root is None:
            return None
        from nextfire_cli.local.stack import LocalStack

        info = LocalStack(root).status()
        if info is None:
            raise CliError(
                f"The local stack of {root} has lost one of its processes.",
                "Stop `nextfire up`, if it still runs, and start it again. If it was the emulator"
                " that ended, changes since the last clean stop are lost: it saves its data then.",
            )
        return info

    def account(self) -> "Account":
        """Whose AWS credentials sign, and where AWS is.

        Raises:
            CliError: There is no such profile.
        """
        from nextfire_cli.aws import Account

        stack = self.stack()
        if stack is None:
            return Account.of_caller(self.profile, self.region)
        return Account.of_stack(
            stack.aws_endpoint, stack.region, stack.access_key, stack.secret_key
        )

    def client(self) -> Client:
        """The API.

        Raises:
            CliError: It is not known where it is, or how to sign for it.
        """
        stack = self.stack()
        endpoint = self.endpoint or (stack.endpoint if stack else None)
        if endpoint is None:
            raise CliError(
                "There is no endpoint: no local stack is up here.",
                "Start one with `nextfire up`,\n"
                "or name a deployed API with --endpoint URL or NEXTFIRE_ENDPOINT.",
            )
        if not endpoint.startswith(("http://", "https://")):
            raise CliError(f"{endpoint!r} is no URL.", "An endpoint begins with https://.")
        match = _API_HOST.fullmatch(httpx.URL(endpoint).host)
        region = self.region or (match[1] if match else None)
        try:
            signature = self.account().signature(region)
        except CliError as error:
            if stack is not None or not is_local(endpoint):
                raise
            raise CliError(
                f"No local stack is up here to answer at {endpoint}.",
                "Start it with `nextfire up`, or change into the folder that it was started in.\n"
                f"Calls to another API on this machine need credentials: {error.problem}",
            ) from error
        return Client(endpoint, signature, self.transport)


def of(context: typer.Context) -> Session:
    return cast("Session", context.obj)


def project() -> Path:
    """The checkout that the working folder is in.

    Raises:
        CliError: It is in none.
    """
    root = _above(Path.cwd(), "infra/app.py")
    if root is None:
        raise CliError(
            f"{Path.cwd()} is not in a checkout of nextfire.",
            "The local stack is deployed from its sources: change into the checkout first.",
        )
    return root


def _above(folder: Path, file: str) -> Path | None:
    """The nearest of *folder* and the folders above it that holds *file*."""
    return next((at for at in (folder, *folder.parents) if (at / file).is_file()), None)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
