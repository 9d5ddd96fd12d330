"""Marks that scripts leave outside the system: a file for each attempt, written by the script
itself. Effects are counted where they happen, independent of the records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

HANDLER = "soak"
SOURCE = '''"""Writes a mark, then does what the payload says."""

import json
import os
import time
import zlib

import nextfire_job

here, asked = nextfire_job.context(), nextfire_job.payload()
name = f"{asked['marks']}/{here.tenant}/{here.execution_id}~{here.attempt}"
began = time.time_ns()
try:
    mark = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
except FileExistsError:  # the same attempt again: keep both files
    name += f"~{began}"
    mark = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


def report(**what):
    os.write(mark, json.dumps(what).encode() + b"\\n")


def live(seconds):
    """Sleep; every 50 ms, update the file's time as a sign of life."""
    until = time.monotonic() + seconds
    while True:
        now = time.time_ns()
        os.utime(mark, ns=(now, now))
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(0.05, left))


report(begin=began, pid=os.getpid())
code = 0
if asked["do"] == "save":
    saved = nextfire_job.checkpoint() or 0
    report(found=saved)
    for step in range(saved + 1, 6):
        live(asked["seconds"] / 5)
        nextfire_job.save_checkpoint(step)
        report(saved=step)
else:
    live(asked["seconds"])
if asked["do"] == "fail":
    code = int(here.attempt <= asked["fails"])
if asked["do"] == "flaky":
    code = int(here.attempt == 1 and zlib.crc32(here.execution_id.encode()) % 2 == 0)
live(0)
report(end=time.time_ns(), code=code)
raise SystemExit(code)
'''


@dataclass(frozen=True, slots=True)
class Mark:
    """A script of an attempt that began. `alive_until`: when it was last seen alive; its end if its
    exit code `code` is known. `found`: the checkpoint at its start (None: it did not ask); `saved`:
    the last checkpoint whose save was acknowledged.
    """

    tenant: str
    execution_id: str
    attempt: int
    begun_at: datetime
    alive_until: datetime
    pid: int = 0
    code: int | None = None
    found: int | None = None
    saved: int = 0


def read(folder: Path) -> list[Mark]:
    """All marks in *folder*, which has a folder for each tenant, earliest first."""
    found = [_mark(file) for file in folder.glob("*/*~*")]
    return sorted(found, key=lambda mark: mark.begun_at)


def count(folder: Path) -> int:
    """The number of attempts that have begun."""
    return sum(1 for _ in folder.glob("*/*~*"))


def _mark(file: Path) -> Mark:
    execution_id, attempt, *_ = file.name.split("~")
    changed_ns = file.stat().st_mtime_ns
    reported: dict[str, int] = {}
    for line in file.read_text().splitlines():
        reported |= json.loads(line)
    end_ns = reported.get("end", max(changed_ns, reported.get("begin", 0)))
    return Mark(
        tenant=file.parent.name,
        execution_id=execution_id,
        attempt=int(attempt),
        # A script killed between creating the file and writing to it left no instant.
        begun_at=_instant(reported.get("begin", changed_ns)),
        alive_until=_instant(end_ns),
        pid=reported.get("pid", 0),
        code=reported.get("code"),
        found=reported.get("found"),
        saved=reported.get("saved", 0),
    )


def _instant(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
