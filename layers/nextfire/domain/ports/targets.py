"""The port of targets: what every kind of target implements to make one attempt of a run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, Self

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.scripts import Directive, Supervisor
from nextfire.domain.run import Run


class RunControl(Supervisor, Protocol):
    """A `Supervisor` of one attempt. `cancel_reason`: why it is cancelled, if it is."""

    cancel_reason: str

    def load(self) -> None:
        """Load the checkpoint of earlier attempts. Only targets with checkpoints call it.

        Raises:
            InvalidInputError: The checkpoint is in a file that this pool does not have.
            UnavailableError: The store did not answer.
        """


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt. `verdict`: why its supervisor stopped it, if it did; `given`: the
    JSON result that the target returned, if it SUCCEEDED.
    """

    result: Result
    verdict: Directive = Directive.CONTINUE
    given: bytes | None = None

    @classmethod
    def failed(cls, reason: str, *, permanent: bool = False, unavailable: bool = False) -> Self:
        """The result of an attempt that failed: see `Result`."""
        return cls(
            Result(AttemptOutcome.FAILED, reason, permanent=permanent, unavailable=unavailable)
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """A run must wait without an attempt: until when, and why. `since`: when its destination was
    paused or found down; None if it is available, and others are first.
    """

    until: datetime
    reason: str
    since: datetime | None = None


class TargetRunner(Protocol):
    """Runs the targets of one kind."""

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:
        """Return why *run* must not start at *now*, or None. Called before the run is claimed.
        *first*: it is the first dispatch of the run. After None, `release` is called once.
        """

    def release(self, job: Job, run: RunKey) -> None:
        """Give back what `admit` took for *run*, which has made its attempt or makes none. Never
        raises.
        """

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        """Make one attempt of *run*, for at most *longest*. *supervisor* is asked several times a
        second, and its verdict ends the attempt.

        Failures are results, including those of dependencies such as a secret that is absent. The
        reason of the result has no secrets and at most `MAX_RECORDED_REASON` characters.

        Raises:
            Exception: Whatever *supervisor* raised.
        """
