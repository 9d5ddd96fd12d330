"""Which jobs may have a run that jitter delays, as a listing of jobs shows them."""

import json
from datetime import datetime, timedelta

from pydantic import ValidationError

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import MOMENT
from nextfire.domain.recurrence import next_instant
from nextfire.domain.schedule_text import parse_duration
from nextfire.domain.when import SCHEDULE_FIELDS, WhenDocument
from nextfire_cli.documents import Document

_FIELDS = [WhenDocument.model_fields[name].alias or name for name in SCHEDULE_FIELDS]


def may_be_delayed(job: Document, now: datetime) -> bool:
    """Whether an occurrence of *job* may be over whose run is not due yet, because of jitter.
    `nextFireAt` does not show such an occurrence. Whether there is one, only the API knows.
    """
    since = now - timedelta(seconds=job.get("jitterSec", 0))
    if since == now or job.get("schedule") is None:
        return False
    try:
        latest = _latest(job, since, now)
    except (ValidationError, InvalidInputError):
        return True  # of a newer version
    return latest is not None and since < latest <= now


def _latest(job: Document, since: datetime, now: datetime) -> datetime | None:
    """When the latest occurrence up to *now* may have been, or another one after *since*."""
    shown, schedule = job.get("nextFireAt"), job["schedule"]
    if str(schedule).startswith("P"):  # a duration; from when it counts is not shown
        period = parse_duration(schedule, "schedule")
        if shown is None:
            return since + MOMENT
        following = datetime.fromisoformat(shown)  # not the next one, if that is left out
        return following + (now - following) // period * period
    fields = {name: job[name] for name in _FIELDS if name in job}
    when = WhenDocument.model_validate_json(json.dumps(fields), by_alias=True, by_name=False)
    return next_instant(when.schedule_from(since), since)
