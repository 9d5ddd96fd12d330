"""Attempts of runs: their history, their results, and the values that scripts leave."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

from nextfire.dataclass import dataclass, replace


class AttemptOutcome(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    WORKER_LOST = "WORKER_LOST"
    CANCELLED = "CANCELLED"
    HANDED_BACK = "HANDED_BACK"
    DEFERRED = "DEFERRED"  # the destination, or a service that a script needs, did not answer

    @property
    def counts(self) -> bool:
        """Whether the attempt counts toward `maxAttempts`. The next one repeats the number of an
        attempt that does not count.
        """
        return self not in (AttemptOutcome.HANDED_BACK, AttemptOutcome.DEFERRED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run.

    - `number`: from 1; an attempt after one that does not count repeats the number.
    - `log_parts`: number of parts of its log in `RunFiles`; 0: the output of the latest attempt is
      on the record.
    - `script_sha256`: digest of the script that it fetched.
    - `pool`: the pool that made it and has its files; None: made by a version that did not separate
      pools.
    - `call`: what was called and how it responded, a JSON object; None for scripts.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    exit_code: int | None = None
    reason: str | None = None
    log_parts: int = 0
    script_sha256: str | None = None
    pool: str | None = None
    call: str | None = None

    @property
    def may_have_parts(self) -> bool:
        """Whether its log has, or may have, parts in `RunFiles`. Their number is unknown while the
        attempt is running, and after its worker was lost.
        """
        return self.log_parts > 0 or self.outcome in {None, AttemptOutcome.WORKER_LOST}


MAX_ATTEMPTS_KEPT = 100
"""Maximum number of attempts in a run's history; older ones are dropped."""

MAX_INLINE_BYTES = 8 * 1024
"""Maximum size of a result or checkpoint on the record; larger ones go to `RunFiles`."""
MAX_VALUE_BYTES = 1024 * 1024
"""Maximum size of a result or checkpoint."""
MAX_NESTING = 200
"""Maximum levels of arrays and objects in a result or checkpoint. Pydantic reads 255, and Python
1,000 without those of the calls around it: one that only its writer can read is useless.
"""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_OTHERS = bytes({*range(256)} - {*b"[]{}"})
MAX_CALL_BYTES = 2 * 1024
"""Maximum size of `Attempt.call`."""
MAX_CALLS_KEPT = 10
"""Number of the latest attempts of a run that keep their `call`: DynamoDB bills items by the KB."""


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value from a script, of *size* bytes: its `text`, or the name of its `file` in
    `RunFiles`.
    """

    size: int
    text: str | None = None
    file: str | None = None


def too_large(what: str, text: bytes) -> str:
    """The reason for rejecting *text*, a result or checkpoint larger than `MAX_VALUE_BYTES`."""
    return (
        f"the {what} has {len(text)} bytes, more than {MAX_VALUE_BYTES}. "
        "Store the data in S3 and put its address here."
    )


def is_nested_too_deeply(text: bytes, most: int = MAX_NESTING) -> bool:
    """Whether *text*, valid JSON, has more than *most* levels of arrays and objects."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    depth = 0
    for bracket in _TEXT.sub(b"", text).translate(None, _OTHERS):
        depth += 1 if bracket in b"[{" else -1
        if depth > most:
            return True
    return False


def rejection(what: str, text: bytes) -> str | None:
    """The reason for rejecting *text*, the JSON of a result or checkpoint; None if it is kept."""
    if len(text) > MAX_VALUE_BYTES:
        return too_large(what, text)
    if is_nested_too_deeply(text):
        return (
            f"the {what} is nested more than {MAX_NESTING} levels deep. "
            "Flatten it, for example into a list of objects that name their parents."
        )
    return None


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of an attempt.

    - `permanent`: a retry would end the same way, so none is made.
    - `value`: the result that the script set.
    - `call`: see `Attempt`; at most `MAX_CALL_BYTES`.
    - `retry_at`: the target asked for no retry before this instant.
    - `unavailable`: the destination of a call did not accept it, or a service that a script needs
      did not answer before the script started, or the executor lacked a resource to start it; so
      the attempt is deferred.
    - `pause`: the target asked to pause the job, for this reason.
    """

    outcome: AttemptOutcome
    reason: str
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    permanent: bool = False
    value: Value | None = None
    log_parts: int = 0
    script_sha256: str | None = None
    call: str | None = None
    retry_at: datetime | None = None
    unavailable: bool = False
    pause: str | None = None


def last_closed(
    attempts: tuple[Attempt, ...], result: Result, now: datetime
) -> tuple[Attempt, ...]:
    """Return the history *attempts* with its last attempt ended by *result*. Drops attempts beyond
    `MAX_ATTEMPTS_KEPT`, and the `call` of those beyond `MAX_CALLS_KEPT`.
    """
    if not attempts:
        return ()
    *before, last = attempts
    done = replace(
        last,
        finished_at=now,
        outcome=result.outcome,
        exit_code=result.exit_code,
        reason=result.reason,
        log_parts=result.log_parts,
        script_sha256=result.script_sha256,
        call=result.call,
    )
    old = len(before) + 1 - MAX_CALLS_KEPT
    kept = [replace(each, call=None) if n < old else each for n, each in enumerate(before)]
    return (*kept, done)[-MAX_ATTEMPTS_KEPT:]
