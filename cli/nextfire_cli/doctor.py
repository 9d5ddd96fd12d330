"""The command `nextfire doctor`: what is wrong with the setup of this machine, and what to do."""

import platform
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.util import find_spec

import typer

from nextfire import Client
from nextfire.adapters.files.stack_folder import DATA, DATABASE
from nextfire.client.errors import ApiError, UnreachableError
from nextfire.client.folder import FOLDER, above, here
from nextfire.client.version import version
from nextfire.domain.activity import short_of_space
from nextfire.domain.instants import isoformat
from nextfire.responses.meta import Health
from nextfire_cli import render, session
from nextfire_cli.errors import CliError
from nextfire_cli.remedies import in_words_of_the_command
from nextfire_cli.run_reindex import INCOMPLETE
from nextfire_cli.session import Session
from nextfire_cli.state import ANSWERS_WITHIN, SILENT, lost_watchers

_MOST_SKEW = timedelta(seconds=30)
"""AWS rejects signatures that are 5 minutes off. Instants that people compare are wrong earlier."""
_OPTIONAL = {
    "waitress": ("local", "the embedded stack: nextfire up"),
    "boto3": ("aws", "dead letters, the audit chain, signed requests"),
    "cryptography": ("signatures", "signed scripts and the audit chain"),
}
"""Packages of extras: the extra, and what needs it."""


class Verdict(StrEnum):
    """What a check found. A NOTE concerns some commands only."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def doctor(context: typer.Context) -> None:
    """Check the setup: the installation, the endpoint, the API, its clock and your credentials.
    Exit code 1: something is wrong.

    [bold]Examples[/]
      nextfire doctor
      nextfire doctor --endpoint https://example.execute-api.eu-central-1.amazonaws.com
    """
    caller = session.of(context)
    findings = [*_installation(), *_connection(caller)]
    document = {"checks": [asdict(each) for each in findings]}
    rows = [
        (each.check, each.verdict, each.found, each.remedy.replace("\n", " ")) for each in findings
    ]
    view = render.table(["check", "", "found", "what to do"], rows, folding=(2, 3))
    caller.show(document, view)
    if any(each.verdict is Verdict.PROBLEM for each in findings):
        raise typer.Exit(1)


def _installation() -> Iterator[CheckResult]:
    yield CheckResult(
        "installation", Verdict.OK, f"nextfire {version()}, Python {platform.python_version()}"
    )
    for package, (extra, what) in _OPTIONAL.items():
        if find_spec(package) is None:
            yield CheckResult(
                "installation",
                Verdict.NOTE,
                f"{package} is missing, for {what}",
                f"pip install 'nextfire[{extra}]'",
            )
    if shutil.which("node") is None:
        yield CheckResult(
            "installation",
            Verdict.NOTE,
            "Node.js is missing, for nextfire up --emulator and for deployments",
            "Install Node.js 20 or later.",
        )


def _connection(caller: Session) -> Iterator[CheckResult]:
    try:
        stack, endpoint = caller.stack(), caller.api_endpoint()
    except CliError as error:
        yield _problem("local stack", error)
        return
    if stack is not None:
        yield CheckResult("local stack", Verdict.OK, f"the {stack.kind} stack runs")
    else:
        yield from _stopped()
    embedded = False
    if stack is not None and stack.kind == "embedded":
        embedded = True
        yield from _parts(stack.parts())
        yield from _short("disk", short_of_space(stack.free_space()))
        yield from _short("open files", stack.few_open_files())
    try:
        client = caller.client(ANSWERS_WITHIN if embedded else None)
    except CliError as error:
        yield _problem("credentials" if endpoint else "endpoint", error)
        return
    yield CheckResult("endpoint", Verdict.OK, endpoint)
    answers = False
    try:
        before = datetime.now(UTC)  # noqa: TID251 — compared with the API's
        yield from _health(client.get_health(), before)
        answers = True
        client.get_quotas()
        yield CheckResult("credentials", Verdict.OK, "accepted")
        yield from _overview(client, embedded=embedded)
    except CliError as error:
        yield _api_problem(error, answers=answers, embedded=embedded)


def _health(found: Health, before: datetime) -> list[CheckResult]:
    """The API and its clock, from its answer to a request that was sent after *before*.

    Raises:
        CliError: The answer is that of another API.
    """
    try:
        api = CheckResult("API", Verdict.OK, f"responds: {found.status}")
        return [api, _clock(found.time, before)]
    except (AttributeError, TypeError, ValueError) as error:
        raise CliError(
            "It does not answer as an API of nextfire.",
            "Check endpoint=URL: the URL without /v1.",
        ) from error


def _api_problem(error: CliError, *, answers: bool, embedded: bool) -> CheckResult:
    """The problem of a failed call. *answers*: whether the API answered without credentials."""
    found = _problem("credentials" if answers and isinstance(error, ApiError) else "API", error)
    hangs = embedded and isinstance(error, UnreachableError)
    return replace(found, remedy=f"{SILENT[:1].upper()}{SILENT[1:]}.") if hangs else found


def _stopped() -> Iterator[CheckResult]:
    """A note of the data of an embedded stack that does not run."""
    root = above(here(), f"{FOLDER}/{DATA}/{DATABASE}")
    if root is not None:
        yield CheckResult(
            "local stack",
            Verdict.NOTE,
            f"is stopped: none of its jobs run until it is started again, with the data in "
            f"{root / FOLDER / DATA}",
            f"Start it: cd {root} && nextfire up",
        )


def _overview(client: Client, *, embedded: bool) -> Iterator[CheckResult]:
    """Nothing if the key may not read it."""
    try:
        overview = client.get_overview(minutes=1)
    except ApiError:
        return
    for name, state, then in lost_watchers(overview.document, embedded=embedded):
        yield CheckResult(
            name.removeprefix("the "),
            Verdict.PROBLEM,
            state,
            f"{then[:1].upper()}{then[1:]}.",
        )
    if (begins_at := overview.overview.begins_at) is not None:
        yield CheckResult(
            "overview",
            Verdict.NOTE,
            f"lacks runs that have not changed since {isoformat(begins_at)}",
            INCOMPLETE,
        )


def _parts(parts: dict[str, dict[str, object]]) -> Iterator[CheckResult]:
    for name, part in parts.items():
        if part["pid"] is None:
            yield CheckResult(
                name,
                Verdict.PROBLEM,
                f"does not run; it died {part['deaths']} times, last {part['lastDeath']}",
                f"It is started again soon. Read .nextfire/logs/{name}.log.",
            )


def _short(check: str, problems: Iterable[str]) -> Iterator[CheckResult]:
    """A problem for each of *problems*: a sentence with what is scarce, and one with the remedy."""
    for text in problems:
        found, _, remedy = text.partition(". ")
        yield CheckResult(check, Verdict.PROBLEM, found, f"{remedy}.")


def _clock(theirs: datetime, before: datetime) -> CheckResult:
    skew = max(theirs - datetime.now(UTC), before - theirs, timedelta())  # noqa: TID251 — as above
    if skew <= _MOST_SKEW:
        return CheckResult("clock", Verdict.OK, "agrees with the API's")
    return CheckResult(
        "clock",
        Verdict.PROBLEM,
        f"differs from the API's by {skew.total_seconds():.0f} s",
        "Synchronize this machine's clock: signed requests fail and times in tables mislead.",
    )


def _problem(check: str, error: CliError) -> CheckResult:
    remedy = in_words_of_the_command(error.remedy)
    return CheckResult(check, Verdict.PROBLEM, error.problem, remedy)
