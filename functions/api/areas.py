"""The modules of the routes. A process includes a module when the first request needs it.

Most processes serve few routes, and importing and registering all routes would be a tenth of the
CPU of a cold start. The routes of single jobs are included at startup.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from functions.api.app import app
from functions.api.resolver_parts import path_of

_JOB = "/v1/jobs/[^/]+"
AREAS = {
    name: re.compile(pattern)
    for name, pattern in {
        "meta": "/v1/(openapi.json|health)",
        "jobs": f"/v1/jobs|{_JOB}(/(pause|drain|resume|upcoming))?",
        "many_jobs": "/v1/jobs:.*",
        "on_request": f"{_JOB}/(run|skip-next|backfill)",
        "schedules": "/v1/schedules/.*",
        "sequences": "/v1/executions/[^/]+/chain(/.*)?",
        "executions": f"/v1/executions(/.*)?|{_JOB}/executions",
        "scripts": "/v1/scripts(/.*)?",
        "pools": "/v1/pools/.*",
        "endpoints": "/v1/endpoints(/.*)?",
        "keys": "/v1/keys(/.*)?",
        "quotas": "/v1/quotas",
        "overview": "/v1/overview",
    }.items()
}
"""The paths of each module of routes; each path of a module's routes matches its pattern."""


@cache
def include(name: str) -> None:
    """Add the routes of the module *name* to the resolver."""
    app.include_router(import_module(f"functions.api.routes.{name}").routes)


def include_all() -> None:
    for name in AREAS:
        include(name)


def include_for(path: str) -> None:
    """Include all routes that match *path*, whatever their method. *path*: of the request.

    If no module has the path, include all: the response may suggest routes.
    """
    bare = path_of(app, path)
    wanted = [name for name, pattern in AREAS.items() if pattern.fullmatch(bare)]
    for name in wanted or AREAS:
        include(name)
