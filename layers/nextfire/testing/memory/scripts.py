"""Scripts in memory: uploaded, listed, fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.instants import cut
from nextfire.domain.ports.pages import Page
from nextfire.domain.script import (
    FetchedScript,
    ScriptKey,
    ScriptSource,
    ScriptVersion,
    StoredScript,
    Upload,
    upload_remedy,
)
from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.pages import CURSOR, after_cursor, page_of


class MemoryScriptStore:
    """`ScriptStore`. Any URL holds a one-line script by default."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.forbidden: set[str] = set()
        self.versions: dict[str, list[FetchedScript]] = {}

    def upload(self, url: str, content: bytes, signature: str | None = None) -> FetchedScript:
        """Upload a script; it becomes the latest version."""
        script = FetchedScript.of(content, signature)
        self.versions.setdefault(url, []).append(script)
        return script

    def fetch(self, source: ScriptSource) -> FetchedScript:
        url = source.url
        if url in self.missing:
            raise NotFoundError("script", url, upload_remedy(url))
        if url in self.forbidden:
            raise InvalidInputError("script", url, "this pool may not read it", "Upload it.")
        versions = self.versions.get(url) or [FetchedScript.of(f"# {url}\n".encode())]
        for script in reversed(versions):
            if source.sha256 in {None, script.sha256}:
                return script
        problem = (
            f"no version has the digest sha256:{source.sha256} to which the job is pinned; "
            f"the latest version has sha256:{versions[-1].sha256}"
        )
        raise InvalidInputError("script", url, problem, "Upload that version again.")


class MemoryScriptShelf:
    """`ScriptShelf`. `put` plays the uploading client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[ScriptKey, list[ScriptVersion]] = {}
        self._open: dict[str, tuple[Upload, int, bytes]] = {}

    def put(self, url: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the upload was accepted."""
        if url not in self._open:
            return False
        upload, size, sha256 = self._open[url]
        as_signed = dict(headers) == dict(upload.headers) and len(body) == size
        if not as_signed or hashlib.sha256(body).digest() != sha256:
            return False
        if self._clock.now() > upload.expires_at:
            return False
        versions = self._kept.setdefault(upload.key, [])
        versions[:] = [replace(each, latest=False) for each in versions]
        number = str(len(versions) + 1)
        versions.insert(0, ScriptVersion(number, self._clock.now(), True, size))
        return True

    def delete(self, key: ScriptKey) -> None:
        versions = self._kept[key]
        versions[:] = [replace(each, latest=False) for each in versions]
        versions.insert(0, ScriptVersion(str(len(versions) + 1), self._clock.now(), True, None))

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
        url = f"memory://{key.path}?{len(self._open)}"
        headers = {"Content-Length": str(size)}
        if signature is not None:
            headers["x-amz-meta-nextfire-signature"] = signature
        upload = Upload(key, url, headers, cut(now + life))
        self._open[url] = upload, size, sha256
        return upload

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        found = {
            f"{key.pool}/{key.name}": StoredScript(key, latest.size, latest.modified_at)
            for key, (latest, *_) in self._kept.items()
            if key.tenant == tenant and pool in {None, key.pool} and latest.size is not None
        }
        page, more = page_of(found, cursor, limit)
        return Page([found[n] for n in page], more)

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        found = self._kept.get(key, [])
        if cursor is not None:
            after = int(after_cursor(cursor))
            found = [each for each in found if int(each.version_id) < after]
        page = found[:limit]
        end = CURSOR + page[-1].version_id if len(found) > limit else None
        return Page(page, end)
