"""Job documents from flags and files."""

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import typer
import yaml

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import (
    MAX_RETRY_DELAY_MS,
    MAX_WINDOW_SEC,
    Backoff,
    MisfirePolicy,
    Overlap,
    Priority,
    RetryJitter,
)
from nextfire.domain.run import AttemptOutcome
from nextfire.domain.schedule import MAX_DELAY, MAX_JITTER, Dst, parse_duration
from nextfire_cli.documents import Document

WHEN = "--cron, --at, --in, --every, --date"
"""Of these flags a job has one."""
MAX_TIMEOUT_SEC = 39_600
_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_INNER = frozenset({"retryOn", "env"})
"""Objects within objects over which flags are put one by one."""
_SPAN = re.compile(
    r"(?=.)(?:(?P<W>\d+)w)?(?:(?P<D>\d+)d)?(?P<T>(?:\d+h)?(?:\d+m)?(?:\d+(?:\.\d+)?s)?)"
)
_NOTHING = re.compile(r"P(?=.*0)(?:0+[WD])*(?:T(?:0+(?:\.0+)?[HMS])+)?")


def definition(
    *,
    file: str | None = None,
    name: str | None = None,
    cron: str | None = None,
    at: str | None = None,
    in_: str | None = None,
    every: str | None = None,
    dates: Sequence[str] = (),
    timezone: str | None = None,
    start_at: str | None = None,
    end_at: str | None = None,
    max_runs: int | None = None,
    dst: Dst | None = None,
    jitter: str | None = None,
    handler: str | None = None,
    pool: str | None = None,
    payload: str | None = None,
    timeout: str | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    retry_delay: str | None = None,
    max_retry_delay: str | None = None,
    retry_jitter: RetryJitter | None = None,
    retry_on: Sequence[AttemptOutcome] = (),
    retry_exit_codes: Sequence[int] = (),
    env: Sequence[str] = (),
    secrets: Sequence[str] = (),
    parameters: Sequence[str] = (),
    priority: Priority | None = None,
    misfire: MisfirePolicy | None = None,
    relevancy_window: str | None = None,
    overlap: Overlap | None = None,
    labels: Sequence[str] = (),
) -> Document:
    """What *file* says, with what the flags say put over it. Fields that neither names are absent.

    Raises:
        typer.BadParameter: A value cannot be read, or flags contradict each other.
    """
    document = _read_document(file) if file else {}
    document |= _schedule(cron, at, in_, every, dates)
    document |= _given(
        name=name,
        timezone=timezone,
        startAt=start_at,
        endAt=end_at,
        maxRuns=max_runs,
        dst=dst and dst.value,
        priority=priority and priority.value,
        overlap=overlap and overlap.value,
    )
    if jitter is not None:
        document["jitterSec"] = whole_seconds(jitter, "--jitter", 0, MAX_JITTER // _SECOND)
    if payload is not None:
        document["payload"] = read_payload(payload)
    if timeout is not None:
        document["timeoutSec"] = whole_seconds(timeout, "--timeout", 1, MAX_TIMEOUT_SEC)
    retry_policy = _given(
        maxAttempts=max_attempts,
        backoff=backoff and backoff.value,
        initialDelayMs=_milliseconds(retry_delay, "--retry-delay"),
        maxDelayMs=_milliseconds(max_retry_delay, "--max-retry-delay"),
        jitter=retry_jitter and retry_jitter.value,
        retryOn=_given(
            states=[state.value for state in retry_on] or None,
            exitCodes=[*retry_exit_codes] or None,
        )
        or None,
    )
    variables = _environment(env, secrets, parameters) or None
    for field, part in (
        ("target", _given(handler=handler, pool=pool, env=variables)),
        ("retryPolicy", retry_policy),
        ("misfire", _given(policy=misfire and misfire.value) | _window(relevancy_window)),
        ("labels", read_labels(labels)),
    ):
        if part:
            document[field] = _over(document.get(field) or {}, part)
    return document


def moment(text: str, flag: str, now: datetime) -> str:
    """The instant that *text* names: itself, or so long ago: ``12h``, ``P2D``.

    Raises:
        typer.BadParameter: It is neither, or so long ago that there is no such instant.
    """
    with contextlib.suppress(ValueError):
        datetime.fromisoformat(text)
        return text
    try:
        return isoformat(now - parse_duration(_iso_8601(text), flag))
    except (InvalidInputError, OverflowError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a span. Write 30m, 12h, 2d or PT12H, or an instant.", param_hint=flag
        ) from error


def _over(document: object, part: Document) -> Document:
    """*document* with *part* put over it."""
    merged: Document = dict(document) if isinstance(document, dict) else {}
    for name, value in part.items():
        merged[name] = _over(merged.get(name), value) if name in _INNER else value
    return merged


def iso_duration(text: str, flag: str) -> str:
    """``5s``, ``1h30m`` or ``2d`` in ISO 8601; what is ISO 8601 already stays as it is.

    Raises:
        typer.BadParameter: It is neither.
    """
    duration = _iso_8601(text)
    try:
        parse_duration(duration, flag)
    except InvalidInputError as error:
        raise typer.BadParameter(
            f"{text!r} is not a duration from 0.001 s to {MAX_DELAY.days} days. "
            "Write 5s, 90m, 1h30m, 2d or PT5S.",
            param_hint=flag,
        ) from error
    return duration


def _iso_8601(text: str) -> str:
    match = _SPAN.fullmatch(text.strip().lower())
    if not match:
        return text.upper()
    date = "".join(f"{match[unit]}{unit}" for unit in "WD" if match[unit])
    return f"P{date}" + (f"T{match['T'].upper()}" if match["T"] else "")


def _length(text: str, flag: str) -> timedelta:
    """Seconds as a number, or a duration as `iso_duration` takes it; here it may be nothing.

    Raises:
        InvalidInputError, OverflowError, ValueError: It is neither.
    """
    if text.isdecimal():
        return int(text) * _SECOND
    duration = _iso_8601(text)
    return timedelta() if _NOTHING.fullmatch(duration) else parse_duration(duration, flag)


def _schedule(
    cron: str | None, at: str | None, in_: str | None, every: str | None, dates: Sequence[str]
) -> Document:
    given: list[Document] = []
    if cron is not None:
        given.append({"type": "CRON", "schedule": cron})
    if at is not None:
        given.append({"type": "ONCE", "schedule": at})
    if in_ is not None:
        given.append({"type": "DELAY", "schedule": iso_duration(in_, "--in")})
    if every is not None:
        given.append({"type": "INTERVAL", "schedule": iso_duration(every, "--every")})
    if dates:
        given.append({"type": "DATES", "schedule": [*dates]})
    if len(given) > 1:
        raise typer.BadParameter("give one of them", param_hint=WHEN)
    return given[0] if given else {}


def whole_seconds(text: str, flag: str, least: int, most: int) -> int:
    """Seconds as a number, or a duration as `iso_duration` takes it; *least* to *most* of them.

    Raises:
        typer.BadParameter: It is neither, not whole seconds, or out of bounds.
    """
    try:
        length = _length(text, flag)
    except (InvalidInputError, OverflowError, ValueError):
        length = timedelta.max  # which is out of all bounds
    seconds, rest = divmod(length, _SECOND)
    if rest or not least <= seconds <= most:
        raise typer.BadParameter(
            f"{text!r} is not a duration in whole seconds from {least} s to {_told(most)}. "
            "Write 30, 30s, 10m, 30d or PT10M.",
            param_hint=flag,
        )
    return seconds


def _milliseconds(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        length = _length(text, flag)
    except (InvalidInputError, OverflowError, ValueError):
        length = timedelta.max  # which is out of all bounds
    milliseconds = length // _MILLISECOND
    if milliseconds > MAX_RETRY_DELAY_MS:
        raise typer.BadParameter(
            f"{text!r} is not a duration from 0 s to {MAX_DELAY.days} days. "
            "Write 30, 0.5s, 10m, 6h or PT10M.",
            param_hint=flag,
        )
    return milliseconds


def _environment(
    env: Sequence[str], secrets: Sequence[str], parameters: Sequence[str]
) -> dict[str, object]:
    """Variables by name, as a job document has them.

    Raises:
        typer.BadParameter: One is no pair, or two have one name.
    """
    found: dict[str, object] = {}
    for flag, pairs in (("--env", env), ("--secret", secrets), ("--parameter", parameters)):
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not name or not equals:
                raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=flag)
            if name in found:
                raise typer.BadParameter(f"{name} is given twice", param_hint=flag)
            found[name] = value
            if flag == "--parameter":
                found[name] = {"parameter": value}
            elif flag == "--secret":
                secret, _, key = value.partition("#")
                found[name] = {"secret": secret, **({"key": key} if key else {})}
    return found


def _told(seconds: int) -> str:
    """``30 days``, ``1 hour``, ``90 s``."""
    for unit, length in (("day", 86_400), ("hour", 3_600)):
        count, rest = divmod(seconds, length)
        if count and not rest:
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{seconds} s"


def _window(text: str | None) -> Document:
    """A null takes away what the job has."""
    if text is None:
        return {}
    if text.lower() == "none":
        return {"relevancyWindowSec": None}
    seconds = whole_seconds(text, "--relevancy-window", 1, MAX_WINDOW_SEC)
    return {"relevancyWindowSec": seconds}


def read_payload(text: str) -> object:
    """The JSON that *text* is, or that the file holds which it names after an ``@``."""
    if text.startswith("@"):
        text = _read(text[1:], "--payload")
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"not JSON: {error}. Write '{{\"key\": 1}}', or @file.", param_hint="--payload"
        ) from error


def read_labels(pairs: Sequence[str]) -> dict[str, str]:
    """The labels that *pairs*, ``key=value``, name."""
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{pair!r} is not key=value", param_hint="--label")
        labels[key] = value
    return labels


def read_jobs(file: str) -> list[Document]:
    """The job documents that *file* lists, in JSON or YAML: by itself, or under ``jobs``."""
    found = _read_any(file, "FILE")
    jobs = found.get("jobs") if isinstance(found, dict) else found
    if not isinstance(jobs, list) or not jobs:
        raise typer.BadParameter(f"{file} lists no jobs", param_hint="FILE")
    for number, job in enumerate(jobs):
        if not isinstance(job, dict):
            raise typer.BadParameter(f"jobs[{number}] is not a JSON object", param_hint="FILE")
    return jobs


def _read_document(file: str) -> Document:
    document = _read_any(file, "--file")
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{file} holds no JSON object", param_hint="--file")
    return document


def _read_any(file: str, flag: str) -> object:
    text = _read(file, flag)
    try:
        # YAML alone would not do: it takes no tabs, which JSON may be indented with.
        is_json = text.lstrip().startswith(("{", "["))
        found: object = json.loads(text) if is_json else yaml.safe_load(text)
        # YAML reads an unquoted instant as a date; the API wants the text.
        found = json.loads(json.dumps(found, default=_iso))
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise typer.BadParameter(
            f"{file} is neither JSON nor YAML: {error}", param_hint=flag
        ) from error
    return found


def _iso(value: object) -> str:
    if isinstance(value, date):  # or a datetime, which is one
        return value.isoformat()
    raise TypeError(f"{value!r} is not a JSON value")


def _read(file: str, flag: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {file}: {error}", param_hint=flag) from error


def _given(**fields: object) -> Document:
    return {name: value for name, value in fields.items() if value is not None}
