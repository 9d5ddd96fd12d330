"""The tenants' scripts in S3, as the API manages them: upload and list."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.adapters.dynamodb.cursors import decode_cursor, encode_cursor
from nextfire.adapters.s3.script_store import SIGNATURE_METADATA
from nextfire.domain.errors import invalid_cursor
from nextfire.domain.instants import cut
from nextfire.domain.places import POOLS, tenant_place
from nextfire.domain.ports.pages import Page
from nextfire.domain.script import ScriptKey, ScriptVersion, StoredScript, Upload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PLACE = re.compile(r"[^/]+/.+", re.DOTALL)
_NAME = re.compile(r"[^/]+\.(?:py|zip)")
_VERSION = re.compile(r"[!-~]{1,1024}")
_MAX_KEY_BYTES = 1024
"""S3 rejects requests with longer keys."""


class S3ScriptShelf:
    """`ScriptShelf` in *bucket*, under ``pools/<pool>/<tenant>/<name>``.

    *signer*: creates the client that presigns URLs; called for the first URL.
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
            # All parameters are signed. S3 checks the digest of the uploaded bytes.
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
        last_pool, last_name = _place(cursor, tenant)
        scripts: Sequence[StoredScript] = []
        for each in self._pools() if pool is None else [pool]:
            # Pools are in S3's order, in which pool `a-b` comes before pool `a`.
            if f"{each}/" < f"{last_pool}/" and last_pool:
                continue
            after = last_name if each == last_pool else ""
            names, found, more = self._scripts(tenant, each, after=after, limit=limit)
            scripts, limit = [*scripts, *found], limit - len(names)
            if more or limit == 0:
                return Page(scripts, encode_cursor(f"{each}/{names[-1]}"))
        return Page(scripts, None)

    def _scripts(
        self, tenant: str, pool: str, *, after: str, limit: int
    ) -> tuple[Sequence[str], Sequence[StoredScript], bool]:
        """The names of *tenant*'s objects in *pool* after *after*, the scripts among them, and
        whether more follow.
        """
        home = tenant_place(pool, tenant)
        request: dict[str, Any] = {"StartAfter": home + after} if after else {}
        with translated("list scripts"):
            answer = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=home, MaxKeys=limit, **request
            )
        items = answer.get("Contents", [])
        names = [item["Key"].removeprefix(home) for item in items]
        found = [
            StoredScript(ScriptKey(tenant, pool, name), item["Size"], cut(item["LastModified"]))
            for name, item in zip(names, items, strict=True)
            if _NAME.fullmatch(name)
        ]
        return names, found, answer["IsTruncated"]

    def _pools(self) -> Sequence[str]:
        """The pools with scripts, in S3's order. Some may no longer exist in the stack."""
        with translated("list scripts"):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=POOLS, Delimiter="/")
        prefixes = (each["Prefix"] for each in answer.get("CommonPrefixes", []))
        names = (prefix.removeprefix(POOLS).removesuffix("/") for prefix in prefixes)
        return [name for name in names if name]

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": key.path, "MaxKeys": limit}
        if cursor is not None:
            request["KeyMarker"] = key.path
            request["VersionIdMarker"] = decode_cursor(cursor, _VERSION)
        try:
            with translated("list versions of script"):
                answer = self._client.list_object_versions(**request)
        except refused() as error:
            if cursor is not None and error_code(error) == "InvalidArgument":
                raise invalid_cursor(cursor) from error
            raise
        # Objects whose names only start with this name come later; ignore them.
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


def _place(cursor: str | None, tenant: str) -> tuple[str, str]:
    """Pool and name of the object of *tenant* in *cursor*."""
    if cursor is None:
        return "", ""
    pool, _, name = decode_cursor(cursor, _PLACE).partition("/")
    if len(f"{tenant_place(pool, tenant)}{name}".encode()) > _MAX_KEY_BYTES:
        raise invalid_cursor(cursor)
    return pool, name
