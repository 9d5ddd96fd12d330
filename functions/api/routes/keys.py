"""Routes that create, list, rotate and revoke API keys."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer, page
from functions.api.app import caller, log_unreadable, now, services, tenant
from functions.api.documents import (
    key_document,
    new_key_document,
    unreadable_key,
)
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import (
    Cursor,
    KeyBody,
    KeyId,
    Limit,
    RotateBody,
    RotateRequest,
)
from nextfire.domain.errors import ConflictError
from nextfire.domain.keys import Scope
from nextfire.usecases.manage_keys import ManageKeys

routes = area()
_ADMIN: dict[str, Any] = {"scope": Scope.ADMIN, "problems": (HTTPStatus.CONFLICT,)}


@routes.post(
    "/v1/keys",
    **operation(
        "Create an API key",
        {
            HTTPStatus.CREATED: (
                "The key with its secret text, which is shown only once.",
                "NewKeyAnswer",
            )
        },
        secret=True,
        **_ADMIN,
    ),
)
def create_key(request: KeyBody) -> Response[str]:
    made = _keys().create(
        tenant(),
        key_id=once().token("key"),
        name=request.name,
        scopes=request.scopes,
        now=now(),
        life=request.life,
        restriction=request.restriction,
        by=caller().restriction,
    )
    return answer(new_key_document(made, now()), HTTPStatus.CREATED)


@routes.get(
    "/v1/keys",
    **operation("List API keys", {HTTPStatus.OK: ("A page of keys.", "KeyPage")}, **_ADMIN),
)
def list_keys(limit: Limit = 50, cursor: Cursor = None) -> Response[str]:
    found = _keys().list(tenant(), cursor=cursor, limit=limit, by=caller().restriction)
    log_unreadable(found.unreadable)
    items = [key_document(key, now()) for key in found.items]
    items += map(unreadable_key, found.unreadable)
    return page(sorted(items, key=lambda item: str(item["keyId"])), found.cursor)


@routes.get(
    "/v1/keys/<key_id>",
    **operation("Get an API key", {HTTPStatus.OK: ("The key.", "KeyAnswer")}, **_ADMIN),
)
def get_key(key_id: KeyId) -> Response[str]:
    return answer(key_document(_keys().get(tenant(), key_id, by=caller().restriction), now()))


@routes.delete(
    "/v1/keys/<key_id>",
    **operation(
        "Revoke an API key",
        {HTTPStatus.OK: ("The key. Revocation takes effect within a minute.", "KeyAnswer")},
        **_ADMIN,
    ),
)
def revoke_key(key_id: KeyId) -> Response[str]:
    key = _keys().revoke(tenant(), key_id, now(), by=caller().restriction)
    return answer(key_document(key, now()))


@routes.post(
    "/v1/keys/<key_id>/rotate",
    **operation(
        "Replace an API key",
        {
            HTTPStatus.CREATED: (
                "A new key with the scopes and restrictions of the old one, which expires.",
                "RotatedAnswer",
            )
        },
        secret=True,
        **_ADMIN,
    ),
)
def rotate_key(
    key_id: KeyId,
    request: RotateBody = RotateRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    done = _keys().rotate(
        tenant(),
        key_id,
        new_id=once().token("key"),
        now=now(),
        life=request.life,
        overlap=request.overlap,
        by=caller().restriction,
    )
    document = {"new": new_key_document(done.made, now()), "old": key_document(done.old, now())}
    return answer(document, HTTPStatus.CREATED)


def _keys() -> ManageKeys:
    caller()
    if services().auth != "keys":
        raise ConflictError(
            f"This API knows its callers by {services().auth}, not by API keys",
            "Deploy it with the setting auth=keys to use some",
        )
    return services().keys
