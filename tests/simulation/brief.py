"""How values are written in the events of a history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nextfire.domain.due import (
    BackfillEntry,
    DispatchEntry,
    FireEntry,
    ResumeEntry,
    Slot,
    StoredEntry,
)
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.pages import Page
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run

_KINDS = {
    FireEntry: "FIRE",
    DispatchEntry: "RETRY",
    ResumeEntry: "RESUME",
    BackfillEntry: "BACKFILL",
}


def brief(value: Any) -> str:  # noqa: C901, PLR0912 — one line per type
    """Format *value* for the events of a history."""
    match value:
        case None | bool() | int() | float():
            return str(value)
        case JobKey():
            return f"{value.tenant}/{value.job_id}"
        case RunKey():
            return f"{brief(value.job)}.{value.run_id[9:15]}-{value.uid}"
        case Run():
            numbers = f"d{value.dispatch} a{value.attempt} f{value.fence}"
            return f"{brief(value.key)}[{value.state} {numbers}]"
        case Claim():
            return f"{'TAKEN' if value.taken else 'not taken'} {brief(value.run)}"
        case Job():
            return f"{brief(value.key)}[{value.state} r{value.revision} v{value.schedule_version}]"
        case FireEntry() | DispatchEntry() | ResumeEntry() | BackfillEntry():
            at = f"{value.at:%H:%M:%S.%f}"
            version = value.version if isinstance(value, FireEntry) else 0
            dispatch = value.dispatch if isinstance(value, DispatchEntry) else 1
            return f"{_KINDS[type(value)]} {brief(value.job)} {at} v{version} d{dispatch}"
        case StoredEntry():
            return f"{{{value.slot.bucket}: {brief(value.entry)}}}"
        case Slot():
            return f"{value.bucket}:{value.sort_key}"
        case RunMessage():
            return f"{brief(value.key)} d{value.dispatch}"
        case Lease():
            return (
                f"lease({value.holder} e{value.epoch} b{value.beat}{' released' * value.released})"
            )
        case Page():
            return brief(value.items)
        case Mapping():
            return "{" + ", ".join(f"{brief(k)}: {brief(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(brief(each) for each in value) + "]"
        case set() | frozenset():  # the order of a set differs between processes
            return "[" + ", ".join(sorted(brief(each) for each in value)) + "]"
        case str():
            return value[:60]
    return repr(value)[:80]
