"""The tenants' scripts in files, as the API manages them: upload and list."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from nextfire.adapters.dynamodb.cursors import decode_cursor, encode_cursor
from nextfire.adapters.files.folder import translated
from nextfire.adapters.files.script_versions import ScriptVersions, VersionFile
from nextfire.domain.instants import cut, from_ms, to_ms
from nextfire.domain.places import POOLS, tenant_place
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.pages import Page
from nextfire.domain.script import ScriptKey, ScriptVersion, StoredScript, Upload

UPLOADS = "/uploads/"
"""Path prefix of the URLs of uploads."""
_PLACE = re.compile(r"[^/]+/[^/]+")
_NUMBER = re.compile(r"[0-9]{1,12}")
_NAME = re.compile(r"[^/]+\.(?:py|zip)")


class FileScriptShelf:
    """`ScriptShelf` of *bucket* in the folder *root* of a `FileScriptStore`.

    The server at *address* (``http://127.0.0.1:8099``) passes uploads to `accept`. *key*, a secret
    of at least 16 bytes that all processes of the server share, signs their URLs.
    """

    def __init__(self, root: Path, *, bucket: str, address: str, key: bytes, clock: Clock) -> None:
        self._versions = ScriptVersions(root)
        self._bucket = bucket
        self._address = address.removesuffix("/")
        self._key = key
        self._clock = clock

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
        expires_at = cut(now + life)
        parameters = {"size": str(size), "sha256": sha256.hex(), "expires": str(to_ms(expires_at))}
        if signature is not None:
            parameters["signature"] = signature
        parameters["mac"] = self._mac(key.path, parameters)
        url = f"{self._address}{UPLOADS}{quote(key.path)}?{urlencode(parameters)}"
        kind = "application/zip" if key.name.endswith(".zip") else "text/x-python"
        return Upload(key, url, {"Content-Length": str(size), "Content-Type": kind}, expires_at)

    def accept(self, url: str, body: bytes) -> bool:
        """Store the script *body* that was PUT to *url*, which may lack the address.

        Returns:
            Whether it was stored. False: `upload` did not return this URL for this body, or it has
            expired.

        Raises:
            UnavailableError: The disk is full or the folder is not writable.
        """
        parts = urlsplit(url)
        parameters = dict(parse_qsl(parts.query))
        path = unquote(parts.path).removeprefix(UPLOADS)
        mac = parameters.pop("mac", "")
        if not hmac.compare_digest(mac.encode(), self._mac(path, parameters).encode()):
            return False
        digest = hashlib.sha256(body).hexdigest()
        if (len(body), digest) != (int(parameters["size"]), parameters["sha256"]):
            return False
        if self._clock.now() > from_ms(int(parameters["expires"])):
            return False
        self._versions.add(f"{self._bucket}/{path}", body, digest, parameters.get("signature"))
        return True

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        after = "" if cursor is None else decode_cursor(cursor, _PLACE)
        last_pool, _, last_name = after.partition("/")
        found: list[StoredScript] = []
        for each in self._versions.names(f"{self._bucket}/{POOLS}") if pool is None else [pool]:
            for name in self._versions.names(f"{self._bucket}/{tenant_place(each, tenant)}"):
                if (each, name) <= (last_pool, last_name) or not _NAME.fullmatch(name):
                    continue
                script = self._stored(ScriptKey(tenant, each, name))
                if script is None:
                    continue
                if len(found) == limit:
                    last = found[-1].key
                    return Page(found, encode_cursor(f"{last.pool}/{last.name}"))
                found.append(script)
        return Page(found, None)

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        all_versions = self._versions.list(self._place(key))
        found = all_versions
        if cursor is not None:
            last = int(decode_cursor(cursor, _NUMBER))
            found = [each for each in found if each.number < last]
        page = [
            ScriptVersion(
                str(each.number),
                modified_at,
                each is all_versions[0],
                size if each.sha256 else None,
            )
            for each in found[:limit]
            for size, modified_at in [_size_and_time(each)]
        ]
        return Page(page, encode_cursor(page[-1].version_id) if len(found) > limit else None)

    def delete(self, key: ScriptKey) -> None:
        """Delete the script *key*. Its versions remain."""
        self._versions.delete(self._place(key))

    def _stored(self, key: ScriptKey) -> StoredScript | None:
        versions = self._versions.list(self._place(key))
        if not versions or versions[0].sha256 is None:
            return None
        return StoredScript(key, *_size_and_time(versions[0]))

    def _place(self, key: ScriptKey) -> str:
        return f"{self._bucket}/{key.path}"

    def _mac(self, path: str, parameters: Mapping[str, str]) -> str:
        text = json.dumps([path, sorted(parameters.items())])
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _size_and_time(version: VersionFile) -> tuple[int, datetime]:
    with translated("read", version.path):
        found = version.path.stat()
    return found.st_size, from_ms(int(found.st_mtime * 1000))
