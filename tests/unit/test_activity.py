"""When jobs are not on time, in words."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.activity import (
    MAX_WAIT,
    MIN_SPACE,
    Activity,
    LateJob,
    problems,
    short_of_space,
)

IDLE = Activity(lag=timedelta(), late=0, held=0, queued=0, wait=timedelta(), running=0, failed=0)
BUSY = replace(
    IDLE, held=7, queued=3, wait=MAX_WAIT, running=16, failed=9, lag=timedelta(seconds=1)
)


@pytest.mark.parametrize(
    ("activity", "parts", "expected"),
    [
        (IDLE, {"watcher": True}, []),
        (BUSY, {"watcher": True}, []),  # a wait for a quota, a short wait, and failures are on time
        (IDLE, {"watcher": False, "api": True}, ["watcher does not run"]),
        (replace(IDLE, ahead=timedelta(minutes=1)), {}, []),
        (
            replace(IDLE, ahead=timedelta(minutes=58)),
            {},
            [
                (
                    "runs ended up to 58 minutes after the present, so the clock was set back: what"
                    " ran until then does not run again. Check the clock, for example with"
                    " timedatectl"
                )
            ],
        ),
        (
            replace(IDLE, late=2, lag=timedelta(seconds=11)),
            {},
            ["2 due runs not dispatched, the oldest for 11 s: the watcher does not keep up"],
        ),
        (
            replace(IDLE, late=1, lag=timedelta(seconds=11)),
            {},
            ["1 due run not dispatched, the oldest for 11 s: the watcher does not keep up"],
        ),
        (
            replace(
                IDLE,
                late=9,
                lag=timedelta(seconds=11.7),
                late_jobs=(
                    LateJob("report", timedelta(seconds=11.7)),
                    LateJob("clean", timedelta(seconds=6)),
                ),
            ),
            {},
            [
                (
                    "9 due runs not dispatched, the oldest for 12 s (report 12 s, clean 6 s): the"
                    " watcher does not keep up"
                )
            ],
        ),
        (
            replace(IDLE, queued=2000, wait=timedelta(seconds=11)),
            {},
            [
                (
                    "2000 runs waiting for a worker, the oldest for 11 s: more workers would help"
                    " (nextfire up --workers N), unless runs hang (nextfire runs list --state"
                    " RUNNING)"
                )
            ],
        ),
    ],
)
def test_what_keeps_jobs_from_running_on_time(
    activity: Activity, parts: dict[str, bool], expected: list[str]
) -> None:
    assert [*problems(activity, parts)] == expected


def test_a_disk_without_space_is_named() -> None:
    assert [*short_of_space(MIN_SPACE)] == []
    [said] = short_of_space(MIN_SPACE - 1)
    assert said.startswith("the disk of the data has 15 MB left")


def test_a_slow_disk_is_named_if_runs_wait_for_it() -> None:
    """More workers wait for each other's writes."""
    waiting = replace(IDLE, queued=2000, wait=timedelta(seconds=40))
    late = replace(IDLE, late=3, lag=timedelta(seconds=9))
    write = timedelta(milliseconds=412)

    assert [*problems(waiting, {}, write)] == [
        (
            "2000 runs waiting for a worker, the oldest for 40 s: a write to the disk takes 0.4 s,"
            " and each run takes several. A faster disk would help most, more workers a little"
            " (nextfire up --workers N)"
        )
    ]
    [problem] = problems(late, {}, write)
    assert problem.endswith(
        "the watcher does not keep up: a write to the disk takes 0.4 s. A faster disk would help"
    )
    assert [*problems(IDLE, {}, write)] == []
    assert "disk" not in next(problems(waiting, {}, timedelta(milliseconds=20)))
