"""Route for the numbers of executions of all jobs."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from functions.api.app import tenant
from functions.api.operation import area, operation
from functions.api.requests import number_parameter
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.errors import NotFoundError
from nextfire.domain.instants import floor_minute
from nextfire.domain.keys import Scope
from nextfire.responses.executions import OverviewResponse
from nextfire.usecases.read_watchers import read_watchers

_MOST_MINUTES = 60
Minutes = Annotated[
    int,
    Query(description="How many minutes back to count executions that ended."),
    *number_parameter(_MOST_MINUTES, 15),
]

routes = area()


@routes.get(
    "/v1/overview",
    **operation(
        "Count executions of all jobs",
        {HTTPStatus.OK: ("Running, waiting and recently ended executions.", OverviewResponse)},
        scope=Scope.READ,
        problems=(HTTPStatus.NOT_FOUND,),
        by_label="the numbers are of all jobs. List executions instead.",
        more="The numbers lag seconds behind the executions; `overview` says by how much."
        " `watchers` says whether a watcher of each group renews its lease.",
    ),
)
def get_overview(minutes: Minutes = 15) -> Response[str]:
    overview = services().overview
    if overview is None:
        raise NotFoundError("overview", tenant(), "This stack has none. List executions instead.")
    first = floor_minute(now()) - timedelta(minutes=minutes - 1)
    counts, freshness = overview.counts(tenant(), first)
    known = services()
    watchers = read_watchers(known.control, known.watcher_groups, now(), life=known.watcher_life)
    return respond(OverviewResponse.of(counts, freshness, watchers))
