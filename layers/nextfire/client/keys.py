"""Operations on API keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nextfire.client.calls import segment
from nextfire.client.operations import Operations, pages
from nextfire.client.requests import without_none
from nextfire.domain.keys import Scope
from nextfire.responses.keys import KeyPage, KeyResponse, NewKeyResponse, RotatedResponse


class KeyOperations(Operations):
    """The methods of `Client` for API keys."""

    def create_key(
        self,
        name: str,
        scopes: Sequence[Scope | str],
        *,
        expires_in_sec: int | None = None,
        cidrs: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> NewKeyResponse:
        """Create an API key. Its text is in `key`, and returned only once. `cidrs`: networks from
        which it may be used. `labels`: it reaches only jobs with these labels.
        """
        body = without_none(
            {
                "name": name,
                "scopes": [*map(str, scopes)],
                "expiresInSec": expires_in_sec,
                "cidrs": None if cidrs is None else [*cidrs],
                "labels": None if labels is None else {**labels},
            }
        )
        return self._post(NewKeyResponse, "/v1/keys", body, idempotency_key)

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None) -> KeyPage:
        """Return a page of the tenant's API keys, by id. `limit`: 1 to 100."""
        return self._read(KeyPage, "/v1/keys", {"limit": limit, "cursor": cursor})

    def keys(self) -> Iterator[KeyResponse]:
        """Iterate over all API keys of the tenant, including expired and revoked ones."""
        return pages(self.list_keys)

    def get_key(self, key_id: str) -> KeyResponse:
        """Return an API key, without its text."""
        return self._read(KeyResponse, _api_key(key_id))

    def revoke_key(self, key_id: str) -> KeyResponse:
        """Revoke an API key. Takes effect within a minute."""
        return self._delete(KeyResponse, _api_key(key_id), {})

    def rotate_key(
        self,
        key_id: str,
        *,
        expires_in_sec: int | None = None,
        overlap_sec: int | None = None,
        idempotency_key: str | None = None,
    ) -> RotatedResponse:
        """Create a `new` key like this one, which is `old` and expires after the overlap."""
        body = without_none({"expiresInSec": expires_in_sec, "overlapSec": overlap_sec})
        return self._post(RotatedResponse, f"{_api_key(key_id)}/rotate", body, idempotency_key)


def _api_key(key_id: str) -> str:
    return f"/v1/keys/{segment(key_id)}"
