"""Returns the runs and messages of a dead worker, so that other workers take over immediately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Generic

from nextfire.dataclass import dataclass
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.instants import CLOCKS_DIFFER
from nextfire.domain.message import decode_message
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.queues import D
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.worker import Notices

_MAX_BATCH = 10
_RETRY_AFTER = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Returned:
    """What was returned: `runs` whose lease was ended, `messages` that were made visible. `left`:
    messages for which a store or the queue did not answer in time; they are redelivered when their
    visibility timeout ends.
    """

    runs: int = 0
    messages: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class ReturnHeld(Generic[D]):
    """Ends the leases of a dead worker's runs and makes its messages visible.

    The worker that receives a message next finds the lease expired and decides as for any lost
    worker: next attempt, DEAD or CANCELLED. So the attempt counts, and a script that kills its
    worker runs out of attempts.

    Args:
        runs: The runs.
        show: Makes up to 10 messages visible; returns which were refused, and why.
        clock: The clock.
        notices: Receives errors.
    """

    runs: RunStore
    show: Callable[[Sequence[D]], Sequence[str]]
    clock: Clock
    notices: Notices

    def give_back(self, held: Sequence[D], *, polls_until: datetime, until: datetime) -> Returned:
        """Return *held*, in the order in which it was received. The process that held it, and all
        scripts that it started, must be dead.

        Safe to interrupt and to repeat: each write is conditional on the claim that the worker
        made. Requests that a store does not answer are retried until *until*.

        Args:
            held: The messages that the worker held.
            polls_until: The end of the worker's last poll. SQS continues it, and would hide a
                message that is visible before that for a lease, without a receiver.
            until: When to give up.
        """
        released: set[str] = set()
        shown, left = 0, list(held)
        while left:
            # Leases first: a worker that receives a message waits while the lease is in force.
            ready, again = self._end_leases(left, released)
            if ready:
                self.clock.sleep(max(polls_until - self.clock.now(), timedelta()))
            for first in range(0, len(ready), _MAX_BATCH):
                shown += self._show_some(ready[first : first + _MAX_BATCH], again)
            left = again
            if self.clock.now() + _RETRY_AFTER >= until:
                break
            if left:
                self.clock.sleep(_RETRY_AFTER)
        return Returned(len(released), shown, len(left))

    def _end_leases(self, left: Sequence[D], released: set[str]) -> tuple[list[D], list[D]]:
        """Those of *left* that may be received now, and those to be retried. The tokens of claims
        that held a run until now are added to *released*.
        """
        ready: list[D] = []
        again: list[D] = []
        for delivery in left:
            try:
                if self._end_lease(delivery):
                    released.add(delivery.token)
            except UnavailableError as error:
                self.notices.warn("run not given back yet", error)
                again.append(delivery)
                continue
            except Exception as error:  # noqa: BLE001 — the others are returned
                self.notices.fail("run not given back", error)
            ready.append(delivery)
        return ready, again

    def _show_some(self, some: Sequence[D], again: list[D]) -> int:
        """Returns how many of *some* are visible. Those to be retried are appended to *again*."""
        try:
            refused = self.show(some)
        except UnavailableError as error:
            self.notices.warn("messages not given back yet", error)
            again += some
            return 0
        except Exception as error:  # noqa: BLE001 — their runs are free when they are redelivered
            self.notices.fail("messages not given back", error)
            return 0
        if refused:
            self.notices.warn("messages not given back", ", ".join(refused))
        return len(some) - len(refused)

    def _end_lease(self, delivery: D) -> bool:
        """Returns whether *delivery*'s claim held its run until now. An ended run is not changed.

        Raises:
            UnavailableError: The store did not answer.
        """
        try:
            run = self.runs.get(decode_message(delivery.body).key)
        except UndecodableError:
            return False  # the worker that receives the message handles it
        if run is None or run.claim_token != delivery.token:
            return False
        # In the past for every worker, even if its clock is behind.
        lapsed = self.clock.now() - CLOCKS_DIFFER
        return self.runs.extend(run, lease_until=lapsed) is not None
