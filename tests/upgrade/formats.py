"""Values of this release, and how they are stored and sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nextfire.adapters.dynamodb.due_items import decode_entry, entry_item
from nextfire.adapters.dynamodb.endpoint_items import decode_endpoint, encode_endpoint
from nextfire.adapters.dynamodb.job_items import decode_job, encode_job
from nextfire.adapters.dynamodb.run_items import decode_run, encode_run
from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.due import BackfillEntry, ResumeEntry, StoredEntry
from nextfire.domain.endpoints import Endpoint, EndpointKey
from nextfire.domain.message import SkippedRange, decode_message
from nextfire.domain.run import RunState
from tests.builders import NOON, UID, a_fire, a_job, a_message, a_retry, a_run, at, job_key, run_key

FROZEN = Path(__file__).with_name("release-0.json")
"""The formats of this release, one document for each name in `FORMATS`. Do not change a document:
the previous release reads and writes it. A new release gets a new file."""


@dataclass(frozen=True)
class Format:
    """A value, how it is written, and how it is read."""

    value: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _read_entry(item: Any) -> Any:
    stored = decode_entry(item)
    assert isinstance(stored, StoredEntry), stored
    return stored.entry


_JOB = replace(
    a_job(
        timezone="Europe/Berlin",
        maxRuns=9,
        name="Report",
        payload={"n": 1},
        target={"handler": "report", "env": {"KEY": {"secret": "db"}}},
        retryPolicy={"maxAttempts": 2},
        labels={"team": "a"},
    ).paused(at("13:00"), "maintenance"),
    skips=(at("14:00"),),
)
_CALL = a_job(
    target={"pool": "calls", "http": {"url": "https://example.com", "sign": [{"secret": "s"}]}}
)
_MISSED = SkippedRange(first=NOON, last=at("13:00"), count=2, version=1, reason="misfire")
_RUN = a_run(
    RunState.DEAD,
    attempt=1,
    fence=1,
    finished_at=at("12:01"),
    reason="exit code 1",
    attempts=(Attempt(1, "w1", NOON, at("12:01"), AttemptOutcome.FAILED, 1, "exit code 1"),),
)
_JOBS = (encode_job, decode_job)
_ENTRIES = (lambda entry: entry_item(entry, NOON, 4), _read_entry)
_MESSAGES = (lambda message: json.loads(message.encode()), lambda m: decode_message(json.dumps(m)))

FORMATS = {
    "message": Format(a_message(), *_MESSAGES),
    "message with ranges": Format(
        a_message().model_copy(update={"missed": (_MISSED,)}), *_MESSAGES
    ),
    "job": Format(_JOB, *_JOBS),
    "job of a callback": Format(_CALL, *_JOBS),
    "FIRE entry": Format(a_fire(a_job(), NOON), *_ENTRIES),
    "RETRY entry": Format(a_retry(run_key(), NOON), *_ENTRIES),
    "RESUME entry": Format(ResumeEntry(job_key(), UID, NOON), *_ENTRIES),
    "BACKFILL entry": Format(BackfillEntry(job_key(), UID, NOON, request="b1"), *_ENTRIES),
    "run": Format(_RUN, encode_run, decode_run),
    "endpoint": Format(
        Endpoint(EndpointKey("calls", "acme", "example.com:443"), changed_at=NOON, version=1),
        encode_endpoint,
        decode_endpoint,
    ),
}


def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FROZEN.read_text())
    return found
