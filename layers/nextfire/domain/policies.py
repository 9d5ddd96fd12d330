"""The policies of a job: priority, misfire, overlap and retry."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.document import Document, document_error
from nextfire.domain.due import NORMAL_RANK
from nextfire.domain.jitter import spread
from nextfire.domain.schedule import MAX_DELAY

MAX_WINDOW_SEC = 30 * 86_400


class Priority(StrEnum):
    """Order of runs that are due in the same second."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        """0 goes first."""
        return {Priority.HIGH: 0, Priority.NORMAL: NORMAL_RANK, Priority.LOW: 2}[self]


class MisfirePolicy(StrEnum):
    """How late occurrences are handled. Occurrences that do not run are recorded as skipped."""

    RUN_ALL = "RUN_ALL"  # each runs, one after the other
    RUN_LATEST = "RUN_LATEST"  # only the latest runs
    SKIP = "SKIP"  # none runs


class Misfire(Document):
    """How late occurrences are handled. `relevancyWindowSec` (seconds): a run that would start
    later than this after its due time is skipped, whatever the policy.
    """

    policy: MisfirePolicy = Field(
        default=MisfirePolicy.RUN_LATEST,
        description="Which runs missed in an outage or a pause still run.",
    )
    relevancy_window_sec: Annotated[int, Field(strict=True, ge=1, le=MAX_WINDOW_SEC)] | None = (
        Field(
            default=None,
            description="Skip a run that would start later than this after it was due, in seconds.",
        )
    )

    @property
    def relevancy_window(self) -> timedelta | None:
        seconds = self.relevancy_window_sec
        return None if seconds is None else timedelta(seconds=seconds)


class Overlap(StrEnum):
    """How an occurrence is handled that is due while an earlier run of its job has not ended."""

    ALLOW = "ALLOW"  # both run concurrently
    QUEUE = "QUEUE"  # it waits until the earlier run has ended
    SKIP = "SKIP"  # it is skipped
    REPLACE = "REPLACE"  # the earlier one is cancelled


class Backoff(StrEnum):
    """How the retry delay grows with the number *n* (≥ 1) of attempts; d is `initial_delay_ms`."""

    FIXED = "FIXED"  # d
    LINEAR = "LINEAR"  # d · n
    EXPONENTIAL = "EXPONENTIAL"  # d · 2ⁿ⁻¹


class RetryJitter(StrEnum):
    """How retry delays are randomized, so that runs that fail together do not retry together."""

    NONE = "NONE"  # exactly the delay
    FULL = "FULL"  # between 0 and the delay, by a hash of the run and the attempt


RetriedOutcome = Literal[
    AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.WORKER_LOST
]
RETRIED: tuple[RetriedOutcome, ...] = (
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMED_OUT,
    AttemptOutcome.WORKER_LOST,
)
"""Outcomes of an attempt that can be retried."""


class RetryOn(Document):
    """Which attempts are retried. `states`: their outcomes. `exitCodes`: FAILED attempts are
    retried only with one of these exit codes (negative: killed by that signal). Default: any.
    """

    states: Annotated[tuple[RetriedOutcome, ...], Field(max_length=len(RETRIED))] = Field(
        default=RETRIED, description="Retry only after these outcomes of an attempt."
    )
    exit_codes: (
        Annotated[
            tuple[Annotated[int, Field(strict=True, ge=-64, le=255)], ...],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = Field(
        default=None,
        description="Retry FAILED attempts only with these exit codes; signals are negative. For "
        "scripts only.",
    )

    def covers(self, result: Result, *, has_exit_codes: bool = True) -> bool:
        """Whether an attempt that ended with *result* is retried. *has_exit_codes*: False for
        calls: `exit_codes` does not apply to them.
        """
        if result.outcome not in self.states:
            return False
        return (
            self.exit_codes is None
            or not has_exit_codes
            or result.outcome is not AttemptOutcome.FAILED
            or result.exit_code in self.exit_codes
        )


MAX_RETRY_DELAY_MS = MAX_DELAY // timedelta(milliseconds=1)
_USUAL_MAX_DELAY_MS = 3_600_000


class RetryPolicy(Document):
    """How often, and after which delay, a failed attempt is retried."""

    max_attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        default=3,
        description="Maximum number of attempts of a run. A lost worker counts as an attempt.",
    )
    backoff: Backoff = Field(
        default=Backoff.EXPONENTIAL,
        description="How the delay grows with the number n of attempts, from d = `initialDelayMs`. "
        "FIXED: d. LINEAR: d·n. EXPONENTIAL: d·2ⁿ⁻¹.",
    )
    initial_delay_ms: Annotated[int, Field(strict=True, ge=0, le=MAX_RETRY_DELAY_MS)] = Field(
        default=10_000,
        description="Delay before the second attempt, in milliseconds. Less than 1 s counts as "
        f"1 s. All delays of a run together: at most {MAX_DELAY.days:,} days.",
    )
    max_delay_ms: Annotated[int, Field(strict=True, ge=0, le=MAX_RETRY_DELAY_MS)] = Field(
        default=_USUAL_MAX_DELAY_MS,
        description="Maximum delay between attempts, in milliseconds. If absent: the default, or "
        "`initialDelayMs` if that is longer.",
    )
    jitter: RetryJitter = Field(
        default=RetryJitter.NONE,
        description="FULL: wait a random part of the delay, so that runs that failed together are "
        "not retried together.",
    )
    retry_on: RetryOn = RetryOn()

    @model_validator(mode="before")
    @classmethod
    def _raise_default_max_delay(cls, document: object) -> object:
        """Set an absent `maxDelayMs` to the initial delay if its default would be shorter."""
        if isinstance(document, dict) and not document.keys() & {"maxDelayMs", "max_delay_ms"}:
            first = document.get("initialDelayMs", document.get("initial_delay_ms"))
            if isinstance(first, int) and _USUAL_MAX_DELAY_MS < first <= MAX_RETRY_DELAY_MS:
                return {**document, "maxDelayMs": first}
        return document

    @model_validator(mode="after")
    def _limit_total_delay(self) -> Self:
        # Jitter only shortens the delays.
        total = sum((self._backoff(n) for n in range(1, self.max_attempts)), timedelta())
        if total > MAX_DELAY:
            raise document_error(
                "retry_total",
                f"the delays add up to {total.days} days, more than {MAX_DELAY.days}",
                "Lower maxAttempts, initialDelayMs or maxDelayMs.",
            )
        return self

    @property
    def has_usual_max_delay(self) -> bool:
        """Whether `maxDelayMs` is what it is if it is absent."""
        return self.max_delay_ms == max(_USUAL_MAX_DELAY_MS, self.initial_delay_ms)

    def delay(self, attempt: int, seed: str = "") -> timedelta:
        """Return the delay after attempt number *attempt* (≥ 1). *seed*: identifies the run, for
        the jitter.
        """
        delay = self._backoff(attempt)
        if self.jitter is RetryJitter.FULL:
            return spread(f"{seed}#{attempt}", delay)
        return delay

    def _backoff(self, attempt: int) -> timedelta:
        factor = {
            Backoff.FIXED: 1,
            Backoff.LINEAR: attempt,
            Backoff.EXPONENTIAL: 2 ** min(attempt - 1, 40),
        }[self.backoff]
        return timedelta(milliseconds=min(self.initial_delay_ms * factor, self.max_delay_ms))
