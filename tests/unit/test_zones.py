"""The clock changes of zones, compared with the files of the time zone database."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime, timedelta
from importlib import resources

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.zones import FIRST, OffsetChange, changes, zone
from tests.crons import LONG, ZONES

DATABASE = resources.files("tzdata")
NAMES = DATABASE.joinpath("zones").read_text("utf-8").split()


def listed_changes(name: str) -> list[OffsetChange]:
    """The changes of the UTC offset that the zone's file lists (RFC 9636, version 2)."""
    data = DATABASE.joinpath("zoneinfo", *name.split("/")).read_bytes()
    first = struct.unpack(">6l", data[20:44])
    start = 44 + sum(n * size for n, size in zip(first, (1, 1, 8, 5, 6, 1), strict=True))
    _, _, _, times, types, _ = struct.unpack(">6l", data[start + 20 : start + 44])
    at = start + 44
    seconds = struct.unpack(f">{times}q", data[at : at + 8 * times])
    indexes = data[at + 8 * times : at + 9 * times]
    table = at + 9 * times
    offsets = [
        timedelta(seconds=struct.unpack(">l", data[table + 6 * n : table + 6 * n + 4])[0])
        for n in range(types)
    ]
    found, before = [], offsets[0]
    for second, index in zip(seconds, indexes, strict=True):
        after = offsets[index]
        if after != before:
            found.append(
                OffsetChange(
                    datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second), before, after
                )
            )
        before = after
    return [change for change in found if change.at > FIRST]


@pytest.mark.parametrize("name", NAMES if LONG else [*ZONES, "Africa/Monrovia", "Asia/Gaza"])
def test_changes_are_those_of_the_database(name: str) -> None:
    listed = listed_changes(name)
    # The file describes changes after the last listed one by a rule.
    until = listed[-1].at if listed else FIRST

    assert list(changes(name, FIRST, until)) == listed


def test_a_change_at_the_bounds() -> None:
    [change] = changes(
        "Europe/Berlin", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    )

    assert change.at.isoformat() == "2026-03-29T01:00:00+00:00"
    assert change.wall_before.isoformat() == "2026-03-29T02:00:00"
    assert change.wall_after.isoformat() == "2026-03-29T03:00:00"
    moment = timedelta(milliseconds=1)
    assert list(changes("Europe/Berlin", change.at - moment, change.at)) == [change]
    assert not list(changes("Europe/Berlin", change.at, change.at + moment))


@pytest.mark.parametrize(
    "name",
    [
        "Mars/Olympus",
        "europe/berlin",
        "Europe",
        "../zones",
        "/etc/localtime",
        "localtime",
        "",
        "UTC\n",
        "Europe/Berlin/",
        "\uff35TC",
        "\ud800",
    ],
)
def test_an_invalid_zone_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        zone(name)

    assert refused.value.field == "timezone"
    assert re.search("(For example|Did you mean) `[A-Za-z/_]+`", refused.value.remedy)
