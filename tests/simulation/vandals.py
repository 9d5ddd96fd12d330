"""Deletes data without the system's knowledge. Only the auditor can repair such damage."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from nextfire.domain.due import FireEntry
from nextfire.domain.run import Trigger

if TYPE_CHECKING:
    from tests.simulation.history import History


def vandal(history: History) -> None:
    """Delete FIRE entries, records of runs that ended, or the messages of a queue."""
    if not history.vandalised:
        return
    dice = history.kernel.dice
    for seconds in dice.sample([0, 1, 10, 30, 60, 120, 300], dice.choice([1, 3, 6])):
        delete = dice.choice([_delete_entry, _delete_records, _delete_records, _purge_queue])
        history.later(timedelta(seconds=seconds), partial(delete, history))


def _delete_entry(history: History) -> None:
    due = history.stores.due
    fires = [entry for entry in due.entries if isinstance(entry, FireEntry)]
    if not fires:
        return
    entry = history.kernel.dice.choice(fires)
    history.monitor.tampered.add(entry.job)
    history.kernel.log("operator", f"deletes the entry {entry.sort_key}")
    for slot in [slot for slot, item in due.items.items() if item == entry]:
        del due.items[slot]


def _delete_records(history: History) -> None:
    """Delete records of occurrences only: requested runs are recorded nowhere else."""
    runs, dice = history.stores.runs, history.kernel.dice
    asked = history.asked_to_cancel | history.redriven.keys() | history.hastened.keys()
    ended = [run for run in runs.items.values() if run.state.ended and run.key not in asked]
    for run in ended:
        of_schedule = run.trigger is Trigger.SCHEDULE and not run.skip_requested
        if of_schedule and dice.random() < 0.5:
            history.kernel.log("operator", f"deletes the record {run.key.execution_id}")
            history.monitor.tampered.add(run.key.job)
            history.vanished[run.key] = run
            history.effects.forget(run.key)
            runs.forget(run.key)


def _purge_queue(history: History) -> None:
    pool = history.kernel.dice.choice([*history.stores.queue.queues])
    history.kernel.log("operator", f"purges the queue of {pool}")
    history.effects.purged = True
    history.stores.queue.queues[pool].purge()
