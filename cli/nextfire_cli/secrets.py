"""The commands of `nextfire secrets`: secrets and parameters of the local stack."""

# Imported on first use: boto3 and the local stack take a second.
# ruff: noqa: PLC0415

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from nextfire.domain.errors import NextfireError
from nextfire.domain.places import tenant_place
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire_cli import session
from nextfire_cli.confirmation import in_terminal
from nextfire_cli.errors import CliError

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Store the secrets that jobs of the local stack refer to."""


@app.command()
def put(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in the job.", show_default=False)],
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
    pool: Annotated[str, typer.Option(help="The pool whose jobs may read it.")] = "default",
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
    noun = "parameter" if parameter else "secret"
    stack = caller.stack()
    if stack is None:
        raise CliError(_NO_STACK, _on_aws(name, pool, noun))
    if pool not in stack.pools:
        known = ", ".join(stack.pools)
        raise typer.BadParameter(f"{pool!r} is not a pool; known: {known}.", param_hint="--pool")
    value = _value(file, noun)
    if stack.kind == "embedded":
        where = _into_file(stack.key_file.parent, pool, stack.account_id, reference, value)
    else:
        where = f"nextfire/{tenant_place(pool, stack.account_id)}{name}"
        caller.account().put_secret(where, value, parameter=parameter)
    example = f'{{"{noun}": "{name}"}}'
    caller.show({"name": name, "pool": pool, "storedAs": where}, Text(f"Stored {noun} {name}."))
    caller.say(f"Jobs refer to it in target.env: {example}")


_NO_STACK = "No local stack is up here: this command stores secrets of the local stack only."


def _on_aws(name: str, pool: str, noun: str) -> str:
    place = f"nextfire/{tenant_place(pool, 'TENANT')}{name}"
    command = f"aws secretsmanager create-secret --name {place} --secret-string file://FILE"
    if noun == "parameter":
        command = f"aws ssm put-parameter --name /{place} --type SecureString --value file://FILE"
    return f"Start it with `nextfire up`. On AWS: {command}"


def _reference(name: str, *, parameter: bool) -> SecretReference | ParameterReference:
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
    try:
        data = sys.stdin.buffer.read() if file in {None, "-"} else Path(str(file)).read_bytes()
        value = data.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"cannot read {file}: {why}", param_hint="--file") from error
    if not value or "\0" in value:
        problem = "the value is empty" if not value else "the value is not text"
        raise typer.BadParameter(problem, param_hint="--file")
    return value


def _into_file(
    data: Path, pool: str, tenant: str, reference: SecretReference | ParameterReference, value: str
) -> str:
    from nextfire.adapters.files.secrets import FileSecrets
    from nextfire.adapters.files.stack_folder import SECRETS

    try:
        return str(FileSecrets(data / SECRETS, pool=pool).store(tenant, reference, value))
    except NextfireError as error:
        raise CliError(str(error)) from error
