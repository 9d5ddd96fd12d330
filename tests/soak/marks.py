"""What scripts leave outside the system: a file for each attempt that began, made by the script
itself. So an effect is counted where it happens, whatever the records say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

HANDLER = "soak"
SOURCE = '''"""Leaves a mark, and does as its payload says."""

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
except FileExistsError:  # the same attempt once more: kept beside the first
    name += f"~{began}"
    mark = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


def tell(**what):
    os.write(mark, json.dumps(what).encode() + b"\\n")


def live(seconds):
    """Sleep, and say every 50 ms that it lives: by the file's time."""
    until = time.monotonic() + seconds
    while True:
        now = time.time_ns()
        os.utime(mark, ns=(now, now))
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(0.05, left))


tell(begin=began, pid=os.getpid())
code = 0
if asked["do"] == "save":
    saved = nextfire_job.checkpoint() or 0
    tell(found=saved)
    for step in range(saved + 1, 6):
        live(asked["seconds"] / 5)
        nextfire_job.save_checkpoint(step)
        tell(saved=step)
else:
    live(asked["seconds"])
if asked["do"] == "fail":
    code = int(here.attempt <= asked["fails"])
if asked["do"] == "flaky":
    code = int(here.attempt == 1 and zlib.crc32(here.execution_id.encode()) % 2 == 0)
live(0)
tell(end=time.time_ns(), code=code)
raise SystemExit(code)
'''


@dataclass(frozen=True, slots=True)
class Mark:
    """An attempt's script that began. `alive_until`: when it was last seen alive, its end if
    `code`, its exit code, is known. `found` and `saved`: the checkpoint that it began with (None:
    it did not ask), and the last that it was told is kept.
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
    """All marks in *folder*, which holds a folder for each tenant, the earliest first."""
    found = [_mark(file) for file in folder.glob("*/*~*")]
    return sorted(found, key=lambda mark: mark.begun_at)


def count(folder: Path) -> int:
    """How many attempts have begun."""
    return sum(1 for _ in folder.glob("*/*~*"))


def _mark(file: Path) -> Mark:
    execution_id, attempt, *_ = file.name.split("~")
    changed_ns = file.stat().st_mtime_ns
    told: dict[str, int] = {}
    for line in file.read_text().splitlines():
        told |= json.loads(line)
    end_ns = told.get("end", max(changed_ns, told.get("begin", 0)))
    return Mark(
        tenant=file.parent.name,
        execution_id=execution_id,
        attempt=int(attempt),
        # One that was killed between making its file and writing into it says no instant.
        begun_at=_instant(told.get("begin", changed_ns)),
        alive_until=_instant(end_ns),
        pid=told.get("pid", 0),
        code=told.get("code"),
        found=told.get("found"),
        saved=told.get("saved", 0),
    )


def _instant(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
