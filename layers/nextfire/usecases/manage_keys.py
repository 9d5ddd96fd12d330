"""Create, list, rotate, revoke and check API keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.key_text import SECRET_BYTES, fault_of, parse
from nextfire.domain.keys import (
    DEFAULT_OVERLAP,
    ApiKey,
    KeyCheck,
    KeyState,
    Minted,
    Scope,
    check_overlap,
    judge,
    mint,
)
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.pages import Page
from nextfire.domain.restriction import UNRESTRICTED, Restriction

_BEARER = "bearer "
_WAIT = timedelta(milliseconds=200)
_RETRY_AFTER = timedelta(minutes=10)
_MAX_REMEMBERED = 10_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def new_key_id() -> str:
    return secrets.token_hex(8)


class ManageKeys:
    """Management of a tenant's keys. *random* returns the given number of random bytes.

    *by*: the restriction of the caller's key. The caller sees and manages only keys that are at
    least as restricted; others are reported as not found.
    """

    def __init__(
        self, keys: KeyStore, *, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._keys = keys
        self._random = random

    def create(
        self,
        tenant: str,
        *,
        key_id: str,
        name: str,
        scopes: Collection[Scope],
        now: datetime,
        life: timedelta,
        restriction: Restriction = UNRESTRICTED,
        by: Restriction = UNRESTRICTED,
    ) -> Minted | ApiKey:
        """Create and store a key. Dimensions that *restriction* leaves open are restricted as in
        *by*.

        Returns:
            The key with its text; without the text, if a key with that id already exists: an
            earlier request created it, and only the response to that one had the text.

        Raises:
            ConflictError: A key with that id exists, and *by* does not cover it.
            InvalidInputError: See `mint`.
            RestrictedError: The key would have more access than *by* allows.
        """
        minted = mint(
            tenant,
            key_id=key_id,
            secret=self._random(SECRET_BYTES),
            name=name,
            scopes=scopes,
            now=now,
            life=life,
            restriction=by.narrowed(restriction.cidrs, restriction.labels),
        )
        if self._keys.create(minted.key):
            return minted
        existing = _found(self._keys.get(tenant, key_id), key_id)
        if not by.covers(existing.restriction):
            raise ConflictError(
                "A less restricted key has sent this request before",
                "If you still want the new key, use a new Idempotency-Key.",
            )
        return existing

    def get(self, tenant: str, key_id: str, *, by: Restriction = UNRESTRICTED) -> ApiKey:
        """The key.

        Raises:
            NotFoundError: It does not exist, or *by* does not cover it.
        """
        key = _found(self._keys.get(tenant, key_id), key_id)
        return _found(key if by.covers(key.restriction) else None, key_id)

    def list(
        self, tenant: str, *, cursor: str | None, limit: int, by: Restriction = UNRESTRICTED
    ) -> Page[ApiKey]:
        """The tenant's keys, including revoked and expired ones; see `KeyStore.list`. A page may
        hold fewer than *limit* keys, even none, although more follow.
        """
        page = self._keys.list(tenant, cursor=cursor, limit=limit)
        if not by:
            return page
        return Page([key for key in page.items if by.covers(key.restriction)], page.cursor, [])

    def revoke(
        self, tenant: str, key_id: str, now: datetime, *, by: Restriction = UNRESTRICTED
    ) -> ApiKey:
        """Revoke a key. A revoked key is not changed.

        Raises:
            NotFoundError: It does not exist, or *by* does not cover it.
        """
        if by:
            self.get(tenant, key_id, by=by)
        return _found(self._keys.revoke(tenant, key_id, now), key_id)

    def rotate(
        self,
        tenant: str,
        key_id: str,
        *,
        new_id: str,
        now: datetime,
        life: timedelta | None = None,
        overlap: timedelta = DEFAULT_OVERLAP,
        by: Restriction = UNRESTRICTED,
    ) -> Rotated:
        """Create a key with the name, scopes and restriction of an existing one. The old key
        expires after *overlap*, or at its own expiry if that is earlier. *life*: lifetime of the
        new key; by default that of the old one.

        Raises:
            NotFoundError: The key does not exist, or *by* does not cover it.
            ConflictError: It is expired or revoked.
            InvalidInputError: *life* or *overlap* is out of range.
        """
        check_overlap(overlap)
        old = self.get(tenant, key_id, by=by)
        made: Minted | ApiKey | None = self._keys.get(tenant, new_id)
        if made is None:
            if (state := old.state(now)) is not KeyState.ACTIVE:
                raise ConflictError(
                    f"The key {key_id} is {state.value}", "Create a new one: POST /v1/keys"
                )
            made = self.create(
                tenant,
                key_id=new_id,
                name=old.name,
                scopes=old.scopes,
                now=now,
                life=old.life if life is None else life,
                restriction=old.restriction,
                by=by,
            )
        # The new key first: a crash in between leaves both valid, never neither. The end of the old
        # key is derived from the creation of the new one, so a repetition changes nothing.
        since = made.key.created_at if isinstance(made, Minted) else made.created_at
        ending = _found(self._keys.end(tenant, key_id, since + overlap), key_id)
        return Rotated(made, ending)


@dataclass(frozen=True, slots=True)
class Rotated:
    """The new key, as `ManageKeys.create` returns it, and the old one with its new expiry."""

    made: Minted | ApiKey
    old: ApiKey


class CheckKey:
    """Checks the API key of each request, for the authorizer."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def check(self, authorization: str, now: datetime) -> KeyCheck:
        """Check the header *authorization* (``Bearer nfk_…``; the scheme in any case). The checksum
        detects a mistyped key without a read.

        Raises:
            UnavailableError: The store did not answer; it is unknown whether the key is valid.
            UndecodableError: The stored key does not decode.
        """
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return KeyCheck(None, "not a bearer authorization")
        text = authorization[len(_BEARER) :].strip(" ")
        presented = parse(text)
        if presented is None:
            return KeyCheck(None, f"not a key: {fault_of(text)}")
        return judge(presented, self._keys.get(presented.tenant, presented.key_id), now)


class RecordKeyUse:
    """Records the day on which a key was last used, without delaying the request.

    The record is written in *executor*, and waited for only briefly: a process that is frozen
    between requests would otherwise write it late or never.
    """

    def __init__(self, keys: KeyStore, *, executor: Executor) -> None:
        self._keys = keys
        self._executor = executor
        self._tried: dict[tuple[str, str], datetime] = {}

    def note(self, key: ApiKey, now: datetime) -> str | None:
        """Record the use of *key* at *now*, if it is the first one of that day.

        Returns:
            Why it was not recorded, if that is known by now; it is retried later. None: no error.
        """
        day = key.use_to_record(now)
        which = key.tenant, key.key_id
        if day is None or now - self._tried.get(which, _LONG_AGO) < _RETRY_AFTER:
            return None
        if len(self._tried) >= _MAX_REMEMBERED:
            self._tried.clear()
        self._tried[which] = now
        future = self._executor.submit(self._keys.note_use, *which, day)
        try:
            future.result(_WAIT.total_seconds())
        except TimeoutError:
            return f"it took longer than {_WAIT.total_seconds()} s"
        except Exception as error:  # noqa: BLE001 — the key is valid in any case
            return f"{type(error).__name__}: {error}"
        return None


def _found(key: ApiKey | None, key_id: str) -> ApiKey:
    if key is None:
        raise NotFoundError("key", key_id)
    return key
