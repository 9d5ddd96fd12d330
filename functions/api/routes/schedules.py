"""Route that previews a schedule without a job."""

from __future__ import annotations

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import now
from functions.api.documents import upcoming_document
from functions.api.operation import area, operation
from functions.api.requests import PreviewBody
from nextfire.domain.keys import Scope
from nextfire.domain.schedule import check, read_instant

routes = area()


@routes.post(
    "/v1/schedules/preview",
    **operation(
        "Preview a schedule",
        {
            HTTPStatus.OK: (
                "The occurrences that a job with this schedule would have.",
                "UpcomingList",
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
    jittered = request.jitter_sec > 0
    return answer({"items": [upcoming_document(each, jittered=jittered) for each in found]})
