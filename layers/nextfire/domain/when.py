"""The schedule of a job, as its owner writes it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, TypeGuard

from pydantic import Field, ValidationInfo, field_serializer, field_validator

from nextfire.domain.document import Document, document_error
from nextfire.domain.preview import upcoming
from nextfire.domain.schedule import (
    EXAMPLES,
    MAX_DATES,
    MAX_DELAY,
    MAX_EXCEPT_DATES,
    MAX_JITTER,
    MAX_RUNS,
    UNTIMED,
    Dst,
    Schedule,
    ScheduleType,
    Upcoming,
)

MAX_EXPRESSION = 256
MAX_INSTANT = 64
InstantText = Annotated[str, Field(min_length=1, max_length=MAX_INSTANT)]
DateText = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
_ScheduleForm = (
    Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION)]
    | Annotated[list[InstantText], Field(min_length=1, max_length=MAX_DATES)]
    | None
)
"""For the JSON schema. `WhenDocument` checks the form by type."""


class WhenDocument(Document):
    """The schedule of a job document. `schedule`: a string; for DATES a list of strings; absent for
    MANUAL and AFTER.

    Checks types and lengths. `Schedule` parses the values.
    """

    type: ScheduleType = Field(description="How `schedule` is interpreted.")
    schedule: str | tuple[str, ...] | None = Field(
        default=None,
        validate_default=True,
        description="ONCE: a future ISO 8601 instant; without an offset it is in `timezone`. "
        f"DELAY: an ISO 8601 duration from now, at most {MAX_DELAY.days:,} days. CRON: minute, "
        "hour, day of month, month, day of week, or a macro such as `@daily`. INTERVAL: an "
        "ISO 8601 duration of a second or more. DATES: a list of instants. MANUAL, AFTER: "
        "absent; all other types require it.",
    )
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        default="UTC", description="IANA time zone, e.g. Europe/Berlin."
    )
    start_at: InstantText | None = Field(
        default=None,
        description="First instant at which it may run; INTERVAL counts from it. ISO 8601; "
        "without an offset it is in `timezone`.",
    )
    end_at: InstantText | None = Field(
        default=None,
        description="Last instant at which it may run. ISO 8601; without an offset it is in "
        "`timezone`.",
    )
    dst: Dst = Field(
        default=Dst.ONCE,
        description="How often CRON and DATES run at a local time that a clock change repeats.",
    )
    except_dates: Annotated[tuple[DateText, ...], Field(max_length=MAX_EXCEPT_DATES)] = Field(
        default=(),
        description="Dates in `timezone` without occurrences, such as holidays: YYYY-MM-DD.",
        examples=[["2030-12-25"]],
    )
    max_runs: Annotated[int, Field(strict=True, ge=1, le=MAX_RUNS)] | None = Field(
        default=None,
        description="Maximum number of runs, counted from the last change of the schedule.",
    )
    jitter_sec: Annotated[int, Field(strict=True, ge=0, le=MAX_JITTER // timedelta(seconds=1))] = (
        Field(default=0, description="Each run is delayed by a random time below this, in seconds.")
    )

    @field_validator("schedule", mode="plain", json_schema_input_type=_ScheduleForm)
    @classmethod
    def _check_form(cls, value: object, info: ValidationInfo) -> str | tuple[str, ...] | None:
        kind = info.data.get("type")
        if value is None and kind in UNTIMED:
            return None
        if isinstance(value, list | tuple) and kind in {None, ScheduleType.DATES}:
            texts = tuple(each for each in value if _is_text(each, MAX_INSTANT))
            if 1 <= len(value) == len(texts) <= MAX_DATES:
                return texts
        if kind not in {ScheduleType.DATES, *UNTIMED} and _is_text(value, MAX_EXPRESSION):
            return value
        raise document_error("schedule_form", *_form(kind, is_absent=value is None))

    @field_validator("except_dates")
    @classmethod
    def _sort_dates(cls, dates: tuple[str, ...]) -> tuple[str, ...]:
        """Sorted and without duplicates: another order is not a change of the schedule."""
        return tuple(sorted({*dates}))

    @field_serializer("schedule")
    def _as_json(self, expression: str | tuple[str, ...] | None) -> str | list[str] | None:
        return [*expression] if isinstance(expression, tuple) else expression

    @property
    def jitter_width(self) -> timedelta:
        return timedelta(seconds=self.jitter_sec)

    def schedule_from(self, effective_from: datetime) -> Schedule:
        """Return the schedule, counted from *effective_from*."""
        return Schedule(
            self.type,
            self.schedule,
            self.timezone,
            effective_from,
            start_at=self.start_at,
            end_at=self.end_at,
            dst=self.dst,
            except_dates=self.except_dates,
        )

    def next_occurrences(self, since: datetime, after: datetime, count: int) -> list[datetime]:
        """Return the instants of the next *count* occurrences after *after*, within `max_runs`
        counted from *since*. Raises as `upcoming` does.
        """
        found = upcoming(self.schedule_from(since), after, count, max_runs=self.max_runs)
        return [each.occurrence.at for each in found]

    def upcoming(self, since: datetime, after: datetime, count: int, *, uid: str) -> list[Upcoming]:
        """Return the next *count* occurrences due after *after*, within `max_runs` counted from
        *since*, with the jitter of the job *uid*.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return upcoming(
            self.schedule_from(since),
            after,
            count,
            max_runs=self.max_runs,
            jitter_key=uid,
            jitter_width=self.jitter_width,
        )


def _is_text(value: object, longest: int) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= longest


def _form(kind: ScheduleType | None, *, is_absent: bool) -> tuple[str, str]:
    """Return the problem of a `schedule` that does not fit its type, and the remedy."""
    if kind in UNTIMED:
        return f"jobs of type {kind} have no schedule", "Omit it, or in a PATCH set it to null."
    if is_absent:
        what = "required field is missing"
    elif kind is ScheduleType.DATES:
        what = f"not a list of 1 to {MAX_DATES} texts, each an instant"
    else:
        what = f"not a text of 1 to {MAX_EXPRESSION} characters"
    what = what if kind is None or is_absent else f"{what}, as {kind} needs"
    return what, f"For example `{EXAMPLES[kind or ScheduleType.CRON]}`."


SCHEDULE_FIELDS = frozenset(WhenDocument.model_fields)
"""Fields of a definition. A change of one of them creates a new `schedule_version`."""
