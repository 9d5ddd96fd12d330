"""The store of run records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import Value
from nextfire.domain.due import DueEntry
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import Run, RunState


@dataclass(frozen=True, slots=True)
class Claim:
    """The outcome of a conditional write of a run. `run`: the stored record. `taken`: whether this
    write took effect.
    """

    run: Run
    taken: bool


class Written(Enum):
    """The outcome of a write that depends on a job and on a run."""

    DONE = "DONE"
    CHANGED = "CHANGED"  # the job has another revision
    REFUSED = "REFUSED"  # the state of the run, or its absence, does not allow it


class RunStore(Protocol):
    """Stores runs and decides who may execute them."""

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        """Lease the run to *worker* until *lease_until*, if it is free: absent, or PENDING, not of
        a later dispatch, past its `not_before`, and without a cancel request.

        Of concurrent callers exactly one gets it. A repeated call with the same *token* returns the
        claim that it made.
        """

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        """Replace *was* with *to*, if all these conditions hold.

        - the stored run is still RUNNING under the fence of *was*;
        - no cancel was requested, if *to* is PENDING, RUNNING (the next attempt) or DEAD;
        - the lease has not been extended, if *was* belongs to another worker and has *lapsed*.

        Does not write `cancel_requested` and `checkpoint`. A repeated call with the same *to*
        returns the record that it wrote.
        """

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        """Make the run CANCELLED, if it is absent or PENDING. An existing record keeps its dispatch
        number: *message* may be an earlier dispatch. Returns the stored record.
        """

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        """Set the end of the lease: later, for the worker that holds it; in the past, for a worker
        that is known to be dead. Returns the stored record; None if the lease was lost.
        """

    def peek(self, key: RunKey) -> Run | None:
        """Return the run, by an eventually consistent read.

        Raises:
            UndecodableError: The stored item is not a valid run.
        """

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        """Store *checkpoint* in the run. Returns the stored record; None if the lease was lost."""

    def mark_death_published(self, run: Run) -> None:
        """Record that the death of the DEAD *run* was published, unless it has been redriven."""

    def redrive(
        self,
        run: Run,
        entry: DueEntry,
        now: datetime,
        *,
        was: RunState = RunState.DEAD,
        by_user: bool = True,
    ) -> Claim:
        """Replace a run in the state *was* (DEAD, CANCELLED or SKIPPED) with *run*, made by
        `Run.redriven` with *by_user*, and store the due entry of its dispatch, in one transaction.
        `taken`: the stored run was in that state, had an earlier dispatch and the same attempts,
        and was not a range record. A repeated call returns the record that it wrote.
        """

    def bring_forward(self, was: Run, to: Run, entry: DueEntry, now: datetime) -> Claim:
        """Replace *was*, which is PENDING after an attempt, with *to*, made by
        `Run.brought_forward`, and store the due entry of its dispatch, in one transaction. `taken`:
        the stored run was PENDING with the dispatch and fence of *was*, without a cancel request. A
        repeated call returns the record that it wrote.
        """

    def await_parents(self, was: Run, to: Run) -> Claim:
        """Replace *was*, which is DEAD or SKIPPED, with *to*, made by `Run.awaiting_parents`, if
        the stored run has its state, dispatch and attempts, and is not a range record. A repeated
        call returns the record that it wrote.
        """

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        """Return *tenant*'s DEAD runs that died from *first* to *last*, both inclusive, latest
        death first, by eventually consistent reads. *limit*: page size, ≥ 1. A *cursor* may be used
        with another range.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        """Store *run* and a due entry in one transaction, unless a record exists: a PENDING run
        that a user requested, and the entry of its dispatch; or the SKIPPED one of an occurrence
        that time zone rules have moved, and the entry of its new instant. A repeated call with the
        same `request` returns the record that it wrote.
        """

    def skip(self, run: Run) -> Run:
        """Store the SKIPPED record *run*, unless a record exists. For a run that a user requested,
        replace its PENDING record instead, if it was never claimed and has the dispatch of *run*.
        Returns the stored record.
        """

    def skip_next(self, run: Run, job: Job) -> Written:
        """Store the SKIPPED record *run*, unless a record exists, and replace revision
        `job.revision - 1` with *job*, in one transaction.
        """

    def unskip(self, run: RunKey, job: Job) -> Written:
        """Delete the record of *run*, if a user asked to skip it, and replace revision
        `job.revision - 1` with *job*, in one transaction.
        """

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        """Make *run* CANCELLED if it is PENDING; request its cancellation if it is RUNNING.

        Returns:
            The stored record.
        """

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        """Iterate over the job's runs with ids from *first* to *last*, both inclusive, by
        consistent reads. Pages are read on demand. *lenient*: a run that does not decode is
        returned as a DEAD run with its key and nothing else.

        Raises:
            UndecodableError: A stored item is not a valid run.
        """

    def get(self, key: RunKey) -> Run | None:
        """Return the run, by a consistent read.

        Raises:
            UndecodableError: The stored item is not a valid run.
        """

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:
        """Return those of the runs *keys*, all different, that have a record, in any order. The
        reads are eventually consistent, unless *consistent*.

        Raises:
            UnavailableError: The store did not return all of them this time.
        """

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        """Return a job's runs, latest scheduled first, by an eventually consistent read. *first*
        and *before*, given together, select the runs scheduled at or after *first* and before
        *before*; a *cursor* may be used with another range. *limit*: page size, ≥ 1; a page may
        have fewer runs although more follow.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """
