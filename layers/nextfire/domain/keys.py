"""API keys: contents, permissions and lifetime.

Only the hash of the secret is stored, so the text of a key (see `key_text`) is shown once, when the
key is created. Messages and `repr` never contain a secret.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from datetime import date, datetime, timedelta
from enum import StrEnum

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut, isoformat
from nextfire.domain.key_text import (
    KEY_ID,
    KEY_TENANT,
    SECRET_BYTES,
    Presented,
    secret_of,
    write_key,
)
from nextfire.domain.restriction import UNRESTRICTED, Restriction

DEFAULT_LIFE = timedelta(days=90)
MAX_LIFE = timedelta(days=1830)
KEPT = timedelta(days=90)
"""Retention of a key record after the key expires."""
MAX_OVERLAP = timedelta(days=30)
DEFAULT_OVERLAP = timedelta(days=1)
MAX_NAME = 100

_DUMMY_DIGEST = hashlib.sha256(b"").hexdigest()


class Scope(StrEnum):
    """A permission of a caller. Each scope includes READ; WRITE also includes UPLOAD and RUN; ADMIN
    includes all.
    """

    READ = "read"
    UPLOAD = "upload"
    RUN = "run"
    WRITE = "write"
    ADMIN = "admin"

    @property
    def implied(self) -> frozenset[Scope]:
        """This scope and the scopes that it includes."""
        return _INCLUDED[self]


_INCLUDED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.UPLOAD: frozenset({Scope.READ, Scope.UPLOAD}),
    Scope.RUN: frozenset({Scope.READ, Scope.RUN}),
    Scope.WRITE: frozenset({Scope.READ, Scope.UPLOAD, Scope.RUN, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


def implied(scopes: Collection[Scope]) -> frozenset[Scope]:
    """*scopes* and all scopes that they include."""
    return frozenset(each for scope in scopes for each in scope.implied)


class KeyState(StrEnum):
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key. `digest`: hash of the secret, see `digest_of`. `last_used_on`: UTC day of the
    last use; None: never used. `issued_until`: the original `expires_at`, if the expiry was brought
    forward; else None. `restriction`: limits in addition to the scopes.
    """

    tenant: str
    key_id: str
    name: str
    digest: str = field(repr=False)
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    last_used_on: date | None = None
    issued_until: datetime | None = None
    restriction: Restriction = UNRESTRICTED

    @property
    def life(self) -> timedelta:
        """The original lifetime, even if the expiry was brought forward later."""
        return (self.issued_until or self.expires_at) - self.created_at

    def state(self, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_at <= now else KeyState.ACTIVE

    def use_to_record(self, now: datetime) -> date | None:
        """The day to record as the last use; None if it or a later day is already recorded."""
        today = now.date()
        return today if self.last_used_on is None or self.last_used_on < today else None


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key and its text, which cannot be recovered later."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The result of checking a presented key. `key`: the stored key; None if the presented key is
    invalid. `reason`: the explanation, never returned to the caller. `claimed`: the key that the
    caller claims to have, ``<tenant>/<key id>``; None if the text does not name one.
    """

    key: ApiKey | None
    reason: str
    claimed: str | None = None


def digest_of(secret: str) -> str:
    """The stored hash of *secret*: 64 hexadecimal digits. A secret has 256 random bits and cannot
    be guessed, so it needs neither a salt nor a slow hash.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def mint(
    tenant: str,
    *,
    key_id: str,
    secret: bytes,
    name: str,
    scopes: Collection[Scope],
    now: datetime,
    life: timedelta = DEFAULT_LIFE,
    restriction: Restriction = UNRESTRICTED,
) -> Minted:
    """Create a key of *tenant*, valid from *now* for *life*. *secret*: `SECRET_BYTES` random bytes.

    Raises:
        InvalidInputError: The tenant, the name, the scopes or the lifetime are invalid.
    """
    if not KEY_TENANT.fullmatch(tenant):
        raise InvalidInputError(
            "tenant",
            tenant,
            "invalid tenant",
            "Use 1 to 64 letters, digits, `_` and `-`, starting with a letter or a digit.",
        )
    if not KEY_ID.fullmatch(key_id) or len(secret) != SECRET_BYTES:
        raise ValueError("a key has an id of 16 hexadecimal digits and a secret of 32 bytes")
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInputError(
            "name",
            name,
            "invalid key name",
            f"Use 1 to {MAX_NAME} printable characters that identify the owner of the key.",
        )
    if not scopes:
        raise InvalidInputError(
            "scopes",
            [],
            "a key needs at least one scope",
            "Give one or more of read, upload, run, write and admin.",
        )
    check_life(life)
    shown = secret_of(secret)
    key = ApiKey(
        tenant,
        key_id,
        name,
        digest_of(shown),
        frozenset(scopes),
        created_at=cut(now),
        expires_at=cut(now + life),
        restriction=restriction,
    )
    return Minted(key, write_key(tenant, key_id, shown))


def check_life(life: timedelta) -> None:
    """Check the lifetime of a new key.

    Raises:
        InvalidInputError: *life* is shorter than a minute or longer than `MAX_LIFE`.
    """
    if not timedelta(minutes=1) <= life <= MAX_LIFE:
        raise InvalidInputError(
            "expiresInSec",
            int(life.total_seconds()),
            f"not between 60 seconds and {MAX_LIFE.days} days",
            "Give 7776000 for 90 days, and rotate the key before it expires.",
        )


def check_overlap(overlap: timedelta) -> None:
    """Check for how long an old key remains valid after its successor is created.

    Raises:
        InvalidInputError: *overlap* is negative or longer than `MAX_OVERLAP`.
    """
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise InvalidInputError(
            "overlapSec",
            int(overlap.total_seconds()),
            f"not between 0 seconds and {MAX_OVERLAP.days} days",
            "For example 86400 for a day; 0 expires the old key at once.",
        )


def judge(presented: Presented, stored: ApiKey | None, now: datetime) -> KeyCheck:
    """Check *presented* against *stored*, the key with its tenant and id, at *now*.

    Runs in constant time: neither the secret nor the existence of the key affects the duration.
    """
    claimed = f"{presented.tenant}/{presented.key_id}"
    digest = _DUMMY_DIGEST if stored is None else stored.digest
    same = hmac.compare_digest(digest_of(presented.secret), digest)
    if stored is None:
        return KeyCheck(None, "key not found", claimed)
    if not same:
        return KeyCheck(None, "wrong secret", claimed)
    if (stored.tenant, stored.key_id) != (presented.tenant, presented.key_id):
        raise ValueError("the stored key has another tenant or id than the presented key")
    match stored.state(now):
        case KeyState.REVOKED:
            return KeyCheck(None, "the key is revoked", claimed)
        case KeyState.EXPIRED:
            expired = f"the key expired at {isoformat(stored.expires_at)}"
            return KeyCheck(None, expired, claimed)
        case KeyState.ACTIVE:
            return KeyCheck(stored, "the key is valid", claimed)


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    """*key*, revoked at *now*; unchanged if it was already revoked."""
    return key if key.revoked_at is not None else replace(key, revoked_at=cut(now))


def ending(key: ApiKey, at: datetime) -> ApiKey:
    """*key* with its expiry brought forward to *at*; unchanged if it expires by then."""
    if key.expires_at <= at:
        return key
    return replace(key, expires_at=cut(at), issued_until=key.issued_until or key.expires_at)


def used(key: ApiKey, day: date) -> ApiKey:
    """*key*, last used on *day*; unchanged if it was used on that day or later."""
    known = key.last_used_on
    return key if known and known >= day else replace(key, last_used_on=day)
