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
        help="A job document in JSON or YAML, [bold]-[/] for standard input. Flags override it.",
    ),
]
Name = Annotated[str | None, typer.Option(help="Display name of the job.")]
Cron = Annotated[
    str | None,
    typer.Option(
        metavar="EXPR",
        help="Repeat by a cron expression: minute, hour, day of month, month, day of week.",
        rich_help_panel=_ONE,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="Run once at this instant: 2026-05-24T10:00:00Z. Without an offset: in --timezone.",
        rich_help_panel=_ONE,
    ),
]
In = Annotated[
    str | None,
    typer.Option(
        "--in",
        metavar="DURATION",
        help="Run once after this delay: 5s, 90m, 1h30m, 2d or PT5S.",
        rich_help_panel=_ONE,
    ),
]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Repeat at this interval: 10s, 90m, 1h30m or PT90M.",
        rich_help_panel=_ONE,
    ),
]
Dates = Annotated[
    list[str] | None,
    typer.Option(
        "--date",
        metavar="INSTANT",
        help=(
            "Run on these dates; repeat the option for each. Format as --at; without a time: "
            "midnight."
        ),
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
        help="First instant at which it may run; --every counts from it. Format as --at.",
        rich_help_panel=_WITHIN,
    ),
]
EndAt = Annotated[
    str | None,
    typer.Option(
        metavar="INSTANT",
        help="Last instant at which it may run. Format as --at.",
        rich_help_panel=_WITHIN,
    ),
]
MaxRuns = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_RUNS, help="Maximum number of runs.", rich_help_panel=_WITHIN),
]
DstChoice = Annotated[
    Dst | None,
    typer.Option(
        "--dst",
        parser=one_of(Dst),
        metavar="|".join(Dst),
        help="How often to run at a local time that a clock change repeats. [dim]Default: ONCE[/]",
        rich_help_panel=_WITHIN,
    ),
]
Jitter = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Delay each run by a random time up to this: 30s, 10m. [dim]Default: none[/]",
        rich_help_panel=_WITHIN,
    ),
]
Handler = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[@sha256:DIGEST]",
        help="Name of the script in the pool. @sha256:DIGEST pins it to those bytes "
        "(printed by [bold]scripts push[/]).",
    ),
]
Pool = Annotated[str | None, typer.Option(help="The pool that runs it. [dim]Default: default[/]")]
Payload = Annotated[
    str | None,
    typer.Option(metavar="JSON|@FILE", help="Input of the script; [bold]@-[/] reads stdin."),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Timeout of one attempt: seconds, or 90s, 10m, PT10M. [dim]Default: 300[/]",
    ),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        help="Maximum number of attempts of a run. [dim]Default: 3[/]",
        rich_help_panel=_RETRIES,
    ),
]
BackoffChoice = Annotated[
    Backoff | None,
    typer.Option(
        "--backoff",
        parser=one_of(Backoff),
        metavar="|".join(Backoff),
        help="How the delay grows between attempts. [dim]Default: EXPONENTIAL[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryDelay = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Delay before the second attempt: 0.5s, 10s, 5m. [dim]Default: 10s[/]",
        rich_help_panel=_RETRIES,
    ),
]
MaxRetryDelay = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Maximum delay between attempts. [dim]Default: 1h, or the first delay[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryJitterChoice = Annotated[
    RetryJitter | None,
    typer.Option(
        "--retry-jitter",
        parser=one_of(RetryJitter),
        metavar="|".join(RetryJitter),
        help="FULL: wait a random part of the delay, so that runs that failed together are not "
        "retried together. [dim]Default: NONE[/]",
        rich_help_panel=_RETRIES,
    ),
]
RetryOn = Annotated[
    list[AttemptOutcome] | None,
    typer.Option(
        "--retry-on",
        parser=one_of(RETRIED),
        metavar="|".join(RETRIED),
        help="Retry only after these outcomes; repeat the option for each. [dim]Default: all[/]",
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
        help="Retry FAILED attempts only with these exit codes; signals are negative. "
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
        help="Secret in Secrets Manager, nextfire/pools/<pool>/<tenant>/SECRET. KEY: one member "
        "of a JSON object.",
        rich_help_panel=_VARIABLES,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=PARAMETER",
        help="Parameter in the SSM Parameter Store, /nextfire/pools/<pool>/<tenant>/PARAMETER.",
        rich_help_panel=_VARIABLES,
    ),
]
PriorityChoice = Annotated[
    Priority | None,
    typer.Option(
        "--priority",
        parser=one_of(Priority),
        metavar="|".join(Priority),
        help="Runs that are due in the same second start in this order. [dim]Default: NORMAL[/]",
    ),
]
Misfire = Annotated[
    MisfirePolicy | None,
    typer.Option(
        parser=one_of(MisfirePolicy),
        metavar="|".join(MisfirePolicy),
        help="Which runs missed in an outage or a pause still run. [dim]Default: RUN_LATEST[/]",
    ),
]
RelevancyWindow = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Skip a run that would start later than this after it was due: 1 s to 30 days, "
        "e.g. 30s, 10m; [bold]none[/] removes it. [dim]Default: none[/]",
    ),
]
OverlapChoice = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        parser=one_of(Overlap),
        metavar="|".join(Overlap),
        help="What to do if a run is due while an earlier one has not ended: run both, wait, "
        "skip it, or cancel the earlier one. [dim]Default: ALLOW[/]",
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
