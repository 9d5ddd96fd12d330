"""The commands of `nextfire keys`."""

# Imported on first use: boto3 takes a second.
# ruff: noqa: PLC0415

import contextlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nextfire.client.access import API_KEY, ENDPOINT, is_local, key_file
from nextfire.client.errors import InvalidValueError
from nextfire.domain.errors import InvalidInputError, NextfireError
from nextfire.domain.instants import isoformat
from nextfire.domain.keys import DEFAULT_LIFE, DEFAULT_OVERLAP, MAX_LIFE, MAX_OVERLAP, Minted, Scope
from nextfire.domain.restriction import Restriction, restriction
from nextfire_cli import render, session
from nextfire_cli.deployed_stack import account_of
from nextfire_cli.documents import Document, first
from nextfire_cli.durations import whole_seconds
from nextfire_cli.errors import CliError, reported
from nextfire_cli.job_files import read_labels
from nextfire_cli.session import Session
from nextfire_cli.shared_options import STACK, Limit

if TYPE_CHECKING:
    from nextfire_cli.aws import Account

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", show_default=False)]
Save = Annotated[
    bool,
    typer.Option(
        "--save",
        help="Do not print the key; save it, readable by you only, where this command looks for "
        "the key of that API.",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help=f"Lifetime: 12h, 90d. [dim]Default: {DEFAULT_LIFE.days}d[/]",
    ),
]


@app.command()
def create(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of its holder.", show_default=False)
    ],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            metavar=f"<{'|'.join(Scope)}>",
            help="Permissions; repeat for several. Each includes read; write is upload and run;"
            " admin is everything. [dim]Default: write; with --first admin[/]",
        ),
    ] = None,
    cidr: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="Restrict it to this network, such as 203.0.113.0/24; repeat for several."
            " [dim]Default: any network[/]",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Restrict it to jobs with this label; repeat for several: all of them. "
            "[dim]Default: all jobs[/]",
        ),
    ] = None,
    expires: Expires = None,
    first: Annotated[
        bool,
        typer.Option(
            "--first",
            help="Write it to the stack's table with your AWS credentials, without the API. For "
            "the first key, or if all others are lost.",
        ),
    ] = False,
    tenant: Annotated[
        str | None,
        typer.Option(help="With --first: the tenant. [dim]Default: the id of the AWS account[/]"),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --first: the CloudFormation stack, usually Nextfire."
            " [dim]Default: the local stack[/]",
        ),
    ] = None,
    save: Save = False,
) -> None:
    """Create an API key. The key is printed once, to standard output, and not stored.

    [bold]Examples[/]
      nextfire keys create admin --first --stack Nextfire --save  the first key
      nextfire keys create ci --expires 30d
      nextfire keys create dashboard --scope read
      nextfire keys create deploy --scope upload --cidr 203.0.113.0/24
      nextfire keys create etl --scope run --label team=etl
    """
    caller = session.of(context)
    seconds = _life(expires) or int(DEFAULT_LIFE.total_seconds())
    labels = read_labels(label or [])
    if first:
        restricted = _restriction(cidr or [], labels)
        wanted = scope or [Scope.ADMIN]
        made, endpoint = _first(caller, name, wanted, seconds, tenant, stack, restricted)
    elif tenant is not None or stack is not None:
        raise typer.BadParameter("goes with --first", param_hint="--tenant, --stack")
    else:
        new = caller.client().create_key(
            name,
            [each.value for each in scope or [Scope.WRITE]],
            expires_in_sec=seconds,
            cidrs=cidr or None,
            labels=labels or None,
        )
        made, endpoint = new.document, caller.api_endpoint()
    _hand_over(caller, made, made, endpoint, save=save)


@app.command("list")
def list_(
    context: typer.Context,
    limit: Limit = 100,
) -> None:
    """List your tenant's API keys, including expired and revoked ones.

    [bold]Example[/]
      nextfire keys list
    """
    caller = session.of(context)
    items, more = first(limit, caller.client().list_keys)
    caller.show({"items": items, "more": more}, render.keys(items))
    if more:
        caller.say(f"There are more: --limit {limit * 2}")


@app.command()
def revoke(context: typer.Context, key_id: KeyId) -> None:
    """Revoke an API key. Takes effect within a minute.

    [bold]Example[/]
      nextfire keys revoke 3f9c0a77d1e2b456
    """
    caller = session.of(context)
    key = caller.client().revoke_key(key_id).document
    caller.show(key, render.key(key))


@app.command()
def rotate(
    context: typer.Context,
    key_id: KeyId,
    overlap: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long the old key stays valid: 0, 1h, 7d."
            f" [dim]Default: {DEFAULT_OVERLAP.days}d[/]",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Lifetime of the new key. [dim]Default: that of the old key[/]",
        ),
    ] = None,
    save: Save = False,
) -> None:
    """Create a successor of an API key, with the same scopes and restrictions. The old key
    expires after the overlap.

    [bold]Example[/]
      nextfire keys rotate 3f9c0a77d1e2b456 --overlap 2d
    """
    caller = session.of(context)
    most = int(MAX_OVERLAP.total_seconds())
    both = caller.client().rotate_key(
        key_id,
        overlap_sec=None if overlap is None else whole_seconds(overlap, "--overlap", 0, most),
        expires_in_sec=_life(expires),
    )
    answer = both.document
    caller.say(f"The key {key_id} expires at {answer['old']['expiresAt']}.")
    _hand_over(caller, answer, answer["new"], caller.api_endpoint(), save=save)


def _life(expires: str | None) -> int | None:
    if expires is None:
        return None
    return whole_seconds(expires, "--expires", 60, int(MAX_LIFE.total_seconds()))


def _restriction(cidrs: list[str], labels: dict[str, str]) -> Restriction:
    try:
        return restriction(cidrs, labels)
    except NextfireError as error:
        raise typer.BadParameter(str(error), param_hint="--cidr, --label") from error


def _first(
    caller: Session,
    name: str,
    scopes: list[Scope],
    seconds: int,
    tenant: str | None,
    stack: str | None,
    restricted: Restriction,
) -> tuple[Document, str]:
    """Store a key in the table. Return it as the API would, and the URL of the API."""
    from nextfire.usecases.manage_keys import ManageKeys, new_key_id
    from nextfire_cli.aws_errors import explained

    account = _account(caller, stack)
    outputs = account.outputs(stack or STACK)
    if outputs.get("Auth") != "keys" or "KeysTable" not in outputs:
        raise CliError(
            "The stack's API takes no API keys.",
            'It is deployed with another "auth" in cdk.json, or is older than API keys.',
        )
    now = datetime.now(UTC)  # noqa: TID251 — the table has no clock
    local = caller.stack() if stack is None else None
    manage = ManageKeys(account.key_store(outputs["KeysTable"]))
    remedy = "Your credentials need dynamodb:PutItem on the stack's table of keys."
    with reported(), explained("The key cannot be stored", remedy):
        try:
            made = manage.create(
                tenant or account.tenant(),
                key_id=new_key_id(),
                name=name,
                scopes=scopes,
                now=now,
                life=timedelta(seconds=seconds),
                restriction=restricted,
            )
        except InvalidInputError as error:
            raise InvalidValueError(str(error)) from error
    if not isinstance(made, Minted):  # the random id is in use
        raise CliError("The key was not created.", "Try again.")
    document = {
        "keyId": made.key.key_id,
        "tenant": made.key.tenant,
        "name": made.key.name,
        "scopes": [each.value for each in scopes],
        "state": made.key.state(now).value,
        "createdAt": isoformat(made.key.created_at),
        "expiresAt": isoformat(made.key.expires_at),
        "key": made.text,
    }
    return document, local.endpoint if local else outputs["ApiUrl"]


def _account(caller: Session, stack: str | None) -> "Account":
    if stack is None and caller.stack() is None:
        raise CliError(
            "No local stack is up here.",
            f"Start one with `nextfire up`, or name a deployed one: --stack {STACK}.",
        )
    return account_of(caller, stack)


def _hand_over(
    caller: Session, document: Document, made: Document, endpoint: str, *, save: bool
) -> None:
    """Print or save the text of the key *made*."""
    text = made.get("key")
    if text is None:
        caller.show(document, render.key(made))
        raise CliError(
            "An earlier answer had the text of this key.",
            f"If that is lost: nextfire keys rotate {made['keyId']}",
        )
    file = key_file(endpoint)
    about = f"Key {made['keyId']}: {', '.join(made['scopes'])}, valid until {made['expiresAt']}."
    if save:
        _write(file, text)
        del made["key"]
        caller.show(document | {"file": str(file)}, render.key(made))
        caller.say(f"{about}\nIt is in {file}, {_who_reads(endpoint)}")
        return
    caller.show(document, Text(text))
    caller.say(
        f"{about}\nThis is the only time that it is shown. Keep it where only its user can read it."
        f"\n{_how_to_use(endpoint, file)}\nOther clients send it as `Authorization: Bearer KEY`."
    )


def _who_reads(endpoint: str) -> str:
    if not is_local(endpoint):
        return "which this command reads."
    return (
        "which this command reads outside the folder of the local stack, with\n"
        f"--endpoint '{endpoint}'. In that folder it uses the stack's own key."
    )


def _how_to_use(endpoint: str, file: Path) -> str:
    if not is_local(endpoint):
        return f"This command reads it from {API_KEY}, or from the file {file} (mode 600)."
    return (
        f"This command reads it from {API_KEY}; name the API with --endpoint or {ENDPOINT}:\n"
        f"{API_KEY}=KEY nextfire jobs list --endpoint '{endpoint}'\n"
        "Without an endpoint, this command uses the stack's own key in its folder."
    )


def _write(file: Path, text: str) -> None:
    """Write *text* to *file*, which is never readable by other users."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.touch(mode=0o600, exist_ok=False)
        fresh.write_text(f"{text}\n", encoding="ascii")
        fresh.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise CliError(
            f"The key cannot be saved in {file}: {error.strerror}. It is not shown.",
            "Revoke it and create another: nextfire keys list",
        ) from error
