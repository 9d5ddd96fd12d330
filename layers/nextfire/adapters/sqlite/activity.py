"""Reads what an embedded stack does at this moment."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from nextfire.adapters.dynamodb.run_items import dead_runs
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.activity import LATE_JOBS, MAX_LAG, RECENT, Activity, LateJob
from nextfire.domain.due import PARKED_AT_MOST, bucket_name
from nextfire.domain.instants import MINUTE, from_ms, parse_instant, to_ms

_HELD = "json_extract(item, '$.held.BOOL') IS NOT NULL"
_DUE = f"""SELECT min(iif({_HELD}, NULL, entry)), total(entry < :late AND NOT {_HELD})
    FROM due WHERE bucket < :bucket AND entry < :now"""  # noqa: S608 — constants
_LATE_JOBS = f"""SELECT json_extract(item, '$.job_id.S') AS job, min(entry) AS first
    FROM due WHERE bucket < :bucket AND entry < :late AND NOT {_HELD} AND job IS NOT NULL
    GROUP BY job ORDER BY first LIMIT {LATE_JOBS}"""  # noqa: S608 — constants
# A run that waits is in a later bucket: parked, or due at the instant at which it is tried again.
_WAITING = f"SELECT count(*) FROM due WHERE bucket < :last AND {_HELD}"  # noqa: S608 — constants
_MESSAGES = """SELECT total(NOT taken), total(taken) FROM (SELECT
    coalesce(hidden_until > :now, 0) AS taken FROM messages WHERE queue NOT LIKE '%#dead')"""
_OLDEST = """SELECT body FROM messages WHERE queue NOT LIKE '%#dead' AND NOT
    coalesce(hidden_until > :now, 0) AND in_group NOT IN
    (SELECT in_group FROM messages WHERE hidden_until > :now) ORDER BY number LIMIT 1"""
_DEAD = "SELECT count(*) FROM runs WHERE attention = :dead AND attention_at >= :since"
# Not of SKIPPED runs: one that is skipped in advance has its instant.
_LATEST = """SELECT max(step_at) FROM (
    SELECT * FROM (SELECT step_at FROM runs WHERE tenant = :tenant AND state = 'SUCCEEDED'
        ORDER BY step_at DESC LIMIT 1) UNION ALL
    SELECT * FROM (SELECT step_at FROM runs WHERE tenant = :tenant AND state = 'DEAD'
        ORDER BY step_at DESC LIMIT 1))"""
_NONE = timedelta()


def read_activity(database: Database, tenant: str, now: datetime) -> Activity:
    """Return the activity of a stack with one shard. *tenant*: whose ended runs count.

    Raises:
        UnavailableError: The database cannot be read.
    """
    values: dict[str, object] = {
        "bucket": bucket_name(now + MINUTE, 0),  # quarantined entries sort after it
        "last": bucket_name(now + PARKED_AT_MOST + 2 * MINUTE, 0),
        "now": f"{to_ms(now):013d}",
        "late": f"{to_ms(now - MAX_LAG):013d}",
        "tenant": tenant,
        "dead": dead_runs(tenant),
        "since": f"{to_ms(now - RECENT):013d}",
    }
    with database.reading("read activity") as connection:
        first, late = connection.execute(_DUE, values).fetchone()
        late_jobs = connection.execute(_LATE_JOBS, values).fetchall() if late else []
        (held,) = connection.execute(_WAITING, values).fetchone()
        (failed,) = connection.execute(_DEAD, values).fetchone()
        (latest,) = connection.execute(_LATEST, values).fetchone()
        values["now"] = to_ms(now)
        queued, running = connection.execute(_MESSAGES, values).fetchone()
        oldest = connection.execute(_OLDEST, values).fetchone()
    return Activity(
        lag=_NONE if first is None else _since(first, now),
        late=int(late),
        held=held,
        queued=int(queued),
        wait=_NONE if oldest is None else max(now - _dispatched_at(oldest[0], now), _NONE),
        running=int(running),
        failed=int(failed),
        ahead=_NONE if latest is None else max(parse_instant(f"{latest}Z") - now, _NONE),
        late_jobs=tuple(LateJob(job, _since(entry, now)) for job, entry in late_jobs),
    )


def _since(entry: str, now: datetime) -> timedelta:
    """How long ago the due entry with the sort key *entry* became due."""
    return max(now - from_ms(int(entry[:13])), _NONE)


def _dispatched_at(body: str, now: datetime) -> datetime:
    """When the message *body* was dispatched; *now* if it cannot be read."""
    try:
        return datetime.fromisoformat(json.loads(body)["dispatchedAt"])
    except (ValueError, KeyError, TypeError):
        return now
