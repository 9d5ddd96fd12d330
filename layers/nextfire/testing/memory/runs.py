"""Runs in memory."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from operator import attrgetter

from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import JobKey, RunKey, first_run_id
from nextfire.domain.instants import cut, to_ms
from nextfire.domain.job import Job
from nextfire.domain.ports.pages import Page, Unreadable
from nextfire.domain.ports.runs import Written
from nextfire.domain.run import Run, RunState
from nextfire.domain.run_writes import Change, TransactionalRuns, as_stored
from nextfire.testing.memory.due import MemoryDueStore
from nextfire.testing.memory.jobs import MemoryJobStore, cut_job
from nextfire.testing.memory.pages import listed

_by_run_id = attrgetter("run_id")
_PROBLEM = "run does not decode"


class MemoryRunStore(TransactionalRuns):
    """`RunStore`."""

    def __init__(
        self, due: MemoryDueStore | None = None, jobs: MemoryJobStore | None = None
    ) -> None:
        self.items: dict[RunKey, Run] = {}
        self._due = due
        self._jobs = jobs
        self._broken: set[RunKey] = set()
        self._sorted: dict[JobKey, list[RunKey]] = {}
        self._indexed = 0
        self._lock = threading.Lock()

    @property
    def all(self) -> dict[RunKey, Run]:
        return dict(self.items)

    def _keys(self, job: JobKey) -> list[RunKey]:
        """The keys of *job*'s records, in order. New keys come last in `items`, so the length shows
        how many to insert; keys are removed only by `forget`.
        """
        for key in islice(reversed(self.items), len(self.items) - self._indexed):
            insort(self._sorted.setdefault(key.job, []), key, key=_by_run_id)
        self._indexed = len(self.items)
        return self._sorted.get(job, [])

    def forget(self, key: RunKey) -> None:
        """Delete the record of *key*."""
        del self.items[key]
        self._sorted, self._indexed = {}, 0

    def spoil(self, key: RunKey) -> None:
        """Make the item of *key* undecodable; `repair` restores it."""
        self._broken.add(key)

    def repair(self, key: RunKey) -> None:
        self._broken.discard(key)

    def request_cancel(self, key: RunKey) -> None:
        self.items[key] = replace(self.items[key], cancel_requested=True)

    def skip_next(self, run: Run, job: Job) -> Written:
        def skip() -> bool:
            if self.get(run.key) is not None:
                return False
            self._store(run)
            return True

        return self._write_with(job, skip)

    def unskip(self, run: RunKey, job: Job) -> Written:
        def unskip() -> bool:
            record = self.get(run)
            if record is None or not record.skip_requested:
                return False
            self.forget(run)
            return True

        return self._write_with(job, unskip)

    def _write_with(self, job: Job, write: Callable[[], bool]) -> Written:
        """Replace the previous revision by *job*, if *write* returns True."""
        assert self._jobs is not None, "a store without a job store skips no occurrence"
        with self._lock:
            stored = self._jobs.items.get(job.key)
            if stored == cut_job(job):
                return Written.DONE
            if stored is None or (stored.uid, stored.revision) != (job.uid, job.revision - 1):
                return Written.CHANGED
            if not write():
                return Written.REFUSED
            self._jobs.update(job, None, job.updated_at)
            return Written.DONE

    def _change(
        self, what: str, key: RunKey, change: Change, due: tuple[DueEntry, datetime] | None = None
    ) -> tuple[Run | None, Run | None]:
        with self._lock:
            found = self.get(key)
            run = change(found)
            if run is None:
                return found, None
            if due is not None:
                assert self._due is not None, f"{what}: a store without a due store"
                self._due.put([due[0]], due[1])
            return found, self._store(run)

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
        def some(first: str, last: str) -> list[Run]:
            with self._lock:
                keys = self._keys(job)
                start = bisect_left(keys, first, key=_by_run_id)
                end = bisect_right(keys, last, key=_by_run_id)
                found = keys[start:end]
                found = found[-page:][::-1] if newest_first else found[:page]
                read = [(key, self.items[key]) for key in found]
            return [self._read(key, run, lenient=lenient) for key, run in read]

        while found := some(first, last):
            yield from found
            reached = found[-1].key.run_id
            first, last = (first, _before(reached)) if newest_first else (f"{reached}\0", last)

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        with self._lock:
            dead = {
                f"{to_ms(run.finished_at):013d}#{key.execution_id}": run
                for key, run in self.items.items()
                if run.state is RunState.DEAD
                and key.job.tenant == tenant
                and run.finished_at is not None
                and cut(first) <= run.finished_at <= cut(last)
            }
        broken = {place for place, run in dead.items() if run.key in self._broken}
        page = listed(dead, cursor, limit, broken=broken, problem=_PROBLEM, newest_first=True)
        unreadable = [replace(e, identity=e.identity.partition("#")[2]) for e in page.unreadable]
        return replace(page, unreadable=unreadable)

    def peek(self, key: RunKey) -> Run | None:
        return self.get(key)

    def get(self, key: RunKey) -> Run | None:
        if key in self._broken:
            raise UndecodableError(_PROBLEM)
        return self.items.get(key)

    def _read(self, key: RunKey, run: Run, *, lenient: bool) -> Run:
        if key not in self._broken:
            return run
        if not lenient:
            raise UndecodableError(_PROBLEM)
        return Run(key, RunState.DEAD)

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:  # noqa: ARG002
        if len({*keys}) < len(keys):
            raise ValueError("the keys are not all different, which DynamoDB rejects")
        with self._lock:
            found = [self.items[key] for key in keys if key in self.items]
        broken = [run.key for run in found if run.key in self._broken]
        return Page(
            [run for run in found if run.key not in broken],
            None,
            [Unreadable(key.execution_id, _PROBLEM) for key in broken],
        )

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        with self._lock:
            runs = {key.run_id: run for key, run in self.items.items() if key.job == job}
        if first is not None and before is not None:
            low, high = first_run_id(first), first_run_id(before)
            runs = {run_id: run for run_id, run in runs.items() if low < run_id < high}
        broken = {key.run_id for key in self._broken if key.job == job}
        return listed(runs, cursor, limit, broken=broken, problem=_PROBLEM, newest_first=True)

    def _store(self, run: Run) -> Run:
        self.items[run.key] = as_stored(run)
        return self.items[run.key]


def _before(run_id: str) -> str:
    """A string that sorts before *run_id* and after all smaller run ids."""
    return f"{run_id[:-1]}{chr(ord(run_id[-1]) - 1)}\uffff"
