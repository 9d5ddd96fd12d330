"""Operations on scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial

from nextfire.client.calls import segment
from nextfire.client.operations import Operations, pages
from nextfire.client.requests import without_none
from nextfire.responses.scripts import ScriptPage, ScriptResponse, ScriptVersionPage, UploadResponse


class ScriptOperations(Operations):
    """The methods of `Client` for scripts."""

    def upload_script(
        self,
        handler: str,
        *,
        size: int,
        sha256: str,
        pool: str | None = None,
        signature: str | None = None,
        idempotency_key: str | None = None,
    ) -> UploadResponse:
        """Return where a script of *size* bytes with the digest *sha256* (hexadecimal) can be PUT.
        `push_script` does both. *signature*: base64, stored with the script.
        """
        body = without_none(
            {
                "handler": handler,
                "size": size,
                "sha256": sha256,
                "pool": pool,
                "signature": signature,
            }
        )
        return self._post(UploadResponse, "/v1/scripts/uploads", body, idempotency_key)

    def push_script(
        self,
        handler: str,
        source: bytes,
        *,
        pool: str | None = None,
        signature: str | None = None,
    ) -> UploadResponse:
        """Upload *source* as the script *handler* of *pool* (default: ``default``). The name of an
        archive includes ``.zip``. *signature*: ed25519, base64.
        """
        if isinstance(source, str):  # of callers that mypy does not check
            raise TypeError("source is a str: give bytes, for example Path('x.py').read_bytes()")
        digest = hashlib.sha256(source).hexdigest()
        upload = self.upload_script(
            handler, size=len(source), sha256=digest, pool=pool, signature=signature
        )
        self._caller.put(upload.upload_url, upload.headers, source)
        return upload

    def list_scripts(
        self, *, pool: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> ScriptPage:
        """Return a page of the tenant's scripts, by pool and name. `limit`: 1 to 100."""
        query = {"pool": pool, "limit": limit, "cursor": cursor}
        return self._read(ScriptPage, "/v1/scripts", query)

    def scripts(self, *, pool: str | None = None) -> Iterator[ScriptResponse]:
        """Iterate over all scripts that `list_scripts` lists."""
        return pages(partial(self.list_scripts, pool=pool))

    def list_script_versions(
        self, pool: str, handler: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ScriptVersionPage:
        """Return a page of the versions of a script, newest first. `limit`: 1 to 100."""
        path = f"/v1/scripts/{segment(pool)}/{segment(handler)}/versions"
        return self._read(ScriptVersionPage, path, {"limit": limit, "cursor": cursor})
