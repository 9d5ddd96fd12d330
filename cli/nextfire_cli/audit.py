"""The commands of `nextfire audit`: the audit chain, listed and verified."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from nextfire.domain.chain import START, Batch, BrokenChainError, Event, Verified, verify
from nextfire_cli import session
from nextfire_cli.deployed_stack import account_of
from nextfire_cli.durations import in_utc, moment, present
from nextfire_cli.errors import CliError
from nextfire_cli.render.tables import table
from nextfire_cli.session import Session
from nextfire_cli.shared_options import PAST, PAST_FORMS, STACK, Stack

if TYPE_CHECKING:
    from nextfire_cli.audit_bucket import AuditBucket

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

_HEADERS = ("NUMBER", "AT", "TENANT", "PRINCIPAL", "OPERATION", "REFUSED", "TABLE", "ITEM")
_HASH = re.compile(r"[0-9a-f]{64}")
_EXAMPLE = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"

_SINCE = f"Events recorded at or after this: {PAST_FORMS}."


@app.command("verify")
def verify_(
    context: typer.Context,
    since: Annotated[
        str | None, typer.Option(metavar=PAST, help=f"{_SINCE} [dim]Default: all[/]")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="A head hash that an earlier call printed: its event must be in the chain.",
        ),
    ] = None,
    stack: Stack = None,
) -> None:
    """Check that no event of the audit chain was changed, removed or inserted.

    Reads the objects with your AWS credentials. Keep the head hash that it prints
    in another place and give it as --expect later: without it, the removal of the
    newest events cannot be detected.

    [bold]Examples[/]
      nextfire audit verify
      nextfire audit verify --stack Nextfire --since 30d --expect HASH
    """
    if expect is not None and not _HASH.fullmatch(expect):
        raise typer.BadParameter(
            f"{expect!r} is not a hash: give the 64 digits 0-9 and a-f that `nextfire audit verify`"
            f" prints as head hash, for example {_EXAMPLE}.",
            param_hint="--expect",
        )
    caller = session.of(context)
    found, has_expected = _verified(caller, stack, since, expect)
    if not has_expected:
        raise CliError(
            f"The audit chain is broken: no event has the expected hash {expect}.",
            "Events after it were removed or replaced. If --since is given, the event may be older:"
            " leave it out.",
        )
    caller.show(_document(found), _summary(found))


@app.command("list")
def list_(
    context: typer.Context,
    since: Annotated[str, typer.Option(metavar=PAST, help=_SINCE)] = "1d",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = 100,
    stack: Stack = None,
) -> None:
    """List the newest events of the audit chain, oldest first: who changed what, when.

    Nothing is verified. Reads the objects with your AWS credentials.

    [bold]Examples[/]
      nextfire audit list
      nextfire audit list --since 7d --limit 1000 --json
    """
    caller = session.of(context)
    bucket = _bucket(caller, stack)
    try:
        events: list[Event] = []
        for batch in bucket.batches(bucket.newest(_instant(since))):
            events[:0] = batch.events
            if len(events) >= limit:
                break
        events = events[-limit:]
    except BrokenChainError as error:
        raise _broken(error) from error
    caller.show({"items": events}, table(_HEADERS, map(_row, events)))


def _row(event: Event) -> tuple[object, ...]:
    by = event.get("by") or {}
    names = (by.get(name, "-") for name in ("tenant", "principal", "operation"))
    at = by.get("at") or event.get("writtenAt", "-")
    refused, name = by.get("status", ""), event.get("table", "-")
    return event.get("number", "-"), at, *names, refused, name, _item(event, by)


def _item(event: Event, by: Mapping[str, Any]) -> str:
    """The key of the item that was written, the tenant first: events store it sorted by name. Of a
    request that wrote no other item: the ids in its path.
    """
    key: dict[str, str] = event.get("item", {})
    if event.get("table") == "requests":
        key = by.get("resource") or {}
    return "/".join(key[name] for name in sorted(key, key=lambda name: name != "tenant"))


def _verified(
    caller: Session, stack: str | None, since: str | None, expect: str | None
) -> tuple[Verified, bool]:
    """Return what was verified, and whether it has an event with the hash *expect*."""
    bucket = _bucket(caller, stack)
    seen = expect is None
    try:
        numbers = bucket.numbers(_instant(since))

        def batches() -> Iterator[Batch]:
            nonlocal seen
            for batch in bucket.batches(numbers):
                seen = seen or any(event.get("hash") == expect for event in batch.events)
                yield batch

        return verify(batches(), after=None if numbers and numbers[0] > 1 else START), seen
    except BrokenChainError as error:
        raise _broken(error) from error


def _instant(since: str | None) -> datetime | None:
    return None if since is None else in_utc(moment(since, "--since", present()))


def _broken(error: BrokenChainError) -> CliError:
    return CliError(
        str(error),
        "The bucket keeps every version of an object: compare it with the version before. The log\n"
        "group of the function api and CloudTrail's data events show what happened.",
    )


def _bucket(caller: Session, stack: str | None) -> "AuditBucket":
    account = account_of(caller, stack)
    if account.region is None:
        raise CliError(
            "No local stack is up here, and no AWS region is given.",
            "Start a local stack with `nextfire up`, or name a deployed one and its region:"
            f" --stack {STACK} --region eu-central-1\n(or set AWS_REGION).",
        )
    outputs = account.outputs(stack or STACK)
    if "AuditBucket" not in outputs:
        raise CliError(
            f"The stack {stack or STACK!r} has no audit chain.", "Deploy this version of it."
        )
    return account.audit_bucket(outputs["AuditBucket"])


def _document(found: Verified) -> dict[str, object]:
    return {
        "verified": found.count,
        "first": _place(found.first),
        "last": _place(found.last),
        "headHash": found.last["hash"] if found.last else None,
    }


def _place(event: dict[str, object] | None) -> dict[str, object] | None:
    if event is None:
        return None
    return {name: event.get(name) for name in ("number", "writtenAt", "recordedAt")}


def _summary(found: Verified) -> Text:
    if found.first is None or found.last is None:
        return Text("No events.")
    return Text(
        f"{found.count} events verified, {found.first['number']} to {found.last['number']}\n"
        f"first      {found.first.get('recordedAt', '-')}\n"
        f"last       {found.last.get('recordedAt', '-')}\n"
        f"head hash  {found.last['hash']}"
    )
