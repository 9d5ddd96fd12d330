"""The overview in SQLite: an index of the runs by state and latest step, always up to date."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from datetime import datetime

from nextfire.adapters.dynamodb.cursors import decode_cursor, encode_cursor
from nextfire.adapters.dynamodb.pages import decode_all
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.adapters.dynamodb.run_reads import execution_id
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.ids import JOB_ID, RUN_ID
from nextfire.domain.instants import floor_minute, isoformat, parse_instant
from nextfire.domain.overview import ENDED, OPEN, Counts
from nextfire.domain.ports.overview import Freshness, OverviewPage, StepFilter
from nextfire.domain.run import RunState

_AT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?"
_PLACE = re.compile(rf"{_AT} {JOB_ID.pattern} {RUN_ID.pattern}")
_SOME = """SELECT * FROM (SELECT item, step_at, job, run_id FROM runs
    WHERE tenant = :tenant AND state = '{state}' AND step_at >= :first
    AND (step_at, job, run_id) < (:at, :job, :run_id) AND (:pool IS NULL OR pool = :pool)
    ORDER BY step_at DESC, job DESC, run_id DESC LIMIT :limit)"""
_ENDED = """SELECT '{state}', substr(step_at, 1, 16), count(*) FROM runs
    WHERE tenant = :tenant AND state = '{state}' AND step_at >= :first GROUP BY 2"""
_OPEN = "SELECT '{state}', '', count(*) FROM runs WHERE tenant = :tenant AND state = '{state}'"


class SqliteRunOverview:
    """`RunOverview` in *database*."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def covers(self, tenant: str) -> bool:  # noqa: ARG002 — of every tenant
        return True

    def list(
        self, tenant: str, wanted: StepFilter, *, cursor: str | None, limit: int
    ) -> OverviewPage:
        place = (_text(wanted.before), "", "")
        if cursor is not None:
            at, job_id, run_id = decode_cursor(cursor, _PLACE).split(" ")
            place = min(place, (at, f"{tenant}/{job_id}", run_id))
        values = {
            "tenant": tenant,
            "first": _text(wanted.first),
            "pool": wanted.pool,
            "limit": limit + 1,
        } | dict(zip(("at", "job", "run_id"), place, strict=True))
        with self._database.reading("read the overview") as connection:
            rows = [*connection.execute(_for_each(_SOME, wanted.states), values)]
        rows.sort(key=lambda row: row[1:], reverse=True)
        runs, unreadable = decode_all(
            (json.loads(row[0]) for row in rows[:limit]), decode_run, execution_id
        )
        more = None
        if len(rows) > limit:
            _, at, job, run_id = rows[limit - 1]
            more = encode_cursor(f"{at} {job.partition('/')[2]} {run_id}")
        return OverviewPage(runs, more, unreadable, Freshness())

    def counts(self, tenant: str, first: datetime) -> tuple[Counts, Freshness]:
        first = floor_minute(first)
        query = f"{_for_each(_ENDED, ENDED)} UNION ALL {_for_each(_OPEN, OPEN)}"
        minutes: dict[datetime, Counter[RunState]] = {}
        open_runs: dict[RunState, int] = {}
        with self._database.reading("count runs") as connection:
            rows = [*connection.execute(query, {"tenant": tenant, "first": _text(first)})]
        for state, minute, count in rows:
            if minute:
                at = parse_instant(f"{minute}Z")
                minutes.setdefault(at, Counter())[RunState(state)] = count
            else:
                open_runs[RunState(state)] = count
        return Counts(open_runs, dict(sorted(minutes.items())), first), Freshness()


def _for_each(query: str, states: Collection[RunState]) -> str:
    """*query* for each of *states* as one statement, so that a run that changes meanwhile is found
    once.
    """
    return " UNION ALL ".join(query.format(state=state.value) for state in states)


def _text(at: datetime) -> str:
    """*at* as in the column `step_at`: without the `Z`, texts sort like their instants."""
    return isoformat(at).removesuffix("Z")
