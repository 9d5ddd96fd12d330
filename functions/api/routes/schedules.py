"""Route that previews a schedule without a job."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import Field

from functions.api.job_filters import MAX_UPCOMING
from functions.api.operation import area, operation
from functions.api.requests import body_example, reading
from functions.api.respond import respond
from functions.api.services import now
from nextfire.domain.keys import Scope
from nextfire.domain.recurrence import check
from nextfire.domain.schedule_text import read_instant
from nextfire.domain.when import InstantText, WhenDocument
from nextfire.responses.jobs import UpcomingList


class PreviewRequest(WhenDocument):
    """The schedule fields of a job, as if the job were stored at `after` (default: now)."""

    count: Annotated[int, Field(strict=True, ge=1, le=MAX_UPCOMING)] = 10
    after: InstantText | None = None


PreviewBody = Annotated[
    PreviewRequest,
    Body(
        openapi_examples=body_example({"type": "CRON", "schedule": "0 9 * * MON-FRI", "count": 3})
    ),
    reading(PreviewRequest),
]


routes = area()


@routes.post(
    "/v1/schedules/preview",
    **operation(
        "Preview a schedule",
        {
            HTTPStatus.OK: (
                "The occurrences that a job with this schedule would have.",
                UpcomingList,
            )
        },
        scope=Scope.READ,
    ),
)
def preview_schedule(request: PreviewBody) -> Response[str]:
    since = now()
    if request.after is not None:
        since = read_instant(request.after, request.timezone, "after")
    check(request.schedule_from(since))
    found = request.upcoming(since, since, request.count, uid="preview")
    return respond(UpcomingList.of(found, request))
