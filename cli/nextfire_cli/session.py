"""One call of the command: its global options, and its output."""

# Imported on first use: boto3 and the local stack take a second.
# ruff: noqa: PLC0415

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from nextfire.client import access
from nextfire.client.access import is_local
from nextfire.client.auth import Auth
from nextfire.client.folder import FOLDER, STACK_FILE, above, here
from nextfire.domain.key_text import parse
from nextfire_cli.errors import CliError
from nextfire_cli.escaping import escaped
from nextfire_cli.output import Output, names, print_view, to_json
from nextfire_cli.remedies import document_with_flags, in_words_of_the_command

if TYPE_CHECKING:
    import httpx2

    from nextfire import Client
    from nextfire.client.contexts import Context
    from nextfire_cli.aws import Account
    from nextfire_cli.local.embedded import EmbeddedInfo
    from nextfire_cli.local.stack_info import StackInfo

_PIPE_WIDTH = 500
"""Width of output that is not a terminal: wide enough for any table, so that ids stay whole."""


_CHECKOUT = "infra/app.py"
LOST_IN_EMULATOR = (
    " If it was the emulator that ended, changes since the last clean stop are lost: it saves its"
    " data then."
)


@dataclass(frozen=True)
class Session:
    """`output`: the form of results. `transport`: replaces the network in tests. `key`: of the
    context that selected the endpoint. `auth`: None selects it by the available credentials.
    `quiet`: no warnings. `warned`: the warnings that were printed, each once per call. `flags`: the
    flags of this call by the field that each sets.
    """

    endpoint: str | None
    output: Output
    profile: str | None
    region: str | None
    transport: "httpx2.BaseTransport | None" = None
    key: str | None = field(default=None, repr=False)
    auth: Auth | None = None
    quiet: bool = False
    warned: set[str] = field(default_factory=set[str], compare=False)
    flags: dict[str, str] = field(default_factory=dict[str, str], compare=False)

    @property
    def for_programs(self) -> bool:
        """Whether results are for programs: JSON, YAML or names."""
        return self.output not in {Output.TABLE, Output.WIDE}

    @property
    def wide(self) -> bool:
        """Whether tables have all their columns."""
        return self.output is Output.WIDE

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
        if self.for_programs:
            self.dump(document)
        else:
            # Narrow terminals wrap long lines themselves, so that ids can be copied whole.
            print_view(self.out, view, soft_wrap=isinstance(view, Text))

    def dump(self, document: object, *, one_of_many: bool = False) -> None:
        """Print a result for programs. *one_of_many*: others follow as they happen; JSON takes one
        line for each.
        """
        match self.output:
            case Output.YAML:
                from nextfire_cli.yaml_text import write_yaml

                typer.echo(("---\n" if one_of_many else "") + write_yaml([document]), nl=False)
            case Output.NAME:
                for name in names(document):
                    typer.echo(escaped(name))
            case _:
                indent = None if one_of_many else 2
                typer.echo(to_json(document, indent))

    def say(self, text: str) -> None:
        """Print a message that is not a result, on stderr."""
        self.err.print(Text(escaped(text, keep="\n")))

    def say_if_more(self, limit: int, *, more: bool) -> None:
        """Print that a listing may have *more* than *limit* items, on stderr."""
        if more:
            self.say(f"There may be more than {limit}: raise --limit.")

    def warn(self, text: str) -> None:
        """Print the warning *text* on stderr, unless this call printed it before."""
        if not self.quiet and text not in self.warned:
            self.warned.add(text)
            self.say(f"Warning: {text}")

    def fail(self, error: CliError) -> None:
        """Print *error* on stderr; with --json as one JSON document."""
        if self.output is Output.JSON:
            typer.echo(to_json(document_with_flags(error)), err=True)
        else:
            problem = escaped(error.problem, keep="\n")
            self.err.print(Text.assemble(("Error: ", "bold red"), problem))
            remedy = in_words_of_the_command(error.remedy, self.flags)
            for line in remedy.split("\n") if remedy else ():
                self.err.print(Text("  " + escaped(line, keep="\t")))

    def stack(self) -> "StackInfo | EmbeddedInfo | None":
        """The local stack, or None if this call uses another endpoint.

        Raises:
            CliError: The local stack has lost a process that it needs to answer, or its files
                cannot be trusted.
        """
        if self.endpoint and not is_local(self.endpoint):
            return None
        root = above(here(), STACK_FILE)
        if root is None:
            return None
        try:
            info = _info(root)
        except CliError:
            if self.endpoint:
                return None  # the caller names the API: the folder is not used
            raise
        if not info or (self.endpoint and not _same(self.endpoint, info.endpoint)):
            return None
        if lost := info.lost():
            raise CliError(
                f"The local stack of {root} has lost one of its processes: {', '.join(lost)}.",
                "Stop `nextfire up`, if it still runs, and start it again."
                + (LOST_IN_EMULATOR if info.kind == "emulator" else ""),
            )
        return info

    def emulator(self) -> "StackInfo | None":
        """The local stack on the emulator; None if this call uses another endpoint.

        Raises:
            CliError: As `stack`; or the local stack is the embedded one.
        """
        stack = self.stack()
        if stack is not None and stack.kind == "embedded":
            raise CliError(
                "The embedded stack has no AWS account, which this command needs.",
                "Use a stack that is deployed to AWS, or the emulator: nextfire up --emulator",
            )
        return stack

    def account(self) -> "Account":
        """The AWS credentials of this call, and the endpoint of AWS.

        Raises:
            CliError: The credentials cannot be loaded.
        """
        from nextfire_cli.aws import Account

        stack = self.emulator()
        if stack is None:
            return Account.of_caller(self.profile, self.region)
        return Account.of_stack(
            stack.aws_endpoint, stack.region, stack.access_key, stack.secret_key
        )

    def api_endpoint(self) -> str:
        """The URL of the API; empty if unknown."""
        stack = self.stack()
        return self.endpoint or (stack.endpoint if stack else "")

    def client(self, timeout: float | None = None) -> "Client":
        """The API. *timeout*: seconds to wait for a response; None: the default.

        Raises:
            CliError: The URL or the credentials are unknown.
        """
        from nextfire import Client
        from nextfire.client.api import TIMEOUT

        stack, endpoint = self.stack(), access.checked_endpoint(self.api_endpoint())
        sign = partial(self._signature, endpoint, stack)
        if stack is not None and not self.endpoint:
            auth = access.of_folder(self.auth or stack.auth, stack.key_file, sign)
            self._warn_of_ignored(stack.key_file)
        else:
            key = partial(_key, endpoint, stack, self.key)
            auth = access.who_calls(endpoint, self.auth, key=key, sign=sign)
        return Client(endpoint, auth=auth, timeout=timeout or TIMEOUT, transport=self.transport)

    def tenant(self) -> str:
        """The tenant of this call.

        Raises:
            CliError: The tenant of the credentials is unknown.
        """
        endpoint, keys = self.api_endpoint(), self.auth in {None, Auth.KEYS}
        stack = self.stack()
        if stack is not None and not self.endpoint:
            return stack.account_id  # its key and its credentials have the same tenant
        key = _key(endpoint, stack, self.key) if keys and endpoint else None
        presented = parse(key) if key else None
        return presented.tenant if presented else self.account().tenant()

    def in_context(self, name: str | None) -> "Session":
        """This call with the endpoint and the credentials of the context *name*. None: of the
        current one, unless the folder has a local stack.

        Raises:
            CliError: The context does not exist, or the contexts cannot be used.
        """
        chosen = access.named_context(name)
        if chosen is None and not has_local_stack():
            chosen = access.current_context()
        return self if chosen is None else called(self, chosen)

    def _warn_of_ignored(self, key: Path) -> None:
        if ignored := access.ignored_by_folder(self.auth, key):
            names, are = " and ".join(ignored), "is" if len(ignored) == 1 else "are"
            self.warn(
                f"{names} {are} ignored: the folder selected the endpoint, and its local stack gets"
                f" its own API key only. To use {names}, name the API with --endpoint URL or"
                f" {access.ENDPOINT}."
            )

    def _signature(self, endpoint: str, stack: "StackInfo | EmbeddedInfo | None") -> "httpx2.Auth":
        try:
            return self.account().signature(endpoint, self.region)
        except CliError as error:
            if stack is not None:
                raise
            if not is_local(endpoint):
                raise access.without_credentials(endpoint, error) from error
            raise CliError(
                f"No local stack is up here to answer at {endpoint}.",
                "Start it with `nextfire up`, or change into the folder that it was started in.\n"
                f"Calls to another API on this machine need credentials: {error.problem}",
            ) from error


def called(caller: Session, context: "Context") -> Session:
    """*caller* with the endpoint and the credentials of *context*."""
    return replace(
        caller,
        endpoint=context.endpoint,
        key=context.key,
        auth=caller.auth or context.auth,
        profile=caller.profile or context.profile,
        region=caller.region or context.region,
    )


def has_local_stack() -> bool:
    """Whether the working folder or a parent has the files of a local stack."""
    return above(here(), STACK_FILE) is not None


def _info(root: Path) -> "StackInfo | EmbeddedInfo | None":
    """The local stack in the folder *root*.

    Raises:
        CliError: Its files cannot be trusted.
    """
    from nextfire_cli.local.embedded import EmbeddedStack

    embedded = EmbeddedStack(root / FOLDER).info()
    if embedded is not None:
        return embedded
    from nextfire_cli.local.stack import LocalStack

    return LocalStack(root).info()


def _key(endpoint: str, stack: "StackInfo | EmbeddedInfo | None", own: str | None) -> str | None:
    return access.find_key(endpoint, stack.key_file if stack else None, own)


def _same(named: str, found: str) -> bool:
    """Whether the local endpoints *named* and *found* are the same API."""
    import httpx2

    try:
        first, second = (httpx2.URL(e.rstrip("/").removesuffix("/v1")) for e in (named, found))
    except httpx2.InvalidURL:
        return False
    return (first.port, first.path) == (second.port, second.path)


def of(context: typer.Context) -> Session:
    return cast("Session", context.obj)


def local_root() -> Path:
    """The folder of the local stack: the checkout that contains the working folder, else the
    nearest folder with a running stack, else the working folder.
    """
    folder = here()
    return above(folder, _CHECKOUT) or above(folder, STACK_FILE) or folder


def sources() -> Path | None:
    """The checkout that contains the working folder, whose code runs; None: the installed code."""
    return above(here(), _CHECKOUT)


def project() -> Path:
    """The root of the checkout that contains the working folder.

    Raises:
        CliError: The working folder is not in a checkout.
    """
    root = sources()
    if root is None:
        raise CliError(
            f"{here()} is not in a checkout of nextfire.",
            "The emulator's stack is deployed from its sources: change into the checkout first.",
        )
    return root


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
