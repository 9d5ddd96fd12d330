"""Reads of run records, and the items of complete records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.fields import INSTANT, TEXT, Field, encoder, names
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.pages import decode_all, limited
from nextfire.adapters.dynamodb.run_items import (
    ATTENTION_AT,
    KEY,
    MARKS,
    RUNS_TABLE,
    dead_runs,
    decode_run,
    encode_key,
    partition,
)
from nextfire.adapters.dynamodb.run_reads import decode_runs, execution_id
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import END, RUNS, after
from nextfire.domain.ids import RUN_ID, JobKey, RunKey, first_run_id
from nextfire.domain.instants import to_ms
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import Run, RunState

_OTHERWISE: dict[str, Field[Run]] = {
    # The list of the table says that only SKIPPED records write these two: on DynamoDB the claim
    # sets them on others.
    "pool": Field("pool", TEXT),
    "dispatched_at": Field("dispatched_at", INSTANT),
    # One partition: here no partition has a limit.
    "attention": Field(
        "attention",
        TEXT,
        get=lambda run: dead_runs(run.key.job.tenant) if run.state is RunState.DEAD else None,
    ),
}
_NAMES = frozenset(names(RUNS_TABLE))
_encode = encoder(
    _OTHERWISE.get(each.name, each) for each in RUNS_TABLE[len(KEY) :] if each is not MARKS
)


def stored_item(run: Run) -> Item:
    """The item of *run*, complete."""
    return encode_key(run.key) | _encode(run)


def unknown_attributes(item: Item | None) -> Item:
    """The attributes of *item* that a later version wrote. They are kept."""
    return {name: value for name, value in (item or {}).items() if name not in _NAMES}


def run_key(key: RunKey) -> tuple[str, str]:
    """The key of the item of a run."""
    return partition(key.job), key.run_id


class RunReads:
    """The reads of `RunStore` in *database*."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: RunKey) -> Run | None:
        with self._database.reading("get run") as connection:
            item = RUNS.get(connection, *run_key(key))
        return None if item is None else decode_run(item)

    def peek(self, key: RunKey) -> Run | None:
        return self.get(key)

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:  # noqa: ARG002
        with self._database.reading("find runs") as connection:
            found = [RUNS.get(connection, *run_key(key)) for key in keys]
        items = [item for item in found if item is not None]
        runs, unreadable = decode_all(items, decode_run, execution_id)
        return Page(runs, None, unreadable)

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
        low, high = first, after(last)
        while True:
            items = self._query(job, low, high, limit=page, newest_first=newest_first)
            yield from decode_runs(items, job, lenient=lenient)
            if len(items) < page:
                return
            reached = items[-1]["run_id"]["S"]
            low, high = (low, reached) if newest_first else (after(reached), high)

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        low, high = "", END
        if first is not None and before is not None:
            low, high = first_run_id(first), first_run_id(before)
        if cursor is not None:
            high = min(high, decode_cursor(cursor, RUN_ID))
        items = self._query(job, low, high, limit=limit + 1, newest_first=True)
        return limited(items, limit, decode_run, "run_id")

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        low, high = f"{to_ms(first):013d}", f"{to_ms(last):013d}~"
        if cursor is not None:
            high = min(high, decode_cursor(cursor, ATTENTION_AT))
        with self._database.reading("list dead runs") as connection:
            items = RUNS.select(
                connection,
                "WHERE attention = ? AND attention_at >= ? AND attention_at < ? "
                "ORDER BY attention_at DESC LIMIT ?",
                (dead_runs(tenant), low, high, limit + 1),
            )
        return limited(
            items, limit, decode_run, "attention_at", lambda name: name.partition("#")[2]
        )

    def _query(
        self, job: JobKey, low: str, high: str, *, limit: int, newest_first: bool
    ) -> Sequence[Item]:
        with self._database.reading("read runs") as connection:
            return RUNS.query(
                connection, partition(job), low, high, limit=limit, newest_first=newest_first
            )
