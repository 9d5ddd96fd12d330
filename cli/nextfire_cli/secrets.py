"""The commands of `nextfire secrets`: secrets and parameters of jobs."""

# Imported on first use: boto3 and the local stack take a second.
# ruff: noqa: PLC0415

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from nextfire.client import access
from nextfire.domain.places import tenant_place
from nextfire.domain.references import ParameterReference, Reference, SecretReference
from nextfire_cli import render, session
from nextfire_cli.confirmation import confirm, in_terminal
from nextfire_cli.errors import CliError, MissingError, reported
from nextfire_cli.shared_options import Yes

if TYPE_CHECKING:
    from nextfire.adapters.files.secrets import FileSecrets
    from nextfire_cli.aws_secrets import AccountSecrets
    from nextfire_cli.local.embedded import EmbeddedInfo
    from nextfire_cli.local.stack_info import StackInfo

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Store, list and delete the secrets that jobs refer to."""


Name = Annotated[str, typer.Argument(metavar="NAME", help="As in the job.", show_default=False)]
Pool = Annotated[str, typer.Option(help="The pool whose jobs may read it.")]


@app.command()
def put(
    context: typer.Context,
    name: Name,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Read the value from this file, [bold]-[/] for standard input. A line break at its"
            " end is not part of it. [dim]Default: asks in a terminal, else standard input[/]",
        ),
    ] = None,
    parameter: Annotated[
        bool, typer.Option("--parameter", help="Store a parameter instead of a secret.")
    ] = False,
    pool: Pool = "default",
) -> None:
    """Store a secret of the local stack, replacing any value. Runs that start later get it.

    The value is never an argument, which other users and the history of the shell could show. On
    AWS use Secrets Manager: aws secretsmanager create-secret.

    [bold]Examples[/]
      nextfire secrets put billing/key
      nextfire secrets put billing/key -f key.txt
      nextfire secrets put --parameter billing/url -f url.txt
    """
    caller = session.of(context)
    reference = _reference(name, parameter=parameter)
    noun = reference.noun
    stack = caller.stack()
    if stack is None:
        raise CliError(_NO_STACK, _on_aws(name, pool, noun))
    _check_pool(stack, pool)
    value = _value(file, noun)
    if stack.kind == "embedded":
        with reported():
            where = str(_files(stack, pool).store(stack.account_id, reference, value))
    else:
        where = caller.account().secrets(pool=pool, tenant=stack.account_id).store(reference, value)
    example = f'{{"{noun}": "{name}"}}'
    caller.show({"name": name, "pool": pool, "storedAs": where}, Text(f"Stored {noun} {name}."))
    caller.say(f"Jobs of the pool {pool} refer to it as {example}")


@app.command("list")
def list_(context: typer.Context, pool: Pool = "default") -> None:
    """List the names of the secrets and parameters of a pool, never their values.

    On AWS with your own AWS credentials, which need secretsmanager:ListSecrets and
    ssm:DescribeParameters; a secret that is scheduled for deletion is not listed.

    [bold]Examples[/]
      nextfire secrets list
      nextfire secrets list --pool calls
    """
    caller = session.of(context)
    stack = caller.stack()
    if stack is not None:
        _check_pool(stack, pool)
    if stack is not None and stack.kind == "embedded":
        with reported():
            names = _files(stack, pool).names(stack.account_id)
    else:
        names = _of_account(caller, pool).names()
    items = [{"kind": kind, "name": name} for kind, found in names.items() for name in found]
    caller.show({"items": items}, render.secrets(items, pool))


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    parameter: Annotated[
        bool, typer.Option("--parameter", help="Delete a parameter instead of a secret.")
    ] = False,
    pool: Pool = "default",
    yes: Yes = False,
) -> None:
    """Delete a secret or a parameter of a pool. Runs that need it fail, at most a minute later.

    On AWS with your own AWS credentials, which need secretsmanager:DeleteSecret or
    ssm:DeleteParameter. There a secret can be restored for 30 days; a parameter cannot.

    [bold]Examples[/]
      nextfire secrets delete billing/key
      nextfire secrets delete --parameter billing/url --yes
    """
    caller = session.of(context)
    reference = _reference(name, parameter=parameter)
    noun = reference.noun
    stack = caller.stack()
    if stack is not None:
        _check_pool(stack, pool)
    confirm(caller, f"Delete the {noun} {name} of the pool {pool}?", yes=yes)
    if stack is not None and stack.kind == "embedded":
        with reported():
            existed = _files(stack, pool).delete(stack.account_id, reference)
    else:
        existed = _of_account(caller, pool).delete(reference, recoverable=stack is None)
    if not existed:
        others = "" if pool == "default" else f" --pool {pool}"
        raise MissingError(
            f"The pool {pool} has no {noun} {name}.", f"See nextfire secrets list{others}"
        )
    caller.show({"name": name, "pool": pool}, Text(f"Deleted {noun} {name}."))


_NO_STACK = "No local stack is up here: this command stores secrets of the local stack only."


def _on_aws(name: str, pool: str, noun: str) -> str:
    place = f"nextfire/{tenant_place(pool, 'TENANT')}{name}"
    command = f"aws secretsmanager create-secret --name {place} --secret-string file://FILE"
    if noun == "parameter":
        command = f"aws ssm put-parameter --name /{place} --type SecureString --value file://FILE"
    return f"Start it with `nextfire up`. On AWS: {command}"


def _check_pool(stack: "StackInfo | EmbeddedInfo", pool: str) -> None:
    if pool not in stack.pools:
        known = ", ".join(stack.pools)
        raise typer.BadParameter(f"{pool!r} is not a pool; known: {known}.", param_hint="--pool")


def _reference(name: str, *, parameter: bool) -> Reference:
    try:
        return ParameterReference(parameter=name) if parameter else SecretReference(secret=name)
    except ValidationError as error:
        problem = (
            f"{name!r} is not a name: use segments of letters, digits and _+=@.-, separated by /,"
            " at most 256 characters. For example billing/key."
        )
        raise typer.BadParameter(problem, param_hint="NAME") from error


def _value(file: str | None, noun: str) -> str:
    if file is None and in_terminal():
        value: str = typer.prompt(f"Value of the {noun}", hide_input=True, err=True)
        return value
    given = "standard input" if file is None else "--file"
    try:
        data = sys.stdin.buffer.read() if file in {None, "-"} else Path(str(file)).read_bytes()
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        problem = f"cannot read {file or 'the value'}: {why}"
        raise typer.BadParameter(problem, param_hint=given) from error
    if not value or "\0" in value:
        problem = "the value is empty" if not value else "the value is not text"
        raise typer.BadParameter(problem, param_hint=given)
    return value


def _of_account(caller: session.Session, pool: str) -> "AccountSecrets":
    """The secrets of *pool* in the AWS account of the API that this call names, or of the emulator.

    Raises:
        CliError: No API is named: the user may mean a local stack, which does not run.
    """
    access.checked_endpoint(caller.api_endpoint())
    return caller.account().secrets(pool=pool, tenant=caller.tenant())


def _files(stack: "EmbeddedInfo", pool: str) -> "FileSecrets":
    from nextfire.adapters.files.secrets import FileSecrets
    from nextfire.adapters.files.stack_folder import SECRETS

    return FileSecrets(stack.key_file.parent / SECRETS, pool=pool)
