"""The tenants' scripts in S3, as those see them who upload them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from nextfire.adapters.aws import error_code, translated
from nextfire.adapters.job_store import decode_cursor, encode_cursor
from nextfire.adapters.script_store import SIGNATURE_METADATA
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut
from nextfire.domain.ports import Page
from nextfire.domain.script import ScriptKey, ScriptVersion, StoredScript, Upload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PLACE = re.compile(r"[^/]+/.+", re.DOTALL)
_NAME = re.compile(r"[^/]+\.(?:py|zip)")
_VERSION = re.compile(r"[!-~]{1,1024}")


class S3ScriptShelf:
    """`ScriptShelf` in *bucket*, under ``<tenant>/<pool>/<name>``. *signer*: makes the client that
    signs URLs for others, with the first of them.
    """

    def __init__(self, client: S3Client, signer: Callable[[], S3Client], *, bucket: str) -> None:
        self._client = client
        self._signer = cache(signer)
        self._bucket = bucket

    def upload(
        self,
        key: ScriptKey,
        *,
        size: int,
        sha256: bytes,
        signature: str | None,
        now: datetime,
        life: timedelta,
    ) -> Upload:
        kind = "application/zip" if key.name.endswith(".zip") else "text/x-python"
        digest = base64.b64encode(sha256).decode()
        metadata = {} if signature is None else {SIGNATURE_METADATA: signature}
        url = self._signer().generate_presigned_url(
            "put_object",
            # All of it is signed; S3 itself compares the digest with what comes.
            Params={
                "Bucket": self._bucket,
                "Key": key.path,
                "ContentLength": size,
                "ContentType": kind,
                "ChecksumSHA256": digest,
                "Metadata": metadata,
            },
            ExpiresIn=int(life.total_seconds()),
        )
        headers = {
            "Content-Length": str(size),
            "Content-Type": kind,
            "x-amz-checksum-sha256": digest,
            **{f"x-amz-meta-{name}": value for name, value in metadata.items()},
        }
        return Upload(key, url, headers, cut(now + life))

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        home = f"{tenant}/"
        request: dict[str, Any] = {
            "Bucket": self._bucket,
            "Prefix": home if pool is None else f"{home}{pool}/",
            "MaxKeys": limit,
        }
        if cursor is not None:
            request["StartAfter"] = home + decode_cursor(cursor, _PLACE)
        with translated("list scripts"):
            answer = self._client.list_objects_v2(**request)
        items = answer.get("Contents", [])
        found = []
        for item in items:
            of, _, name = item["Key"].removeprefix(home).partition("/")
            if of and _NAME.fullmatch(name):
                key = ScriptKey(tenant, of, name)
                found.append(StoredScript(key, item["Size"], cut(item["LastModified"])))
        last = items[-1]["Key"].removeprefix(home) if items and answer["IsTruncated"] else None
        return Page(found, None if last is None else encode_cursor(last))

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": key.path, "MaxKeys": limit}
        if cursor is not None:
            request["KeyMarker"] = key.path
            request["VersionIdMarker"] = decode_cursor(cursor, _VERSION)
        try:
            with translated("list versions of script"):
                answer = self._client.list_object_versions(**request)
        except ClientError as error:
            if cursor is not None and error_code(error) == "InvalidArgument":
                raise InvalidInputError(
                    "cursor", cursor, "not a cursor of this listing", "Use one as it was returned."
                ) from error
            raise
        # What only begins like it follows.
        items: list[Any] = [*answer.get("Versions", []), *answer.get("DeleteMarkers", [])]
        found = [
            ScriptVersion(
                item["VersionId"], cut(item["LastModified"]), item["IsLatest"], item.get("Size")
            )
            for item in items
            if item["Key"] == key.path
        ]
        found.sort(key=lambda each: (each.latest, each.modified_at), reverse=True)
        more = answer["IsTruncated"] and answer.get("NextKeyMarker") == key.path
        return Page(found, encode_cursor(answer["NextVersionIdMarker"]) if more else None)
