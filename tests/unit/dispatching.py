"""What a tick of the watcher sent and reported, and entries that do not decode."""

from __future__ import annotations

from nextfire.domain.due import DueEntry, Slot, bucket_name
from nextfire.domain.instants import to_ms
from nextfire.usecases.dispatch.report import TickReport
from tests.builders import at
from tests.world import World


def times(entries: list[DueEntry]) -> list[str]:
    return [f"{entry.at:%H:%M:%S}".removesuffix(":00") for entry in entries]


def joined_notes(report: TickReport) -> str:
    return "; ".join(report.notes)


# Cursors


def cursor(world: World) -> str:
    return f"{world.control.cursors([0])[0]:%H:%M}"


# Undecodable items


def a_broken_slot(time: str) -> Slot:
    return Slot(bucket_name(at(time).replace(second=0), 0), f"{to_ms(at(time)):013d}#?")
