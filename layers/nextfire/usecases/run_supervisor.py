"""Keeps a run alive while its script runs: heartbeats, cancellation, log and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from nextfire.dataclass import dataclass, replace
from nextfire.domain.attempt import MAX_INLINE_BYTES, Result, Value, rejection
from nextfire.domain.errors import (
    InvalidInputError,
    NextfireError,
    NotSettledError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import RunFolder
from nextfire.domain.log import Stream
from nextfire.domain.message import recordable
from nextfire.domain.places import run_place
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.queues import Delivery
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import Directive, RunFiles
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import Run, RunState
from nextfire.usecases.run_log import RunLog

T = TypeVar("T")

CANCEL_CHECK_EVERY = timedelta(seconds=4)
"""How often a worker checks whether its run is to be cancelled. The heartbeat returns this too, but
it is less frequent: a check costs half a read unit, a heartbeat a write unit."""
_RETRY_AFTER = timedelta(seconds=1)
_SHORT_WAIT = timedelta(seconds=2)
_EXTENDED_FOR = timedelta(minutes=15)
"""How long a lease is extended for an outcome, for example during an outage of S3."""
_ENDING_FOR = timedelta(seconds=8)
"""How long an outcome is retried by a host that is about to end. Lambda leaves it 15 s."""
RETRIED_FOR = timedelta(seconds=3)
"""How long a call is retried that is repeated later, with growing delays, if its slot is released:
in an outage of the event bus, for example, each DEAD run would keep its slot busy."""


SHORT_RUN = timedelta(seconds=1)
"""Runs that end sooner cost no request for their message's visibility timeout."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the host of an executor provides for one message; see `ExecuteRun.handle`.

    `given_up`: the run has waited for its destination for too long: it ends without a call.
    """

    delivery: Delivery
    stopping: Callable[[], bool]
    longest: timedelta
    hidden_longer: bool = False
    given_up: Hold | None = None


class RunSupervisor:
    """The `Supervisor` of a script, for a run that this worker owns until its lease expires."""

    def __init__(
        self,
        runs: RunStore,
        files: RunFiles,
        run: Run,
        host: Host,
        *,
        clock: Clock,
        lease: timedelta,
        log: RunLog,
        folder: RunFolder,
    ) -> None:
        self.log = log
        self.cancel_reason = "cancelled on request"
        self._runs = runs
        self._files = files
        self._folder = folder
        self._run = run
        self._delivery = host.delivery
        self._clock = clock
        self._lease = lease
        self._stopping = host.stopping
        now = self._asked_at = clock.now()
        self._heartbeat_at = now + self._heartbeat
        self._check_at = now + CANCEL_CHECK_EVERY
        self._shorten_at = now + SHORT_RUN if host.hidden_longer else None
        self._lease_until = run.lease_until or now
        self._checkpoint: bytes | None = None
        self._saved = 0
        self._lost = False
        self._refused_at: datetime | None = None
        """When a heartbeat or a check was refused first, since the last heartbeat."""

    @property
    def _heartbeat(self) -> timedelta:
        return self._lease / 3

    def retry(self, call: Callable[[], T], *, within: timedelta | None = None) -> T:
        """Retry *call* until the stores answer, for *within* or as long as the lease lasts, so that
        one throttled request does not lose the work of a script. If only the store of runs answers,
        the lease is extended, for `_EXTENDED_FOR` at most. A host that is about to end waits no
        longer than `_ENDING_FOR`: it still has to hand back messages. Nor is a refusal, such as a
        missing permission, retried for longer. Once the outcome is recorded, what follows from it
        is retried for `RETRIED_FOR`.

        Raises:
            UnavailableError: A store did not answer in that time.
            Exception: The last refusal of a store.
        """
        extended_until = self._clock.now() + _EXTENDED_FOR
        until = extended_until + self._lease
        while True:
            try:
                return call()
            except Exception as error:
                if isinstance(error, NotSettledError):
                    within = RETRIED_FOR
                elif not isinstance(error, UnavailableError):
                    if isinstance(error, NextfireError):
                        raise
                    within = within or _ENDING_FOR
                if within is not None:
                    until = min(until, self._clock.now() + within)
                elif self._stopping():
                    until = min(until, self._clock.now() + _ENDING_FOR)
                elif self._heartbeat_at <= self._clock.now() < extended_until:
                    self._extend_lease()
                if self._clock.now() + _RETRY_AFTER >= min(self._lease_until, until):
                    raise
                self._clock.sleep(_RETRY_AFTER)

    def ask(self) -> Directive:
        now = self._clock.now()
        if now < self._asked_at:  # the clock was set back: the instants below are too far away
            self._heartbeat_at = now
            self._lease_until = min(self._lease_until, now + self._lease)
            self._shorten_at = self._shorten_at and now
        self._asked_at = now
        if self._lost or now >= self._lease_until:
            # Another worker may have the run by now.
            return Directive.LEASE_LOST
        if self._stopping():
            return Directive.HAND_BACK
        self.log.ship(now)
        try:
            if now >= self._heartbeat_at:
                return self._send_heartbeat()
            if self._shorten_at is not None and now >= self._shorten_at:
                self._shorten_at = now + _RETRY_AFTER  # if the queue does not answer
                self._delivery.hide(self._lease)
                self._shorten_at = None
            if now >= self._check_at:
                return self._check_cancelled()
        except UnavailableError:
            self._ask_again(now)
        except Exception:
            # Such as a permission that is missing while a policy is replaced. If it stays missing,
            # the attempt ends while this worker can still record why.
            self._refused_at = self._refused_at or now
            if now - self._refused_at >= self._heartbeat:
                raise
            self._ask_again(now)
        return Directive.CONTINUE

    def _ask_again(self, now: datetime) -> None:
        """The lease is still in force; retry until it expires."""
        self._check_at = now + _RETRY_AFTER
        self._heartbeat_at = max(self._heartbeat_at, self._check_at)

    def output(self, stream: Stream, data: bytes) -> None:
        self.log.feed(stream, data)

    def load(self) -> None:
        """Load the checkpoint of earlier attempts.

        Raises:
            InvalidInputError: The checkpoint is in a file that this pool does not have.
            UnavailableError: The store did not answer.
        """
        saved = self._run.checkpoint
        if saved is None:
            return
        if saved.text is not None:
            self._checkpoint = saved.text.encode()
        elif saved.file is not None:
            self._checkpoint = self._files.get(self._folder, saved.file)
            if self._checkpoint is None:
                raise _no_checkpoint(saved.file, self._folder)

    def checkpoint(self) -> bytes | None:
        return self._checkpoint

    def save(self, checkpoint: bytes) -> str | None:
        if rejected := rejection("checkpoint", checkpoint):
            return rejected
        self._saved += 1
        name = f"checkpoint/{self._run.fence:06d}-{self._saved:06d}.json"
        stored = self._runs.save(self._run, self.keep(checkpoint, name))
        if stored is None:
            self._lost = True
            return "the checkpoint was not stored: this worker has lost the run"
        self._checkpoint = checkpoint
        return None

    def keep(self, text: bytes, name: str) -> Value:
        """*text* as a value of the run: inline on its record, or in the file *name* if it is large.

        Raises:
            UnavailableError: The store did not answer.
        """
        if len(text) <= MAX_INLINE_BYTES:
            return Value(len(text), text=text.decode())
        self._files.put(self._folder, name, text)
        return Value(len(text), file=name)

    def with_value(self, result: Result, given: bytes | None) -> Result:
        """Return *result* with the value *given* by the target, if there is one that can be kept.

        Raises:
            UnavailableError: The store did not answer.
        """
        if given is None:
            return result
        if rejected := rejection("result", given):
            return replace(result, reason=recordable(f"{result.reason}; {rejected}"))
        try:
            kept = self.keep(given, f"result/{self._run.fence:06d}.json")
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 — the target did its work
            why = f"{result.reason}; its result could not be stored: {error}"
            return replace(result, reason=recordable(why))
        return replace(result, value=kept)

    def close_log(self, *, followed: bool, at_once: bool) -> int:
        """Store the rest of the log, as long as the lease is not in danger; for 2 s at most if
        *at_once*. Returns the number of its parts; see `RunLog.close`.
        """
        until = self._lease_until - self._heartbeat
        if at_once:
            until = min(until, self._clock.now() + _SHORT_WAIT)
        return self.log.close(until=until, followed=followed)

    def _extend_lease(self) -> None:
        """Send a heartbeat while the outcome is recorded, which finds a loss or a cancel itself."""
        self._heartbeat_at = self._clock.now() + self._heartbeat
        with suppress(UnavailableError):
            self._send_heartbeat()

    def _send_heartbeat(self) -> Directive:
        now = self._clock.now()
        extended = self._runs.extend(self._run, lease_until=now + self._lease)
        if extended is None:
            return Directive.LEASE_LOST
        self._lease_until = now + self._lease
        self._heartbeat_at = now + self._heartbeat
        self._check_at = now + CANCEL_CHECK_EVERY
        verdict = self._verdict(extended)
        self._delivery.hide(self._lease)
        self._refused_at = None
        return verdict

    def _check_cancelled(self) -> Directive:
        self._check_at = self._clock.now() + CANCEL_CHECK_EVERY
        try:
            seen = self._runs.peek(self._run.key)
        except UndecodableError:
            return Directive.CONTINUE  # the heartbeat will fail as well
        if seen is None or seen.fence < self._run.fence:
            return Directive.CONTINUE  # a stale read, from before this worker's claim
        if seen.fence > self._run.fence or seen.state is not RunState.RUNNING:
            return Directive.LEASE_LOST
        return self._verdict(seen)

    def _verdict(self, run: Run) -> Directive:
        self.cancel_reason = run.cancel_reason or self.cancel_reason
        return Directive.CANCEL if run.cancel_requested else Directive.CONTINUE


def _no_checkpoint(file: str, folder: RunFolder) -> InvalidInputError:
    # Without the checkpoint the script would silently repeat work.
    return InvalidInputError(
        "checkpoint",
        f"{run_place(folder)}{file}",
        "this pool does not have the checkpoint file that an earlier attempt saved",
        "Copy the file there from the prefix of the pool that ran the earlier attempt, or move the "
        "job back to that pool; then redrive the run.",
    )
