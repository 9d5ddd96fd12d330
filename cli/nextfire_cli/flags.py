"""The flags that say what a job is: one set, of which each command takes what it needs."""

import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from nextfire.domain.job import (
    RETRIED,
    Backoff,
    MisfirePolicy,
    Overlap,
    Priority,
    RetryJitter,
)
from nextfire.domain.run import AttemptOutcome
from nextfire.domain.schedule import MAX_RUNS, Dst
from nextfire_cli.definition import WHEN, definition
from nextfire_cli.documents import Document

__all__ = ["WHEN", "one_of", "takes"]

_ONE = "When (one of them)"
_WITHIN = "When, more closely"
_RETRIES = "What follows a failed attempt"
_VARIABLES = "What the script finds in its environment"


C = TypeVar("C", bound=StrEnum)


def one_of(choices: Iterable[C]) -> Callable[[str], C]:
    """Reads a choice as files and the API spell it, or in lower case."""
    by_name = {choice.value: choice for choice in choices}

    def parse(text: str) -> C:
        if text.upper() not in by_name:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(by_name)}.")
        return by_name[text.upper()]

    return parse


File = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A job document in JSON or YAML, [bold]-[/] for standard input. "
        "Flags are put over what it says.",
    ),
]
Name = Annotated[str | None, typer.Option(help="What people call the job.")]
Cron = Annotated[
    str | None,
    typer.Option(
        metavar="EXPR",
        help="Run again and again: minute, hour, day of month, month, day of week.",
        rich_help_panel=_ONE,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="Run once: 2026-05-24T10:00:00Z; without an offset it is in --timezone.",
        rich_help_panel=_ONE,
    ),
]
In = Annotated[
    str | None,
    typer.Option(
        "--in",
        metavar="DURATION",
        help="Run once, so long from now: 5s, 90m, 1h30m, 2d or PT5S.",
        rich_help_panel=_ONE,
    ),
]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Again and again, so long after one another: 10s, 90m, 1h30m or PT90M.",
        rich_help_panel=_ONE,
    ),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        "--date",
        metavar="INSTANT",
        help="On dates; repeat it for each. As for --at; without a time it is midnight.",
        rich_help_panel=_ONE,
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="IANA name, e.g. Europe/Berlin. [dim]Default: UTC[/]"),
]
StartAt = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="None before; --every counts from it. As for --at.",
        rich_help_panel=_WITHIN,
    ),
]
EndAt = Annotated[
    str | None,
    typer.Option(metavar="INSTANT", help="None after. As for --at.", rich_help_panel=_WITHIN),
]
MaxRuns = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_RUNS, help="So many and no more.", rich_help_panel=_WITHIN),
]
DstChoice = Annotated[
    Dst | None,
    typer.Option(
        "--dst",
        parser=one_of(Dst),
        metavar="|".join(Dst),
        help="How often a time fires that comes twice. [dim]Default: ONCE[/]",
        rich_help_panel=_WITHIN,
    ),
]
Jitter = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Due up to so much later: 30s, 10m. [dim]Default: none[/]",
        rich_help_panel=_WITHIN,
    ),
]
Handler = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[@sha256:DIGEST]",
        help="The script to run, by its name in the pool; with @sha256:DIGEST pinned to these"
        " bytes ([bold]scripts push[/] prints it).",
    ),
]
Pool = Annotated[str | None, typer.Option(help="Whose executors run it. [dim]Default: default[/]")]
Payload = Annotated[
    str | None,
    typer.Option(metavar="JSON|@FILE", help="What the script is given; [bold]@-[/] reads stdin."),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Longest time of one attempt: seconds, or 90s, 10m, PT10M. [dim]Default: 300[/]",
    ),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        help="How often a run is tried. [dim]Default: 3[/]",
        rich_help_panel=_RETRIES,
    ),
]
BackoffChoice = Annotated[
    Backoff | None,
    typer.Option(
        "--backoff",
        parser=one_of(Backoff),
        metavar="|".join(Backoff),
        help="How the delay grows from attempt to attempt. [dim]Default: EXPONENTIAL[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryDelay = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="From the first attempt to the second: 0.5s, 10s, 5m. [dim]Default: 10s[/]",
        rich_help_panel=_RETRIES,
    ),
]
MaxRetryDelay = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="The longest from one to the next. [dim]Default: 1h, or the first delay[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryJitterChoice = Annotated[
    RetryJitter | None,
    typer.Option(
        "--retry-jitter",
        parser=one_of(RetryJitter),
        metavar="|".join(RetryJitter),
        help="FULL: each waits between nothing and the delay, so that what failed together is not "
        "tried together. [dim]Default: NONE[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryOn = Annotated[
    list[AttemptOutcome] | None,
    typer.Option(
        "--retry-on",
        parser=one_of(RETRIED),
        metavar="|".join(RETRIED),
        help="Try again only after these; repeat it for each. [dim]Default: all[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryExitCodes = Annotated[
    list[int] | None,
    typer.Option(
        "--retry-exit-code",
        metavar="N",
        min=-64,
        max=255,
        help="Of what FAILED, try again only after these exit codes; a signal's is negative. "
        "[dim]Default: any[/]",
        rich_help_panel=_RETRIES,
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME=VALUE", help="May be repeated.", rich_help_panel=_VARIABLES
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME=SECRET[#KEY]",
        help="From Secrets Manager, nextfire/pools/<pool>/<tenant>/SECRET; KEY: one value of a "
        "JSON object.",
        rich_help_panel=_VARIABLES,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=PARAMETER",
        help="From the SSM Parameter Store, /nextfire/pools/<pool>/<tenant>/PARAMETER.",
        rich_help_panel=_VARIABLES,
    ),
]
PriorityChoice = Annotated[
    Priority | None,
    typer.Option(
        "--priority",
        parser=one_of(Priority),
        metavar="|".join(Priority),
        help="Of what is due in the same second, the higher goes first. [dim]Default: NORMAL[/]",
    ),
]
Misfire = Annotated[
    MisfirePolicy | None,
    typer.Option(
        parser=one_of(MisfirePolicy),
        metavar="|".join(MisfirePolicy),
        help="Which runs that were missed, in an outage or a pause, are made up for. "
        "[dim]Default: RUN_LATEST[/]",
    ),
]
RelevancyWindow = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="A run that would start later than this after it was due is skipped: 1 s to 30 days, "
        "e.g. 30s, 10m; [bold]none[/] takes it away. [dim]Default: none[/]",
    ),
]
OverlapChoice = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        parser=one_of(Overlap),
        metavar="|".join(Overlap),
        help="When one is due while an earlier one has not ended: run both, wait, skip it, or "
        "cancel the earlier one. [dim]Default: ALLOW[/]",
    ),
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="May be repeated.")
]


def _document(
    cron: Cron = None,
    at: At = None,
    in_: In = None,
    every: Every = None,
    date: Dates = None,
    timezone: Timezone = None,
    start_at: StartAt = None,
    end_at: EndAt = None,
    max_runs: MaxRuns = None,
    dst: DstChoice = None,
    jitter: Jitter = None,
    file: File = None,
    handler: Handler = None,
    pool: Pool = None,
    payload: Payload = None,
    name: Name = None,
    timeout: Timeout = None,
    max_attempts: MaxAttempts = None,
    backoff: BackoffChoice = None,
    retry_delay: RetryDelay = None,
    max_retry_delay: MaxRetryDelay = None,
    retry_jitter: RetryJitterChoice = None,
    retry_on: RetryOn = None,
    retry_exit_code: RetryExitCodes = None,
    env: Env = None,
    secret: Secrets = None,
    parameter: Parameters = None,
    priority: PriorityChoice = None,
    misfire: Misfire = None,
    relevancy_window: RelevancyWindow = None,
    overlap: OverlapChoice = None,
    label: Labels = None,
) -> Document:
    """What the flags of a definition say."""
    return definition(
        file=file,
        name=name,
        cron=cron,
        at=at,
        in_=in_,
        every=every,
        dates=date or (),
        timezone=timezone,
        start_at=start_at,
        end_at=end_at,
        max_runs=max_runs,
        dst=dst,
        jitter=jitter,
        handler=handler,
        pool=pool,
        payload=payload,
        timeout=timeout,
        max_attempts=max_attempts,
        backoff=backoff,
        retry_delay=retry_delay,
        max_retry_delay=max_retry_delay,
        retry_jitter=retry_jitter,
        retry_on=retry_on or (),
        retry_exit_codes=retry_exit_code or (),
        env=env or (),
        secrets=secret or (),
        parameters=parameter or (),
        priority=priority,
        misfire=misfire,
        relevancy_window=relevancy_window,
        overlap=overlap,
        labels=label or (),
    )


_FLAGS = inspect.signature(_document).parameters


def takes(last: str = "label") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the flags of `_document`, up to *last*, in place of its parameter
    `document`, which is given what they say.
    """
    names = [*_FLAGS]
    flags = {name: _FLAGS[name] for name in names[: names.index(last) + 1]}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:  # noqa: ANN401 - whatever the flags are
            document = _document(**{name: given.pop(name) for name in flags})
            command(document=document, **given)

        parameters: list[inspect.Parameter] = []
        for name, own in inspect.signature(command).parameters.items():
            parameters += flags.values() if name == "document" else [own]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate
