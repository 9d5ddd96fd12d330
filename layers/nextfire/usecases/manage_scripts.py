"""Upload and list scripts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.pool_names import NO_POOL, available
from nextfire.domain.ports.pages import Page
from nextfire.domain.ports.scripts import ScriptShelf
from nextfire.domain.script import ScriptKey, ScriptVersion, StoredScript, Upload, script_name

UPLOAD_LIFE = timedelta(minutes=15)
"""How long the upload URL is valid."""


class ManageScripts:
    """A tenant's scripts. The tenant comes from the caller's identity, never from the request."""

    def __init__(self, shelf: ScriptShelf, pools: Collection[str]) -> None:
        self._shelf = shelf
        self._pools = pools

    def upload(
        self,
        tenant: str,
        pool: str,
        handler: str,
        *,
        size: int,
        sha256: bytes,
        signature: str | None,
        now: datetime,
    ) -> Upload:
        """Where to upload the script that jobs name as *handler*: *size* bytes with this SHA-256
        digest and signature.

        Raises:
            InvalidInputError: The pool does not exist.
        """
        if pool not in self._pools:
            raise InvalidInputError("pool", pool, NO_POOL, available(self._pools))
        key = ScriptKey(tenant, pool, script_name(handler))
        return self._shelf.upload(
            key, size=size, sha256=sha256, signature=signature, now=now, life=UPLOAD_LIFE
        )

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        """As `ScriptShelf.list`. Includes scripts of pools that no longer exist."""
        return self._shelf.list(tenant, pool=pool, cursor=cursor, limit=limit)

    def versions(
        self, tenant: str, pool: str, handler: str, *, cursor: str | None, limit: int
    ) -> Page[ScriptVersion]:
        """As `ScriptShelf.versions`.

        Raises:
            NotFoundError: The script never existed.
        """
        key = ScriptKey(tenant, pool, script_name(handler))
        page = self._shelf.versions(key, cursor=cursor, limit=limit)
        if not page.items and cursor is None:
            raise NotFoundError("script", handler)
        return page
