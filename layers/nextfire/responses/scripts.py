"""Responses about scripts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from nextfire.responses.base import ApiResponse, field


class ScriptResponse(ApiResponse):
    """A script. `handler`: the name that jobs use for it; `url`: where it is stored."""

    # of(script, bucket)
    pool: str = field(lambda script, _: script.key.pool)
    handler: str = field(lambda script, _: script.key.handler)
    url: str = field(lambda script, bucket: f"s3://{bucket}/{script.key.path}")
    size: int = field(description="Bytes.")
    modified_at: datetime


class ScriptPage(ApiResponse):
    """Scripts, ordered by pool and name. A page may hold fewer items than `limit`: if `cursor` is
    present, there are more.
    """

    # of(page, bucket)
    items: list[ScriptResponse] = field(
        lambda page, bucket: [ScriptResponse.of(each, bucket) for each in page.items]
    )
    cursor: str | None


class ScriptVersionResponse(ApiResponse):
    """A version of a script; `latest`: the current one. `size`: in bytes, absent for a deletion."""

    version_id: str
    modified_at: datetime
    latest: bool
    size: int | None


class ScriptVersionPage(ApiResponse):
    """Versions, newest first. If `cursor` is present, there are more."""

    items: list[ScriptVersionResponse] = field(
        lambda page: [ScriptVersionResponse.of(each) for each in page.items]
    )
    cursor: str | None


class UploadResponse(ApiResponse):
    """A presigned upload of a script: PUT it to `uploadUrl` with exactly `headers`. `url`: where
    the script will be stored; `objectKey`: its key in the bucket; `signed`: whether a signature
    that executors verify is stored with it.
    """

    # of(upload, request, bucket)
    pool: str = field(lambda upload, *_: upload.key.pool)
    handler: str = field(lambda upload, *_: upload.key.handler)
    object_key: str = field(lambda upload, *_: upload.key.path)
    size: int = field(lambda _, request, _bucket: request.size)
    sha256: str = field(lambda _, request, _bucket: request.sha256)
    signed: bool = field(lambda _, request, _bucket: request.signature is not None)
    url: str = field(lambda upload, _, bucket: f"s3://{bucket}/{upload.key.path}")
    method: Literal["PUT"] = field(lambda *_: "PUT")
    upload_url: str = field(lambda upload, *_: upload.url, secret=True)
    headers: dict[str, str] = field(lambda upload, *_: dict(upload.headers))
    expires_at: datetime
