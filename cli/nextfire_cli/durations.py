"""Durations and instants as users type them."""

import contextlib
import re
import time
from datetime import UTC, datetime, timedelta

import typer

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import isoformat
from nextfire.domain.schedule import MAX_DELAY
from nextfire.domain.schedule_text import parse_duration

_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_SPAN = re.compile(
    r"(?=.)(?:(?P<W>\d+)w)?(?:(?P<D>\d+)d)?(?P<T>(?:\d+h)?(?:\d+m)?(?:\d+(?:\.\d+)?s)?)"
)
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}")
_ZERO = re.compile(r"P(?=.*0)(?:0+[WD])*(?:T(?:0+(?:\.0+)?[HMS])+)?")


def present() -> datetime:
    """Return the time."""
    return datetime.fromtimestamp(time.time(), UTC)


def moment(text: str, flag: str, now: datetime) -> str:
    """Return *text* if it is an instant, the last time of day ``18:00`` in UTC before *now*, or the
    instant that long before *now*: ``12h``, ``P2D``.

    Raises:
        typer.BadParameter: *text* is invalid, or too long ago.
    """
    with contextlib.suppress(ValueError):
        datetime.fromisoformat(text)
        return text
    try:
        if _TIME_OF_DAY.fullmatch(text):
            today = _today_at(text, now)
            return isoformat(today if today <= now else today - timedelta(days=1))
        return isoformat(now - parse_duration(_iso_8601(text), flag))
    except (InvalidInputError, OverflowError, ValueError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a time. Write an instant, such as 2026-05-24T18:00, or 18:00 (UTC), "
            f"or 30m, 12h or 2d ago.{_capital(text)}",
            param_hint=flag,
        ) from error


def in_utc(instant: str) -> datetime:
    """Return *instant*, in UTC if it has no offset, as the API reads it."""
    found = datetime.fromisoformat(instant)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def ahead(text: str, flag: str, now: datetime) -> datetime:
    """Return in UTC the instant *text* (without an offset: in UTC), the next time of day ``08:00``
    in UTC after *now*, or the instant that long after *now*: ``12h``, ``P2D``.

    Raises:
        typer.BadParameter: *text* is invalid, or too far ahead.
    """
    try:
        if _TIME_OF_DAY.fullmatch(text):
            today = _today_at(text, now)
            return today if today > now else today + timedelta(days=1)
        with contextlib.suppress(ValueError):
            return in_utc(text).astimezone(UTC)
        return now + parse_duration(_iso_8601(text), flag)
    except (InvalidInputError, OverflowError, ValueError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a time. Write an instant, 08:00 (UTC), or 30m, 12h or 2d from now."
            f"{_capital(text)}",
            param_hint=flag,
        ) from error


def _today_at(text: str, now: datetime) -> datetime:
    """The time of day *text* on the day of *now*. Raises ValueError: 24:00."""
    hour, minute = map(int, text.split(":"))
    return now.replace(hour=hour, minute=minute, second=0, microsecond=0)


def iso_duration(text: str, flag: str, least: str = "0.001 s") -> str:
    """Return ``5s``, ``1h30m`` or ``2d`` in ISO 8601, and ISO 8601 in upper case. The API checks
    that it is at least *least*.

    Raises:
        typer.BadParameter: *text* is neither.
    """
    duration = _iso_8601(text)
    try:
        parse_duration(duration, flag)
    except InvalidInputError as error:
        raise typer.BadParameter(
            f"{text!r} is not a duration from {least} to {MAX_DELAY.days} days. "
            f"Write 5s, 90m, 1h30m, 2d or PT5S.{_capital(text)}",
            param_hint=flag,
        ) from error
    return duration


def whole_seconds(text: str, flag: str, least: int, most: int) -> int:
    """Return a number of seconds, or a duration as `iso_duration` takes it, in seconds.

    Raises:
        typer.BadParameter: *text* is neither, not whole seconds, or not *least* to *most* seconds.
    """
    seconds, rest = divmod(_length(text, flag), _SECOND)
    if rest or not least <= seconds <= most:
        raise typer.BadParameter(
            f"{text!r} is not a duration in whole seconds from {least} s to {_in_words(most)}. "
            f"Write {_examples(least, most)}.{_capital(text)}",
            param_hint=flag,
        )
    return seconds


def milliseconds(text: str, flag: str, most: int) -> int:
    """Return a number of seconds, or a duration as `iso_duration` takes it, in milliseconds.

    Raises:
        typer.BadParameter: *text* is neither, or more than *most* milliseconds.
    """
    found = _length(text, flag) // _MILLISECOND
    if found > most:
        raise typer.BadParameter(
            f"{text!r} is not a duration from 0 s to {most * _MILLISECOND // timedelta(days=1)} "
            f"days. Write 30, 0.5s, 10m, 6h or PT10M.{_capital(text)}",
            param_hint=flag,
        )
    return found


def as_typed(amount: int) -> str:
    """Return *amount* milliseconds as a user types them: ``10s``, ``1h``."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if amount and amount % length == 0:
            return f"{amount // length}{unit}"
    return f"{amount / 1000:g}s"


def _length(text: str, flag: str) -> timedelta:
    """Return the duration *text*, which may be zero; `timedelta.max`, which is out of all bounds,
    if it is invalid.
    """
    try:
        if text.isdecimal():
            return int(text) * _SECOND
        duration = _iso_8601(text)
        return timedelta() if _ZERO.fullmatch(duration) else parse_duration(duration, flag)
    except (InvalidInputError, OverflowError, ValueError):
        return timedelta.max


def _iso_8601(text: str) -> str:
    match = _SPAN.fullmatch(text.strip().lower())
    if not match or ("M" in text and text[:1] not in "Pp"):  # 1M: a month?
        return text.upper()
    date = "".join(f"{match[unit]}{unit}" for unit in "WD" if match[unit])
    return f"P{date}" + (f"T{match['T'].upper()}" if match["T"] else "")


def _capital(text: str) -> str:
    """A remedy for ``1M``, which may be a minute or a month."""
    return " A minute is a small m." if "M" in text and text[:1] not in "Pp" else ""


def _examples(least: int, most: int) -> str:
    """Durations from *least* to *most* seconds, as a user can type them: ``30, 30s or PT10M``."""
    known = {"30": 30, "30s": 30, "10m": 600, "2h": 7_200, "30d": 2_592_000, "PT10M": 600}
    *texts, last = [text for text, seconds in known.items() if least <= seconds <= most]
    return f"{', '.join(texts)} or {last}"


def _in_words(seconds: int) -> str:
    """``30 days``, ``1 hour``, ``90 s``."""
    for unit, length in (("day", 86_400), ("hour", 3_600)):
        count, rest = divmod(seconds, length)
        if count and not rest:
            return f"{count} {unit}{'s' * (count > 1)}"
    return f"{seconds} s"
