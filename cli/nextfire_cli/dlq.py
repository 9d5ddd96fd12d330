"""The commands of `nextfire dlq`: the dead-letter queue of a pool."""

# Imported on first use: boto3 takes a second.

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from nextfire import Client
from nextfire.domain.activity import counted
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import isoformat
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.run import RunState
from nextfire_cli import render, session
from nextfire_cli.confirmation import confirm
from nextfire_cli.deployed_stack import account_of
from nextfire_cli.documents import Document
from nextfire_cli.durations import moment, present
from nextfire_cli.errors import ApiError, CliError, MissingError
from nextfire_cli.progress import progress
from nextfire_cli.session import Session
from nextfire_cli.shared_options import PAST, PAST_FORMS, STACK, Limit, Reason, Yes
from nextfire_cli.stack_outputs import pascal

if TYPE_CHECKING:
    from nextfire_cli.aws import DeadLetterQueue, Letter

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

AT_ONCE = 50
"""Number of executions that one request redrives."""
_SIDE_BY_SIDE = 5
_SHOWN_OF_A_BODY = 200
_UNNAMED = f"Start it with `nextfire up`, or name the stack on AWS, for example --stack {STACK}"
_HIDDEN = (
    "SQS returns at most 10 of a message group at a time, and none that another command holds."
)

Pool = Annotated[str, typer.Option(help="The pool.")]
Stack = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The CloudFormation stack that names the queue. [dim]Default: the local stack; "
        f"{STACK} if an endpoint or a context names the API[/]",
    ),
]
QueueUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="URL of the queue, if no stack names it."),
]


@app.command("list")
def list_(
    context: typer.Context,
    pool: Pool = "default",
    limit: Limit = 100,
    stack: Stack = None,
    queue_url: QueueUrl = None,
) -> None:
    """List the messages in a pool's dead-letter queue: run, reason and age.

    Changes nothing. Each message is hidden while the command runs, for two minutes at most. Uses
    your AWS credentials.

    [bold]Examples[/]
      nextfire dlq list
      nextfire dlq list --pool batch --stack Nextfire --json
    """
    caller = session.of(context)
    queue = _queue(caller, pool, stack, queue_url)
    held: dict[str, Letter] = {}
    with progress(caller, "messages", queue.count()[0]) as tell, _shown_again(queue, held):
        while len(held) < limit and _received(queue, held):
            tell(len(held))
    items = sorted(map(_document, held.values()), key=lambda item: str(item["sentAt"]))
    caller.show({"items": items[:limit]}, render.letters(items[:limit]))
    total = queue.count()[0]
    more = len(held) >= limit and total > limit
    caller.say_if_more(limit, more=more)
    if not more and total > len(held):
        caller.say(f"About {counted(total - len(held), 'more message')} not shown: {_HIDDEN}")


@app.command()
def redrive(
    context: typer.Context,
    pool: Pool = "default",
    since: Annotated[
        str,
        typer.Option(
            "--from",
            "--since",
            metavar=PAST,
            help=f"Runs that died at or after this: {PAST_FORMS}.",
        ),
    ] = "14d",
    reason: Reason = None,
    stack: Stack = None,
    queue_url: QueueUrl = None,
) -> None:
    """Redrive all dead runs of a pool and remove their messages from its dead-letter queue.

    Redrives the runs, latest death first, then deletes the messages of runs that have left the
    state DEAD. Messages stay if they are unreadable, of another tenant, or could not be redriven.
    The embedded stack has no such queue: its dead runs are redriven. Safe to interrupt and repeat:
    no run starts twice.

    [bold]Examples[/]
      nextfire dlq redrive
      nextfire dlq redrive --pool batch --since 12h --reason 'disk replaced'
    """
    caller = session.of(context)
    client = caller.client()
    named = stack is not None or queue_url is not None
    queue = None if not named and _is_embedded(caller) else _queue(caller, pool, stack, queue_url)
    tenant = caller.tenant()
    first = moment(since, "--since (--from)", present())
    done, left = _Redriven(has_queue=queue is not None), 0
    try:
        with progress(caller, "executions", None) as tell:
            for answer in _redriving(client, pool, first, reason):
                done.redriven += answer["redriven"]
                done.skipped += answer["skipped"]
                tell(len(done.redriven))
        if queue is not None:
            left = total = queue.count()[0]
            with progress(caller, "messages", total) as tell:
                for looked_at in _clearing(client, queue, tenant, done):
                    tell(looked_at)
                    left = total - looked_at
    except CliError as error:
        if not done.redriven:
            raise
        so_far = f"{len(done.redriven)} redriven so far: repeat the command to continue."
        raise CliError(error.problem, f"{error.remedy}\n{so_far}".strip()) from error
    caller.show(done.document(), done.view())
    if left > 0:
        caller.say(f"About {counted(left, 'more message')} not looked at: {_HIDDEN}")


@app.command()
def purge(
    context: typer.Context,
    pool: Pool = "default",
    yes: Yes = False,
    stack: Stack = None,
    queue_url: QueueUrl = None,
) -> None:
    """Delete all messages in a pool's dead-letter queue, of all tenants. Their runs stay DEAD.

    Deletes batch by batch. PurgeQueue is limited to one call per minute and would also delete
    messages that arrive meanwhile; this command keeps those.

    [bold]Examples[/]
      nextfire dlq purge --pool batch
      nextfire dlq purge --yes
    """
    caller = session.of(context)
    queue = _queue(caller, pool, stack, queue_url)
    total, until = queue.count()
    what = f"Delete about {total} messages from the dead-letter queue of the pool {pool}?"
    confirm(caller, what, yes=yes)
    deleted: set[str] = set()
    held: dict[str, Letter] = {}
    with progress(caller, "messages", total) as tell, _shown_again(queue, held):
        while letters := _received(queue, held):
            old = [each for each in letters if each.sent_at <= until]
            now_gone = queue.delete(old)
            deleted |= now_gone
            for message_id in now_gone:
                del held[message_id]
            tell(len(deleted))
    stay = f" {len(held)} came meanwhile and stay." if held else ""
    summary = Text(f"{counted(len(deleted), 'message')} deleted.{stay}")
    caller.show({"deleted": len(deleted), "kept": len(held)}, summary)


@dataclass
class _Redriven:
    """The result of `redrive`. `kept`: the messages that stay, each with the reason."""

    redriven: list[str] = field(default_factory=list)
    skipped: list[Document] = field(default_factory=list)
    deleted: int = 0
    has_queue: bool = True
    kept: list[Document] = field(default_factory=list)

    def document(self) -> Document:
        return {
            "redriven": self.redriven,
            "skipped": self.skipped,
            "deleted": self.deleted,
            "kept": self.kept,
        }

    def view(self) -> Text:
        messages = f", {counted(self.deleted, 'message')} deleted" if self.has_queue else ""
        text = Text(f"{counted(len(self.redriven), 'execution')} redriven{messages}.")
        for title, items in (("Not redriven", self.skipped), ("Kept", self.kept)):
            for each in items:
                name = each.get("executionId") or f"message {each['messageId']}"
                text.append(f"\n{title}: {render.escaped(name)}: {render.escaped(each['reason'])}")
        return text


def _redriving(client: Client, pool: str, first: str, reason: str | None) -> Iterator[Document]:
    cursor = None
    while True:
        answer = client.redrive_pool(
            pool, from_=first, limit=AT_ONCE, cursor=cursor, reason=reason
        ).document
        yield answer
        if not answer["more"]:
            return
        # Continue with earlier deaths: a run that dies again after its redrive is not found again.
        cursor = answer["cursor"]


def _clearing(
    client: Client, queue: "DeadLetterQueue", tenant: str, done: _Redriven
) -> Iterator[int]:
    """Delete the messages whose runs left the state DEAD; yield the number of messages checked."""
    held: dict[str, Letter] = {}
    looked_at = 0
    with _shown_again(queue, held), ThreadPoolExecutor(_SIDE_BY_SIDE) as executor:
        while letters := _received(queue, held):
            reasons = executor.map(lambda letter: _stays(client, letter, tenant), letters)
            stay = dict(zip(letters, reasons, strict=True))
            deleted = queue.delete(letter for letter, why in stay.items() if why is None)
            for letter, why in stay.items():
                if letter.message_id in deleted:
                    del held[letter.message_id]
                else:
                    kept = {"messageId": letter.message_id, "reason": why or "not deleted"}
                    if message := _message(letter):
                        kept["executionId"] = message.key.execution_id
                    done.kept.append(kept)
            done.deleted += len(deleted)
            looked_at += len(letters)
            yield looked_at


def _stays(client: Client, letter: "Letter", tenant: str) -> str | None:
    """Why the message *letter* stays; None: it can be deleted."""
    message = _message(letter)
    if message is None:
        return "unreadable; look at it with nextfire dlq list"
    if message.tenant != tenant:
        return f"of tenant {message.tenant}"
    try:
        run = client.get_execution(message.key.execution_id).document
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return "its execution was not found"
        return f"its execution cannot be looked at: {error.problem}"
    if run["state"] != RunState.DEAD or run.get("dispatch", 0) > message.dispatch:
        return None  # if the run died again, a newer message has that dispatch
    return "is DEAD"


def _message(letter: "Letter") -> RunMessage | None:
    try:
        return decode_message(letter.body)
    except UndecodableError:
        return None


def _document(letter: "Letter") -> Document:
    message = _message(letter)
    document: Document = {
        "messageId": letter.message_id,
        "sentAt": isoformat(letter.sent_at),
        "failure": letter.failure,
    }
    if message is None:
        return document | {"state": "UNREADABLE", "body": letter.body[:_SHOWN_OF_A_BODY]}
    return document | {
        "executionId": message.key.execution_id,
        "tenant": message.tenant,
        "dispatch": message.dispatch,
    }


def _received(queue: "DeadLetterQueue", held: dict[str, "Letter"]) -> list["Letter"]:
    """Receive messages that are not in *held*, and add them."""
    letters = [each for each in queue.receive() if each.message_id not in held]
    held |= {each.message_id: each for each in letters}
    return letters


@contextlib.contextmanager
def _shown_again(queue: "DeadLetterQueue", held: dict[str, "Letter"]) -> Iterator[None]:
    """At the end, make the messages in *held* visible again."""
    try:
        yield
    finally:
        queue.show(held.values())


def _is_embedded(caller: Session) -> bool:
    return (local := caller.stack()) is not None and local.kind == "embedded"


def _queue(
    caller: Session, pool: str, stack: str | None, queue_url: str | None
) -> "DeadLetterQueue":
    """The dead-letter queue of *pool*.

    Raises:
        CliError: The stack has no dead-letter queues, or cannot be read; or none is named.
        MissingError: It has no such pool, or does not exist.
    """
    if stack is None and queue_url is None and _is_embedded(caller):
        raise CliError(
            "The embedded stack has no dead-letter queues.",
            "List the dead runs: nextfire runs list --state DEAD\n"
            "Redrive all of a pool: nextfire dlq redrive",
        )
    local = caller.emulator() if stack is None else None
    if queue_url is not None:
        return caller.account().dead_letters(queue_url)
    if stack is None and not caller.api_endpoint():
        raise CliError("No local stack is up here, and no stack on AWS is named.", _UNNAMED)
    if local is not None:
        urls = {name: info.dlq_url for name, info in local.pools.items()}
        account = caller.account()
    else:
        account = account_of(caller, stack or STACK)
        urls = {
            key.removeprefix("DlqUrl"): url
            for key, url in account.outputs(stack or STACK).items()
            if key.startswith("DlqUrl")
        }
        pool = pascal(pool)
    if pool not in urls:
        raise MissingError(
            f"The stack has no pool {pool!r}.", f"Its pools: {', '.join(sorted(urls)) or 'none'}."
        )
    return account.dead_letters(urls[pool])
