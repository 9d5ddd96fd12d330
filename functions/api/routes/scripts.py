"""Routes that list scripts and their versions, and create presigned uploads."""

from __future__ import annotations

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer, page
from functions.api.app import app, now, services, tenant
from functions.api.documents import (
    script_document,
    upload_document,
    version_document,
)
from functions.api.operation import area, operation
from functions.api.requests import (
    Cursor,
    HandlerName,
    Limit,
    PoolFilter,
    PoolName,
    UploadBody,
)
from functions.api.trail import note
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.keys import Scope

routes = area()
_NO_JOB = "a script belongs to no job. Use a key without labels for scripts."


@routes.post(
    "/v1/scripts/uploads",
    **operation(
        "Upload a script",
        {HTTPStatus.CREATED: ("The presigned upload.", "UploadAnswer")},
        scope=Scope.UPLOAD,
        by_label=_NO_JOB,
        secret=True,
        more="PUT the script to `uploadUrl` with `headers` before `expiresAt`. The URL accepts "
        "only these bytes for this script. Anyone who has the URL can use it: keep it secret. "
        "Jobs use the new script from their next run on.",
    ),
)
def upload_script(request: UploadBody) -> Response[str]:
    # Written before the URL exists: every upload is in the audit trail.
    script = {"pool": request.pool, "handler": request.handler}
    request_id = app.current_event.request_context.request_id
    note(str(request_id), resource=script, sha256=request.sha256)
    upload = services().scripts.upload(
        tenant(),
        request.pool,
        request.handler,
        size=request.size,
        sha256=bytes.fromhex(request.sha256),
        signature=request.signature,
        now=now(),
    )
    return answer(
        upload_document(
            upload,
            services().scripts_bucket,
            size=request.size,
            sha256=request.sha256,
            signed=request.signature is not None,
        ),
        HTTPStatus.CREATED,
    )


@routes.get(
    "/v1/scripts",
    **operation(
        "List scripts",
        {HTTPStatus.OK: ("A page of scripts.", "ScriptPage")},
        scope=Scope.READ,
        by_label=_NO_JOB,
    ),
)
def list_scripts(
    pool: PoolFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[str]:
    if pool is not None and (not pool or "/" in pool):
        raise InvalidInputError(
            "pool", pool, "not a pool of this stack", services().pools_there_are()
        )
    found = services().scripts.list(tenant(), pool=pool, cursor=cursor, limit=limit)
    items = [script_document(each, services().scripts_bucket) for each in found.items]
    return page(items, found.cursor)


@routes.get(
    "/v1/scripts/<pool>/<handler>/versions",
    **operation(
        "List the versions of a script, newest first",
        {HTTPStatus.OK: ("A page of versions.", "ScriptVersionPage")},
        scope=Scope.READ,
        by_label=_NO_JOB,
    ),
)
def list_script_versions(
    pool: PoolName, handler: HandlerName, limit: Limit = 50, cursor: Cursor = None
) -> Response[str]:
    pool = services().pool(pool)
    found = services().scripts.versions(tenant(), pool, handler, cursor=cursor, limit=limit)
    return page([version_document(each) for each in found.items], found.cursor)
