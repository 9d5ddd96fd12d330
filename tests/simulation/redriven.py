"""Judges how runs that had ended become PENDING again: a request to redrive them, or the ends of
their parents, must permit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from nextfire.domain.ids import JobKey, RunKey, unsent_dispatch
from nextfire.domain.run import Run, RunState

AGAIN = "played again"
"""The reason of the redrives that `redrives.py` requests."""


@dataclass(frozen=True, slots=True)
class AskedRedrive:
    """A request to redrive the runs at the instant `at` from the job `link` on."""

    link: JobKey
    at: datetime
    downstream: bool


@dataclass(slots=True)
class Restarts:
    """Knows the requests to redrive CANCELLED, SKIPPED and DEAD runs."""

    asked: set[AskedRedrive] = field(default_factory=set)

    def wrong(self, was: Run, run: Run, *, sent: bool, has_parents: bool) -> Iterator[str]:
        """What is wrong with the step from *was*, which had ended, to *run*, which is PENDING.
        *sent*: whether the queue accepted this dispatch before.
        """
        by_parents = was.state is RunState.SKIPPED and has_parents
        by_user = was.state is RunState.DEAD or self._is_asked(was)
        if not (by_user or by_parents) or was.covered > 1 or was.skip_requested:
            yield f"{was.state} became {run.state}"
        if by_parents and not by_user and run.dispatch != unsent_dispatch(was.dispatch):
            yield f"{was.state} became {run.state} with dispatch {run.dispatch}"
        if sent or run.dispatch <= was.dispatch + 1:
            yield f"dispatch {run.dispatch} may have been sent"

    def wrong_start(self, was: Run, run: Run, *, sent: bool) -> Iterator[str]:
        """What is wrong with the step from *was*, which waits for its retry, to *run*, which waits
        for less. *sent*: as for `wrong`.
        """
        attempts = was.attempt, was.attempt_base, was.fence, was.attempts
        if attempts != (run.attempt, run.attempt_base, run.fence, run.attempts):
            yield "a start before its retry changed its attempts"
        if sent or run.dispatch != unsent_dispatch(was.dispatch):
            yield f"a start before its retry has dispatch {run.dispatch} after {was.dispatch}"

    def may_await(self, was: Run, run: Run) -> bool:
        """Whether a request permits that *was* awaits its parents as *run*."""
        ended = was.state in {RunState.DEAD, RunState.SKIPPED} and not was.skip_requested
        below = ended and was.covered == 1 and run.attempts == was.attempts
        return below and any(
            each.downstream and each.link.job_id != was.key.job.job_id
            for each in self._of(was.key)
            if f"redriven from {each.link.job_id}:" in (run.reason or "")
        )

    def _is_asked(self, was: Run) -> bool:
        """A request names the run; or it includes what follows, and that was not cancelled."""
        follows = was.state is RunState.SKIPPED
        return was.state in {RunState.CANCELLED, RunState.SKIPPED} and any(
            each.link == was.key.job or (follows and each.downstream) for each in self._of(was.key)
        )

    def _of(self, key: RunKey) -> Iterator[AskedRedrive]:
        for each in self.asked:
            if (each.link.tenant, each.at) == (key.job.tenant, key.scheduled_at):
                yield each


def awaits_parents(run: Run) -> bool:
    """Whether a redrive made the SKIPPED *run* await its parents."""
    return run.state is RunState.SKIPPED and (run.reason or "").startswith("redriven from ")
