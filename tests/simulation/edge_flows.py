"""What users do to single edges of sequences, in some histories: change them between redrives,
skips and backfills. `sequence_flows` lists all flows of a history with sequences.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from nextfire.domain.ids import JobKey
from nextfire.domain.run import RunState
from nextfire.domain.schedule import UNTIMED
from tests.simulation import job_flows, run_flows
from tests.simulation.flow import Flow
from tests.simulation.redrives import Users
from tests.simulation.sequences import (
    RULES,
    SEQUENCE_FLOWS,
    SEQUENCES,
    SPOIL,
    SPOILT,
    WHICH,
    is_edged,
)

if TYPE_CHECKING:
    from tests.simulation.history import History

_DELAYS = [0, 0, 0, 1, 8]
_SOON = [0, 0.02, 0.5, 5, 30]
_ENDED = [RunState.DEAD, RunState.SKIPPED, RunState.CANCELLED]


def change_edge(history: History) -> None:
    """Add, remove or replace one parent of a job, or change its rule."""
    sequences = history.sequences
    assert sequences is not None
    number = history.kernel.dice.randrange(1, sequences.size)
    _change_edge_of(history, number)


def _change_edge_of(history: History, number: int) -> None:
    sequences, dice = history.sequences, history.kernel.dice
    assert sequences is not None
    key = JobKey(sequences.tenant, f"n{number:02}")
    job = history.stores.jobs.items.get(key)
    if job is None or not job.definition.after:
        return
    after: list[dict[str, Any]] = job.definition.document()["after"]
    at_most = sequences.size if dice.random() < 0.05 else number  # else they may form a cycle
    names = {f"n{each:02}" for each in range(at_most)} - {edge["job"] for edge in after}
    what = dice.choice(["add", "add", "remove", "replace", "rule"])
    if what == "rule":
        job_flows.change_key(history, key, {"triggerRule": dice.choice(RULES)})
        return
    if what != "add":
        after.remove(dice.choice(after))
    if what != "remove" and names:
        timed = dice.choice(WHICH) if job.definition.is_timed_join else {}
        after.append({"job": dice.choice(sorted(names)), "delaySec": dice.choice(_DELAYS)} | timed)
    if after:
        job_flows.change_key(history, key, {"after": after})


def change_and_redrive(history: History) -> None:
    """Change an edge at or below a run that has ended, and redrive the run soon before or after."""
    sequences, dice = history.sequences, history.kernel.dice
    key = history.any_run(*_ENDED)
    assert sequences is not None
    if key is None or key.job not in sequences.order:
        return
    users, number = Users(history, dice), sequences.order.index(key.job)
    for seconds in dice.sample(_SOON, dice.choice([1, 1, 2])):
        history.later(timedelta(seconds=seconds), lambda: users.redrive(key))
    for seconds in dice.sample(_SOON, dice.choice([1, 2])):
        below = dice.randrange(max(number, 1), sequences.size)
        history.later(timedelta(seconds=seconds), partial(_change_edge_of, history, below))


def backfill(history: History) -> None:
    """Backfill a job with a schedule, and perhaps change an edge below it meanwhile."""
    sequences, dice = history.sequences, history.kernel.dice
    assert sequences is not None
    jobs = [history.stores.jobs.items.get(key) for key in sequences.order]
    found = [job.key for job in jobs if job and job.definition.type not in UNTIMED]
    if not found:
        return
    run_flows.backfill_key(history, dice.choice(found), since=[60, 130, 300], lasting=[65, 200])
    if dice.random() < 0.7:
        history.later(timedelta(seconds=dice.choice(_SOON)), lambda: change_edge(history))


_EDGE_FLOWS = [
    Flow("change an edge", 10, change_edge),
    Flow("change an edge and redrive", 12, change_and_redrive),
    Flow("backfill a sequence", 8, backfill),
    Flow("skip next", 4, run_flows.skip_next),
]


def sequence_flows(seed: int) -> list[Flow]:
    """What may happen in the history of *seed*, which has sequences."""
    edged = _EDGE_FLOWS if is_edged(seed) else []
    return [*SEQUENCE_FLOWS, *edged, *([SPOIL] if seed // SEQUENCES % 13 in SPOILT else [])]
