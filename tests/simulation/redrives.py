"""Users who cancel runs and sequences that wait, redrive what was cancelled or skipped, soon after
and long after, and start runs now that wait for their retry.

In some histories only, next to the other flows, and with dice of their own: the seeds of the other
histories keep their meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from nextfire.domain.due import DispatchEntry
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.redrive_plan import RedriveAction, RedriveStep
from nextfire.domain.run import RunState
from tests.simulation.client import Client
from tests.simulation.redriven import AGAIN, AskedRedrive

if TYPE_CHECKING:
    from tests.simulation.history import History

REDRIVING = 7
"""One history of this many has these users; of each kind of history, as many."""
STARTING = 3
"""Of these, one of this number has users who start waiting runs."""
_THESE = 5
_KINDS = 20
_EVERY = [0.5, 2, 5, 10, 20]
_AFTER = [0, 0.2, 1, 5, 15, 40, 100, 250]
_REPEATED_AFTER = 4
_WAITED = 2
_CANCELS = 3
"""How often they cancel a run that waits: then others get their turn."""
_TRIES = 5
_ENDED = {RunState.CANCELLED, RunState.SKIPPED, RunState.DEAD}


def redrives(seed: int) -> bool:
    """Whether the history of *seed* has these users."""
    return seed // _KINDS % REDRIVING == _THESE


def starts(seed: int) -> bool:
    """Whether some of these users also start runs that wait for their retry."""
    return redrives(seed) and seed // _KINDS // REDRIVING % STARTING == 0


def begin_redrives(history: History) -> None:
    """Let the users begin, if the history has them."""
    if redrives(history.seed):
        users = Users(history, Random(f"redrives {history.seed}"))  # noqa: S311 — repeatable
        history.system.start(history.system.aws, users.act)
    if starts(history.seed):
        dice = Random(f"starts {history.seed}")  # noqa: S311 — repeatable
        history.system.start(history.system.aws, lambda: _start_waiting(history, dice))


@dataclass(slots=True)
class _Request:
    """A redrive, requested until it is answered."""

    key: RunKey
    asked: AskedRedrive
    answers: list[list[RedriveStep]] = field(default_factory=list)


@dataclass(slots=True)
class Users:
    """Users who cancel and redrive."""

    history: History
    dice: Random
    cancels: Counter[RunKey] = field(default_factory=Counter)

    def act(self) -> None:
        """Cancel and redrive at random moments until the history is over."""
        while True:
            self.history.system.aws.sleep(timedelta(seconds=self.dice.choice(_EVERY)))
            if waiting := self._waiting():
                self._cancel_and_redrive(waiting)
            elif self.dice.random() < 0.1:
                self._cancel_and_redrive(self._to_start())
            elif self.dice.random() < 0.5:
                self._redrive_any()

    def _cancel_and_redrive(self, found: list[RunKey]) -> None:
        if not found:
            return
        key = self.dice.choice(found)
        self.cancels[key] += 1
        self._cancel(key)
        for seconds in self.dice.sample(_AFTER, self.dice.choice([0, 1, 1, 2])):
            self.history.later(timedelta(seconds=seconds), lambda: self.redrive(key))

    def _redrive_any(self) -> None:
        runs = self.history.stores.runs.items
        found = [key for key, run in runs.items() if run.state in _ENDED]
        if found:
            self.redrive(self.dice.choice(found))

    def _waiting(self) -> list[RunKey]:
        """The runs that have waited several times without an attempt, of which no record says how
        often.
        """
        stores = self.history.stores
        waits = {
            RunKey(each.job, each.run_id): each.dispatch
            for each in stores.due.entries
            if isinstance(each, DispatchEntry) and each.held
        }
        return [key for key, dispatch in waits.items() if self._has_waited(key, dispatch)]

    def _has_waited(self, key: RunKey, dispatch: int) -> bool:
        run = self.history.stores.runs.items.get(key)
        before = 1 if run is None else run.dispatch
        may_start = run is None or not run.state.ended
        return may_start and dispatch - before >= _WAITED and self.cancels[key] < _CANCELS

    def _to_start(self) -> list[RunKey]:
        """Other runs that have not ended, and runs that were sent just now."""
        stores = self.history.stores
        recorded = [key for key, run in stores.runs.items.items() if not run.state.ended]
        return recorded + [each.key for each in stores.queue.log[-5:]]

    def _cancel(self, key: RunKey) -> None:
        history, whole = self.history, self.dice.random() < 0.5

        def ask(client: Client) -> None:
            history.asked_to_cancel.add(key)
            if whole:
                client.cancel_sequence.cancel(key, "enough")
                return
            run = client.runs.cancel(key, "enough")
            history.cancelled.setdefault(key, len(run.attempts))

        what = "the sequence of " if whole else ""
        history.request(key.job.tenant, f"cancel {what}{key.execution_id}", ask)

    def redrive(self, key: RunKey) -> None:
        """Request a redrive and repeat the request until it is answered, sometimes after that."""
        history = self.history
        link, downstream = self._link(key), self.dice.random() < 0.5
        request = _Request(key, AskedRedrive(link, key.scheduled_at, downstream))
        history.monitor.restarts.asked.add(request.asked)
        first_asked_at = history.kernel.clock.now()
        repeats = self.dice.random() < 0.2

        def ask(client: Client) -> None:
            again = history.kernel.clock.now() > first_asked_at
            steps = client.sequences.redrive(
                key,
                link.job_id,
                downstream=downstream,
                reason=AGAIN,
                asked_at=first_asked_at if again else None,
            )
            request.answers.append(steps)
            for started in _started(steps):
                history.redriven.setdefault(started, 0)

        def ask_again() -> None:
            if not request.answers or repeats:
                more = " and what follows" if downstream else ""
                what = f"redrive {key.execution_id} from {link.job_id}{more}"
                history.request(key.job.tenant, what, ask)

        for number in range(_TRIES):
            history.later(timedelta(seconds=_REPEATED_AFTER * number), ask_again)

    def _link(self, key: RunKey) -> JobKey:
        """Where the sequence starts again: at this run, or anywhere."""
        sequences = self.history.sequences
        if sequences is None or self.dice.random() < 0.8:
            return key.job
        return self.dice.choice(sequences.order)


def _start_waiting(history: History, dice: Random) -> None:
    """Start runs that wait for their retry now, until the history is over. Often two users ask for
    the same one, and often as it becomes due.
    """
    while True:
        history.system.aws.sleep(timedelta(seconds=dice.choice(_EVERY)))
        runs = history.stores.runs.items.items()
        waiting = [key for key, run in runs if run.state is RunState.PENDING and run.not_before]
        for _ in range(dice.choice([1, 1, 2]) if waiting else 0):
            _start(history, dice.choice(waiting[-2:]))


def _start(history: History, key: RunKey) -> None:
    asked_at = history.kernel.clock.now()
    answered = False

    def ask(client: Client) -> None:
        nonlocal answered
        again = history.kernel.clock.now() > asked_at
        run = client.runs.redrive(key, AGAIN, asked_at=asked_at if again else None)
        answered = True
        if run.state is RunState.PENDING and run.reason == AGAIN:
            history.hastened[key] = max(run.dispatch, history.hastened.get(key, 0))

    def ask_again() -> None:
        if not answered:
            history.request(key.job.tenant, f"start {key.execution_id} now", ask)

    for number in range(_TRIES):
        history.later(timedelta(seconds=_REPEATED_AFTER * number), ask_again)


def _started(steps: list[RedriveStep]) -> Iterator[RunKey]:
    for step in steps:
        if step.action is RedriveAction.RUN:
            yield step.node.key
