"""Routes that list scripts and their versions, and create presigned uploads."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import BeforeValidator, Field, WithJsonSchema

from functions.api.app import app, tenant
from functions.api.audit_trail import note
from functions.api.operation import area, operation
from functions.api.requests import (
    Cursor,
    Limit,
    PoolFilter,
    PoolName,
    body_example,
    reading,
)
from functions.api.respond import respond
from functions.api.services import now, services
from functions.api.target_checks import check_signed
from nextfire.domain.document import Document, document_error
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.keys import Scope
from nextfire.domain.pool_names import available
from nextfire.domain.script import MAX_SCRIPT_BYTES, SIGNATURE, check_no_ending
from nextfire.domain.target import HANDLER
from nextfire.responses.scripts import ScriptPage, ScriptVersionPage, UploadResponse


def _handler(value: object) -> object:
    if isinstance(value, str) and HANDLER.fullmatch(value):
        return value
    remedy = (
        "At most 128 letters, digits, `_`, `.` and `-`, beginning with a letter or a digit. For"
        " example `report`, or `report.zip`."
    )
    raise document_error("handler", "not the name of a script of the pool", remedy)


HandlerName = Annotated[
    str,
    BeforeValidator(_handler),
    WithJsonSchema({"type": "string", "pattern": f"^{HANDLER.pattern}$", "examples": ["report"]}),
]
"""Name that jobs use for a script."""


class UploadRequest(Document):
    """A script to upload. `size`: in bytes. `sha256`: digest in hexadecimal digits. `signature`:
    ed25519 in base64, stored with the script for pools that trust signers.
    """

    pool: Annotated[str, Field(min_length=1, max_length=64)] = "default"
    handler: HandlerName = Field(
        description="Name that jobs use for the script: `report` for `report.py`; with `.zip` for "
        "an archive.",
        examples=["report"],
    )
    size: Annotated[int, Field(strict=True, ge=1, le=MAX_SCRIPT_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=rf"^{SIGNATURE.pattern}$")] | None = None


UploadBody = Annotated[
    UploadRequest,
    Body(
        openapi_examples=body_example(
            {
                "handler": "report",
                "size": 12,
                "sha256": "a8075bf0eccd3da8fc9ac4ee86c5ae7a7ad7d1f93ded0dbdb3d20ee94f5e1f35",
            }
        )
    ),
    reading(UploadRequest),
]


routes = area()
_POOL = re.compile(r"[a-z0-9-]{1,64}")
"""Also one that no longer exists: its scripts are listed."""
_NO_JOB = "a script belongs to no job. Use a key without labels for scripts."


@routes.post(
    "/v1/scripts/uploads",
    **operation(
        "Upload a script",
        {HTTPStatus.CREATED: ("The presigned upload.", UploadResponse)},
        scope=Scope.UPLOAD,
        by_label=_NO_JOB,
        secret=True,
        more="PUT the script to `uploadUrl` with `headers` before `expiresAt`. The URL accepts "
        "only these bytes for this script. Anyone who has the URL can use it: keep it secret. "
        "Jobs use the new script from their next run on.",
    ),
)
def upload_script(request: UploadBody) -> Response[str]:
    if request.pool in services().pools:  # the use case rejects the others
        services().pool(request.pool, targets="scripts")
        check_signed(services().pools, request.pool, request.signature)
    check_no_ending("handler", request.handler)
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
    response = UploadResponse.of(upload, request, services().scripts_bucket)
    return respond(response, HTTPStatus.CREATED)


@routes.get(
    "/v1/scripts",
    **operation(
        "List scripts",
        {HTTPStatus.OK: ("A page of scripts.", ScriptPage)},
        scope=Scope.READ,
        by_label=_NO_JOB,
    ),
)
def list_scripts(
    pool: PoolFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[str]:
    if pool is not None and not _POOL.fullmatch(pool):
        raise InvalidInputError(
            "pool", pool, "not a pool of this stack", available(services().pools)
        )
    found = services().scripts.list(tenant(), pool=pool, cursor=cursor, limit=limit)
    return respond(ScriptPage.of(found, services().scripts_bucket))


@routes.get(
    "/v1/scripts/<pool>/<handler>/versions",
    **operation(
        "List the versions of a script, newest first",
        {HTTPStatus.OK: ("A page of versions.", ScriptVersionPage)},
        scope=Scope.READ,
        by_label=_NO_JOB,
    ),
)
def list_script_versions(
    pool: PoolName, handler: HandlerName, limit: Limit = 50, cursor: Cursor = None
) -> Response[str]:
    pool = services().pool(pool)
    found = services().scripts.versions(tenant(), pool, handler, cursor=cursor, limit=limit)
    return respond(ScriptVersionPage.of(found))
