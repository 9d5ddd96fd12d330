"""One call of the command: what its global options chose, and where it prints."""

# What a call does not need it does not import: boto3 and the stack's parts take a second.
# ruff: noqa: PLC0415

import json
import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import typer
from rich.console import Console, RenderableType
from rich.text import Text

from nextfire.domain.keys import parse
from nextfire_cli import render
from nextfire_cli.client import Bearer, Client, is_local
from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from nextfire_cli.aws import Account
    from nextfire_cli.local.stack import StackInfo

_API_HOST = re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_PIPE_WIDTH = 500
"""Columns where nobody looks: tables are as wide as they need, ids are never cut."""


API_KEY, TOKEN = "NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN"


class Auth(StrEnum):
    """How requests say who calls: the words of the deployment's setting `auth`."""

    KEYS = "keys"
    IAM = "iam"
    JWT = "jwt"


@dataclass(frozen=True)
class Session:
    """`transport` stands in for the network in tests. `auth`: None lets what there is decide."""

    endpoint: str | None
    as_json: bool
    profile: str | None
    region: str | None
    transport: httpx.BaseTransport | None = None
    auth: Auth | None = None

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

    def api_endpoint(self) -> str:
        """Where the API is; empty if that is not known."""
        stack = self.stack()
        return self.endpoint or (stack.endpoint if stack else "")

    def client(self) -> Client:
        """The API.

        Raises:
            CliError: It is not known where it is, or how to sign for it.
        """
        stack, endpoint = self.stack(), self.api_endpoint()
        if not endpoint:
            raise CliError(
                "There is no endpoint: no local stack is up here.",
                "Start one with `nextfire up`,\n"
                "or name a deployed API with --endpoint URL or NEXTFIRE_ENDPOINT.",
            )
        if not endpoint.startswith(("http://", "https://")):
            raise CliError(f"{endpoint!r} is no URL.", "An endpoint begins with https://.")
        return Client(endpoint, self._authorization(endpoint, stack), self.transport)

    def tenant(self) -> str:
        """Whose jobs this call reaches.

        Raises:
            CliError: The credentials do not tell.
        """
        endpoint, keys = self.api_endpoint(), self.auth in {None, Auth.KEYS}
        key = self._key(endpoint, self.stack()) if keys and endpoint else None
        presented = parse(key) if key else None
        return presented.tenant if presented else self.account().tenant()

    def _authorization(self, endpoint: str, stack: "StackInfo | None") -> httpx.Auth:
        """What says who calls: as --auth asks, else a key or a token if there is one, else a
        signature.
        """
        if self.auth is Auth.IAM:
            return self._signature(endpoint, stack)
        if self.auth in {None, Auth.KEYS} and (key := self._key(endpoint, stack)):
            return _sent_safely(Bearer(key), endpoint)
        if self.auth in {None, Auth.JWT} and (token := _from_environment(TOKEN)):
            return _sent_safely(Bearer(token, "token"), endpoint)
        if self.auth is Auth.KEYS:
            raise CliError(
                "There is no API key.",
                f"Put one into {API_KEY}, or into the file {key_file(endpoint)}.\n"
                "`nextfire keys create` makes one.",
            )
        if self.auth is Auth.JWT:
            raise CliError("There is no token.", f"Put one into {TOKEN}.")
        return self._signature(endpoint, stack)

    def _key(self, endpoint: str, stack: "StackInfo | None") -> str | None:
        """The API key for *endpoint*: of the environment, else of the local stack, else of the
        user's own files.

        Raises:
            CliError: What should be one is none, or others can read it.
        """
        if key := _from_environment(API_KEY):
            return _checked(key, API_KEY)
        if stack is not None:
            try:
                return stack.api_key
            except OSError as error:
                raise CliError(
                    f"The key of the local stack cannot be read: {error}.",
                    "Stop `nextfire up`, and start it again: it makes another.",
                ) from error
        file = key_file(endpoint)
        try:
            mode = file.stat().st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CliError(
                    f"Others than you can use the key in {file}.", f"Close it: chmod 600 {file}"
                )
            return _checked(file.read_text(encoding="ascii").strip(), str(file))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(f"{file} cannot be read: {error}.") from error

    def _signature(self, endpoint: str, stack: "StackInfo | None") -> httpx.Auth:
        match = _API_HOST.fullmatch(httpx.URL(endpoint).host)
        region = self.region or (match[1] if match else None)
        try:
            return self.account().signature(region)
        except CliError as error:
            if stack is not None:
                raise
            if not is_local(endpoint):
                raise CliError(
                    f"There is no API key, and no AWS credentials instead: {error.problem}",
                    f"Put a key into {API_KEY}, or into the file {key_file(endpoint)}.\n"
                    f"If the API wants signed requests: {error.remedy}",
                ) from error
            raise CliError(
                f"No local stack is up here to answer at {endpoint}.",
                "Start it with `nextfire up`, or change into the folder that it was started in.\n"
                f"Calls to another API on this machine need credentials: {error.problem}",
            ) from error


def key_file(endpoint: str) -> Path:
    """Where the user keeps the API key for *endpoint*: readable to nobody else."""
    home = _from_environment("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "nextfire" / "keys" / (httpx.URL(endpoint).host or "none")


def _from_environment(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None  # noqa: TID251 — of the caller, no adapter's


def _checked(key: str, place: str) -> str:
    """*key*, if it is one. A message never shows it."""
    if parse(key) is None:
        raise CliError(
            f"What {place} holds is no API key.", "A key reads nf.TENANT.ID.SECRET, on one line."
        )
    return key


def _sent_safely(bearer: Bearer, endpoint: str) -> Bearer:
    if not endpoint.startswith("https://") and not is_local(endpoint):
        raise CliError(
            f"{endpoint} is not encrypted: everyone on the way could read the key.",
            "Use https://.",
        )
    return bearer


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
