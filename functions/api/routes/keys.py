"""Routes that create, list, rotate and revoke API keys."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import BeforeValidator, Field, WithJsonSchema

from functions.api.app import caller, log_unreadable, tenant
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import Cursor, Limit, body_example, reading
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.definition import LabelKey, LabelValue
from nextfire.domain.document import Document, document_error
from nextfire.domain.errors import ConflictError
from nextfire.domain.key_text import KEY_ID
from nextfire.domain.keys import (
    DEFAULT_LIFE,
    DEFAULT_OVERLAP,
    MAX_LIFE,
    MAX_NAME,
    MAX_OVERLAP,
    Scope,
)
from nextfire.domain.restriction import MAX_CIDRS, MAX_KEY_LABELS, Restriction, restriction
from nextfire.responses.keys import KeyPage, KeyResponse, NewKeyResponse, RotatedResponse
from nextfire.usecases.manage_keys import ManageKeys


def _key_id(value: object) -> object:
    if isinstance(value, str) and KEY_ID.fullmatch(value):
        return value
    raise document_error(
        "key_id", "not the id of a key", "It is 16 hexadecimal digits: list the keys."
    )


KeyId = Annotated[
    str,
    BeforeValidator(_key_id),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{KEY_ID.pattern}$", "examples": ["3f9c0a77d1e2b456"]}
    ),
]
"""The id of an API key: the third part of its text."""
Life = Annotated[int, Field(strict=True, ge=60, le=int(MAX_LIFE.total_seconds()))]


class KeyRequest(Document):
    """A new API key of your tenant. `cidrs`: networks that it may be
    used from. `labels`: labels that a job must have to be accessible. A key created with a
    restricted key has at least the same restrictions.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] = Field(
        description="Who or what uses the key.", examples=["ci"]
    )
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    expires_in_sec: Life = int(DEFAULT_LIFE.total_seconds())
    cidrs: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_CIDRS)] = (
        Field(default_factory=list)
    )
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_KEY_LABELS)] = Field(
        default_factory=dict
    )

    @property
    def restriction(self) -> Restriction:
        """The requested restriction.

        Raises:
            InvalidInputError: `cidrs` or `labels` is invalid.
        """
        return restriction(self.cidrs, self.labels)

    @property
    def life(self) -> timedelta:
        return timedelta(seconds=self.expires_in_sec)


class RotateRequest(Document):
    """Rotate a key. `expiresInSec`: lifetime of the new key (default: the lifetime of the old one).
    `overlapSec`: how long the old key remains valid.
    """

    expires_in_sec: Life | None = None
    overlap_sec: Annotated[int, Field(strict=True, ge=0, le=int(MAX_OVERLAP.total_seconds()))] = (
        int(DEFAULT_OVERLAP.total_seconds())
    )

    @property
    def life(self) -> timedelta | None:
        return None if self.expires_in_sec is None else timedelta(seconds=self.expires_in_sec)

    @property
    def overlap(self) -> timedelta:
        return timedelta(seconds=self.overlap_sec)


KeyBody = Annotated[
    KeyRequest,
    Body(
        openapi_examples=body_example(
            {"name": "ci", "scopes": ["write"], "expiresInSec": 7_776_000}
        )
    ),
    reading(KeyRequest),
]
RotateBody = Annotated[
    RotateRequest, Body(openapi_examples=body_example({"overlapSec": 3600})), reading(RotateRequest)
]


routes = area()
_ADMIN: dict[str, Any] = {"scope": Scope.ADMIN, "problems": (HTTPStatus.CONFLICT,)}


@routes.post(
    "/v1/keys",
    **operation(
        "Create an API key",
        {
            HTTPStatus.CREATED: (
                "The key with its secret text, which is shown only once.",
                NewKeyResponse,
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
    return respond(NewKeyResponse.of_made(made, now()), HTTPStatus.CREATED)


@routes.get(
    "/v1/keys",
    **operation("List API keys", {HTTPStatus.OK: ("A page of keys.", KeyPage)}, **_ADMIN),
)
def list_keys(limit: Limit = 50, cursor: Cursor = None) -> Response[str]:
    found = _keys().list(tenant(), cursor=cursor, limit=limit, by=caller().restriction)
    log_unreadable(found.unreadable)
    return respond(KeyPage.of(found, now()))


@routes.get(
    "/v1/keys/<key_id>",
    **operation("Get an API key", {HTTPStatus.OK: ("The key.", KeyResponse)}, **_ADMIN),
)
def get_key(key_id: KeyId) -> Response[str]:
    key = _keys().get(tenant(), key_id, by=caller().restriction)
    return respond(KeyResponse.of(key, now()))


@routes.delete(
    "/v1/keys/<key_id>",
    **operation(
        "Revoke an API key",
        {HTTPStatus.OK: ("The key. Revocation takes effect within a minute.", KeyResponse)},
        **_ADMIN,
    ),
)
def revoke_key(key_id: KeyId) -> Response[str]:
    key = _keys().revoke(tenant(), key_id, now(), by=caller().restriction)
    return respond(KeyResponse.of(key, now()))


@routes.post(
    "/v1/keys/<key_id>/rotate",
    **operation(
        "Replace an API key",
        {
            HTTPStatus.CREATED: (
                "A new key with the scopes and restrictions of the old one, which expires.",
                RotatedResponse,
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
    return respond(RotatedResponse.of(done, now()), HTTPStatus.CREATED)


def _keys() -> ManageKeys:
    caller()
    if services().auth != "keys":
        raise ConflictError(
            f"This API knows its callers by {services().auth}, not by API keys",
            "Deploy it with the setting auth=keys to use some",
        )
    return services().keys
