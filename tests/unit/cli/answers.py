"""What the API answers to the command in its tests."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.builders import key_text

ENDPOINT = "https://abc123.execute-api.eu-west-1.amazonaws.com"
LOCAL_KEY = key_text("000000000000")
JOB = {
    "jobId": "job_1",
    "state": "ACTIVE",
    "revision": 1,
    "nextFireAt": "2026-05-24T10:00:00Z",
    "type": "DELAY",
    "schedule": "PT5S",
    "timezone": "UTC",
    "target": {"pool": "default", "handler": "hello"},
}
PAUSED = JOB | {
    "state": "PAUSED",
    "revision": 2,
    "pauseReason": "the ledger is closed",
    "pausedAt": "2026-05-24T09:00:00Z",
}
BACKFILL = {
    "backfillId": "0123456789abcdef",
    "jobId": "job_1",
    "first": "2026-05-01T00:00:00Z",
    "last": "2026-05-02T23:00:00Z",
    "count": 48,
    "order": "OLDEST_FIRST",
    "askedAt": "2026-05-24T09:00:00Z",
}
RUN = {
    "executionId": "job_1.20260524T100000000Z-abcdefgh",
    "jobId": "job_1",
    "state": "SUCCEEDED",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "dispatchedAt": "2026-05-24T10:00:00.031Z",
    "attempt": 1,
}
QUOTAS = {
    "quotas": {"jobs": 20, "runsPerMinute": 600, "newer": 7},
    "used": {"jobs": 12, "runsPerMinute": 31},
    "minuteEndsAt": "2026-05-24T10:01:00Z",
    "weight": 3,
    "tenant": "acme",
    "ownEntry": True,
}
NUMBERS = {
    "running": 2,
    "pending": 1,
    "from": "2026-05-24T09:46:00Z",
    "minutes": [
        {"at": "2026-05-24T09:48:00Z", "succeeded": 2, "dead": 0, "cancelled": 0, "skipped": 0},
        {"at": "2026-05-24T09:51:00Z", "succeeded": 3, "dead": 1, "cancelled": 4, "skipped": 0},
    ],
    "overview": {"asOf": "2026-05-24T09:59:58Z", "lagSec": 5.2},
}
BETWEEN = ("--from", "2026-05-01T00:00:00Z", "--to", "2026-05-03T00:00:00Z")
ROUTES: dict[str, Any] = {
    "POST /v1/jobs": httpx2.Response(201, json=JOB),
    "GET /v1/jobs": {"items": [JOB]},
    "GET /v1/jobs/job_1": JOB,
    "PATCH /v1/jobs/job_1": JOB | {"revision": 2},
    "DELETE /v1/jobs/job_1": JOB | {"state": "CANCELLED"},
    "POST /v1/jobs/job_1/pause": PAUSED,
    "POST /v1/jobs/job_1/drain": PAUSED | {"draining": True},
    "POST /v1/jobs/job_1/backfill": httpx2.Response(202, json=BACKFILL),
    "DELETE /v1/jobs/job_1/backfill": JOB,
    "POST /v1/jobs/job_1/resume": JOB | {"revision": 3},
    "GET /v1/jobs/job_1/executions": {"items": [RUN]},
    f"GET /v1/executions/{RUN['executionId']}": RUN,
    "GET /v1/overview": NUMBERS,
    "GET /v1/executions": {"items": [RUN | {"state": "DEAD"}]},
    "GET /v1/quotas": QUOTAS,
    "GET /v1/health": {"status": "ok", "time": "2026-05-24T10:00:00Z"},
}
"""Answers to the requests of most commands."""
ID = "job_1.20260524T100000000Z-abcdefgh"
OTHER = "job_2.20260524T100000000Z-abcdefgh"
DEAD = {
    "executionId": ID,
    "jobId": "job_1",
    "state": "DEAD",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "finishedAt": "2026-05-24T10:00:03Z",
    "pool": "batch",
    "attempt": 3,
    "reason": "exit code \x1b[2J",
    "attempts": [{"number": 3, "outcome": "FAILED", "logs": f"/v1/executions/{ID}/logs"}],
}
RUNNING = DEAD | {"state": "RUNNING", "cancelRequested": True, "cancelReason": "why"}
CANCELLED = DEAD | {"state": "CANCELLED"}


def problem(status: int, title: str) -> httpx2.Response:
    return httpx2.Response(status, json={"title": title, "status": status, "detail": "Do this."})
