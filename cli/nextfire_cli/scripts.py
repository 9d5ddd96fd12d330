"""The commands of `nextfire scripts`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nextfire_cli import render, session
from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from nextfire_cli.aws import Account

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Bucket = Annotated[
    str | None,
    typer.Option(
        envvar="NEXTFIRE_SCRIPTS_BUCKET",
        help="The scripts bucket. [dim]Default: the local stack's[/]",
    ),
]


@app.command()
def push(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, show_default=False)],
    pool: Annotated[str, typer.Option(help="The pool whose jobs may name it.")] = "default",
    name: Annotated[
        str | None,
        typer.Option(help="What jobs call it (target.handler). [dim]Default: the file's name[/]"),
    ] = None,
    bucket: Bucket = None,
) -> None:
    """Upload a job script. Jobs that name it run the new text from their next run on.

    [bold]Examples[/]
      nextfire scripts push examples/hello.py
      nextfire scripts push build/report.py --pool batch --name nightly-report
    """
    caller = session.of(context)
    place = _place(caller, bucket)
    handler = name or file.stem
    url = place.account.push_script(place.bucket, f"{place.tenant}/{pool}/{handler}.py", file)
    caller.show({"url": url, "pool": pool, "handler": handler}, Text(render.escaped(url)))


@app.command("list")
def list_(context: typer.Context, bucket: Bucket = None) -> None:
    """List the uploaded scripts."""
    caller = session.of(context)
    place = _place(caller, bucket)
    items = [
        {
            "pool": script.pool,
            "handler": script.handler,
            "url": script.url,
            "size": script.size,
            "modifiedAt": script.modified_at.isoformat().replace("+00:00", "Z"),
        }
        for script in place.account.scripts(place.bucket, place.tenant)
    ]
    caller.show({"items": items}, render.scripts(items))


@dataclass(frozen=True)
class _Place:
    account: "Account"
    bucket: str
    tenant: str


def _place(caller: session.Session, bucket: str | None) -> _Place:
    stack = caller.stack()
    bucket = bucket or (stack.scripts_bucket if stack else None)
    if bucket is None:
        raise CliError(
            "It is not known where the scripts are.",
            "Give --bucket (the stack's output ScriptsBucket),\n"
            "or start the local stack with `nextfire up`.",
        )
    account = caller.account()
    return _Place(account, bucket, account.tenant())
