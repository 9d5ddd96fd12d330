"""Have scripts uploaded, and see which there are."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.ports import Page, ScriptShelf
from nextfire.domain.script import ScriptKey, ScriptVersion, StoredScript, Upload, script_name

UPLOAD_LIFE = timedelta(minutes=15)
"""How long an upload may be begun."""


class ManageScripts:
    """A tenant's scripts. Whose they are is never told by who asks, but by their identity."""

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
        """Where the script that jobs call *handler* may be uploaded: *size* bytes of that digest,
        with that signature.

        Raises:
            InvalidInputError: There is no such pool.
        """
        if pool not in self._pools:
            known = ", ".join(sorted(self._pools))
            raise InvalidInputError("pool", pool, "no such pool", f"There are: {known}.")
        key = ScriptKey(tenant, pool, script_name(handler))
        return self._shelf.upload(
            key, size=size, sha256=sha256, signature=signature, now=now, life=UPLOAD_LIFE
        )

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        """As `ScriptShelf.list`. Of a pool that is gone its scripts are there still."""
        return self._shelf.list(tenant, pool=pool, cursor=cursor, limit=limit)

    def versions(
        self, tenant: str, pool: str, handler: str, *, cursor: str | None, limit: int
    ) -> Page[ScriptVersion]:
        """As `ScriptShelf.versions`.

        Raises:
            NotFoundError: There never was one.
        """
        key = ScriptKey(tenant, pool, script_name(handler))
        page = self._shelf.versions(key, cursor=cursor, limit=limit)
        if not page.items and cursor is None:
            raise NotFoundError("script", handler)
        return page
