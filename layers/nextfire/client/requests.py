"""What the client sends: request models, and their JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.when import WhenDocument


class JobRequest(JobDefinition):
    """The body of `create_job` and `put_job`. It checks the types and bounds of its fields. The API
    checks the rest, such as the text of `schedule` and the time zone.
    """

    job_id: str | None = None


class PreviewRequest(WhenDocument):
    """The schedule of a job, as if the job were created at `after` (default: now)."""

    count: int = 10
    after: str | None = None


def sent(given: WhenDocument | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON document of a request: the fields of *given* that were set, or *given* itself."""
    if not isinstance(given, WhenDocument):
        return dict(given)
    document = given.model_dump(mode="json", by_alias=True, exclude_unset=True)
    # A payload may be null; any other field that is None is unset.
    return {n: value for n, value in document.items() if value is not None or n == "payload"}


def without_none(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return *fields* without None, with instants as text.

    Raises:
        ValueError: An instant is naive.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{name}: {value} has no time zone; give an aware instant")
            found[name] = value.isoformat()
        elif value is not None:
            found[name] = value
    return found
