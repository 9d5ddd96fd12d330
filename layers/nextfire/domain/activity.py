"""What a scheduler does at this moment, and whether its jobs run on time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from nextfire.dataclass import dataclass

MAX_LAG = timedelta(seconds=5)
"""How late a due entry may be dispatched: a standby takes over after 3 s."""
MAX_WAIT = timedelta(seconds=10)
"""How long a message may wait for a worker."""
MAX_AHEAD = timedelta(minutes=1)
"""How far a run may have ended after the present: clocks are adjusted."""
MIN_SPACE = 16 * 1024 * 1024
"""Free bytes that the disk of the data needs: the log of the database is cut to this size only when
nothing reads it.
"""
SLOW_WRITE = timedelta(milliseconds=100)
"""How long a write to a disk takes that limits the number of runs: usual are 1 to 20 ms."""
RECENT = timedelta(minutes=15)
"""Dead runs are counted for this long."""


LATE_JOBS = 5
"""Maximum number of late jobs that are named."""


@dataclass(frozen=True, slots=True)
class LateJob:
    """A job with a late due entry, and how long ago the oldest one became due."""

    job_id: str
    lag: timedelta


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts of one moment, two ages and how far the clock was set back.

    `lag`: how long ago the oldest entry that is not dispatched became due; `late`: the number of
    such entries that became due over `MAX_LAG` ago, and `late_jobs`, those of up to `LATE_JOBS`
    jobs, the oldest first. `held`: entries that wait for a quota, a
    destination or an earlier run, which are not late. `queued`: messages that no worker has taken,
    and `wait`, the age of the oldest one. `running`: messages that workers have taken. `failed`:
    runs that died within `RECENT`. `ahead`: how far after the present a run ended.
    """

    lag: timedelta
    late: int
    held: int
    queued: int
    wait: timedelta
    running: int
    failed: int
    ahead: timedelta = timedelta()
    late_jobs: tuple[LateJob, ...] = ()


def not_running(parts: Mapping[str, bool]) -> Iterator[str]:
    """A problem for each of *parts* that does not run."""
    yield from (f"{name} does not run" for name, runs in parts.items() if not runs)


def short_of_space(free: int) -> Iterator[str]:
    """A problem if the disk of the data, with *free* bytes, is full or nearly so."""
    if free < MIN_SPACE:
        yield (
            f"the disk of the data has {free // (1024 * 1024)} MB left: when it is full, nothing is"
            " stored and no run starts. Free some space: df -h shows the disks"
        )


def is_behind(activity: Activity) -> bool:
    """Whether runs wait for the watcher or for workers."""
    return activity.late > 0 or activity.wait > MAX_WAIT


def problems(
    activity: Activity, parts: Mapping[str, bool], write: timedelta = timedelta()
) -> Iterator[str]:
    """Why jobs do not run on time, in words; nothing if they do. *parts*: whether each process
    runs. *write*: how long a write to the disk takes, if that was measured.
    """
    disk = f"a write to the disk takes {write.total_seconds():.1f} s" if write > SLOW_WRITE else ""
    yield from not_running(parts)
    if activity.ahead > MAX_AHEAD:
        minutes = counted(round(activity.ahead / timedelta(minutes=1)), "minute")
        yield (
            f"runs ended up to {minutes} after the present, so the clock was set back: what ran "
            "until then does not run again. Check the clock, for example with timedatectl"
        )
    if activity.late:
        named = ", ".join(f"{job.job_id} {_seconds(job.lag)}" for job in activity.late_jobs)
        yield (
            f"{counted(activity.late, 'due run')} not dispatched, the oldest for"
            f" {_seconds(activity.lag)}{f' ({named})' if named else ''}: the watcher does not keep"
            " up" + (f": {disk}. A faster disk would help" if disk else "")
        )
    if activity.wait > MAX_WAIT:
        advice = (
            "more workers would help (nextfire up --workers N), unless runs hang (nextfire runs"
            " list --state RUNNING)"
        )
        if disk:
            advice = (
                f"{disk}, and each run takes several. A faster disk would help most, more workers"
                " a little (nextfire up --workers N)"
            )
        yield (
            f"{counted(activity.queued, 'run')} waiting for a worker, the oldest for"
            f" {_seconds(activity.wait)}: {advice}"
        )


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"


def counted(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}" + ("s" if number != 1 else "")
