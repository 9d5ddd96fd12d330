"""The expected occurrences, computed from the documents that were sent and the instants of the
answers.

None of this uses nextfire: cronsim reads cron expressions, the rest is arithmetic. The rules are
those of docs/guide/schedules.md and docs/guide/policies.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

Document = dict[str, Any]

_DURATION = re.compile(r"PT(\d+)S")
_WHEN = frozenset(
    {"type", "schedule", "timezone", "startAt", "endAt", "dst", "maxRuns", "jitterSec"}
)


class Operation(StrEnum):
    """An operation on a job through the API."""

    CREATED = "CREATED"
    CHANGED = "CHANGED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Event:
    """An operation on a job. `at`: the instant in the answer; `answered_at`: when the answer
    arrived. `document`: the job's definition from then on, for CREATED and CHANGED.
    """

    did: Operation
    at: datetime
    answered_at: datetime
    document: Document | None = None


@dataclass(slots=True)
class History:
    """A job's life as its owner knows it. By execution id, `cancels`: when a cancel was answered
    with 200 or 202, None if it was refused or the answer was lost; `redrives`: when redrives were
    requested.
    """

    tenant: str
    job_id: str
    events: list[Event] = field(default_factory=list)
    cancels: dict[str, datetime | None] = field(default_factory=dict)
    redrives: dict[str, list[datetime]] = field(default_factory=dict)

    @property
    def document(self) -> Document:
        """The current definition."""
        return next(e.document for e in reversed(self.events) if e.document is not None)

    @property
    def deleted_at(self) -> datetime | None:
        return next((e.at for e in self.events if e.did is Operation.DELETED), None)

    @property
    def paused(self) -> bool:
        last = next((e.did for e in reversed(self.events) if e.did in _SWITCHES), None)
        return last is Operation.PAUSED


_SWITCHES = frozenset({Operation.PAUSED, Operation.RESUMED})


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which one schedule owns the due occurrences: after `after`, up to and including
    `until` (None: until now).

    `paused`: nothing of it runs. `resumed_at`: occurrences up to then were due in a pause, and the
    misfire policy decides. Occurrences due up to `unsure_until` (for the previous span: after its
    end) happened between the instant of a request and its answer: they may still have been sent
    under the previous schedule.
    """

    after: datetime
    until: datetime | None
    document: Document
    counted_from: datetime
    resumed_at: datetime | None = None
    paused: bool = False
    unsure_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """`next_at`: the next occurrence of its span; None for the last one. `required`: it must be on
    record; otherwise it may be.
    """

    at: datetime
    span: Span
    next_at: datetime | None
    required: bool = True

    @property
    def in_pause(self) -> bool:
        return self.span.resumed_at is not None and self.at <= self.span.resumed_at

    @property
    def unsure(self) -> bool:
        """Whether a pause or a change was in flight when it was due."""
        return self.span.unsure_until is not None and self.at <= self.span.unsure_until


def occurrences(history: History, until: datetime) -> dict[datetime, Occurrence]:
    """The occurrences that must or may be on record at *until*, by instant."""
    found: dict[datetime, Occurrence] = {}
    for span in spans(history.events):
        end = until if span.until is None else min(span.until, until)
        still_paused = span.paused and span.until is None
        every = list(_up_to(end, _after(span)))
        following = None if span.until else next(islice(_after(span), len(every), None), None)
        for number, at in enumerate(every, 1):
            next_at = every[number] if number < len(every) else following
            found[at] = Occurrence(at, span, next_at, required=not still_paused)
    for event, span in zip(_ends(history.events), spans(history.events), strict=False):
        for at in _up_to(event.answered_at, _after(span)):
            if at > event.at and at not in found:
                found[at] = Occurrence(at, span, None, required=False)
    return dict(sorted(found.items()))


def never_fires(document: Document, now: datetime) -> bool:
    """Whether nothing is due after *now*: the API refuses such a job (422)."""
    return next(_after(Span(now, None, document, now)), None) is None


def _up_to(end: datetime, ats: Iterator[datetime]) -> Iterator[datetime]:
    return takewhile(lambda at: at <= end, ats)


def spans(events: Sequence[Event]) -> list[Span]:
    """Which schedule owned which time."""
    made: list[Span] = []
    now: Span | None = None
    for event in events:
        if now is None:
            assert event.did is Operation.CREATED
            assert event.document is not None
            now = Span(event.at, None, event.document, event.at)
            continue
        if event.did is Operation.RESUMED:
            now = _with(now, resumed_at=event.at, paused=False)
            continue
        if event.did is Operation.CHANGED and not _changes_when(now.document, event.document or {}):
            now = _with(now, document=event.document)
            continue
        made.append(_with(now, until=event.at))
        now = Span(
            after=event.at,
            until=None,
            document=event.document or now.document,
            counted_from=now.counted_from if event.did is Operation.PAUSED else event.at,
            paused=event.did is Operation.PAUSED or now.paused,
            unsure_until=event.answered_at,
        )
        if event.did is Operation.DELETED:
            return made
    assert now is not None
    return [*made, now]


def _with(span: Span, **changes: Any) -> Span:
    values = {name: getattr(span, name) for name in Span.__slots__}
    return Span(**{**values, **changes})


def _ends(events: Sequence[Event]) -> Iterator[Event]:
    """The events that ended a span, in order."""
    document: Document = {}
    for event in events:
        new = event.document or {}
        if event.did in {Operation.PAUSED, Operation.DELETED} or (
            event.did is Operation.CHANGED and _changes_when(document, new)
        ):
            yield event
        document = event.document or document


def _changes_when(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return any(before.get(name) != after.get(name) for name in _WHEN)


def _after(span: Span) -> Iterator[datetime]:
    """The occurrences of its schedule after the beginning of the span, up to the schedule's end."""
    document = span.document
    counted = takewhile(
        lambda at: "endAt" not in document or at <= instant(document["endAt"]),
        islice(_counted(document, span.counted_from), document.get("maxRuns")),
    )
    return (at for at in counted if at > span.after)


def _counted(document: Document, since: datetime) -> Iterator[datetime]:
    """The occurrences of a schedule that counts from *since*, after that instant; for DELAY, that
    long after it.
    """
    match document["type"]:
        case "CRON":
            local = since.astimezone(ZoneInfo(document.get("timezone", "UTC")))
            for at in CronSim(document["schedule"], local):
                yield at.astimezone(UTC)
        case "INTERVAL":
            step = duration(document["schedule"])
            at = instant(document["startAt"]) if "startAt" in document else since + step
            while True:
                if at > since:
                    yield at
                at += step
        case "DATES":
            yield from sorted({at for at in map(instant, document["schedule"]) if at > since})
        case "DELAY":
            yield since + duration(document["schedule"])
        case "ONCE":
            at = instant(document["schedule"])
            if at > since:
                yield at
        case other:
            raise ValueError(f"the soak test does not use {other}")


def instant(text: str) -> datetime:
    """Parse ISO 8601 with an offset."""
    return datetime.fromisoformat(text).astimezone(UTC)


def duration(text: str) -> timedelta:
    """Parse ``PT90S``; the soak test uses no other form."""
    found = _DURATION.fullmatch(text)
    assert found, text
    return timedelta(seconds=int(found[1]))
