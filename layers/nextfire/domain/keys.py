"""API keys: what one looks like, what it allows, and how long it is good.

Only the hash of a key's secret is stored, so its text (see `key_text`) is shown once, when it is
made. No message and no `repr` here contains a secret.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

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
"""How long the record of a key is kept after the key has expired."""
MAX_OVERLAP = timedelta(days=30)
DEFAULT_OVERLAP = timedelta(days=1)
MAX_NAME = 100

_NOBODYS = hashlib.sha256(b"").hexdigest()


class Scope(StrEnum):
    """What a caller may do. Each includes READ; WRITE is UPLOAD and RUN; ADMIN includes all."""

    READ = "read"
    UPLOAD = "upload"
    RUN = "run"
    WRITE = "write"
    ADMIN = "admin"

    @property
    def implied(self) -> frozenset[Scope]:
        """This one and what it includes."""
        return _INCLUDED[self]


_INCLUDED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.UPLOAD: frozenset({Scope.READ, Scope.UPLOAD}),
    Scope.RUN: frozenset({Scope.READ, Scope.RUN}),
    Scope.WRITE: frozenset({Scope.READ, Scope.UPLOAD, Scope.RUN, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


def implied(scopes: Collection[Scope]) -> frozenset[Scope]:
    """*scopes* and all that they imply."""
    return frozenset(each for scope in scopes for each in scope.implied)


class KeyState(StrEnum):
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored. `digest`: of its secret, see `digest_of`. `last_used_on`: a UTC day;
    None: not yet. `issued_until`: what `expires_at` was before it was made to end earlier; None: it
    was not. `restriction`: what it is restricted to beyond its scopes.
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
        """For how long it was made, also if it has been made to end earlier since."""
        return (self.issued_until or self.expires_at) - self.created_at

    def state(self, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_at <= now else KeyState.ACTIVE

    def to_note(self, now: datetime) -> date | None:
        """The day to note as its last use; None if a day as late is noted already."""
        today = now.date()
        return today if self.last_used_on is None or self.last_used_on < today else None


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key, and its text, which nobody can tell again."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a presented key is good, and why not; no caller is told the reason. `claimed`: which
    key it says it is, ``<tenant>/<key id>``; None: it says nothing.
    """

    key: ApiKey | None
    reason: str
    claimed: str | None = None


def digest_of(secret: str) -> str:
    """What is stored of *secret*: 64 hexadecimal digits. A secret is 256 random bits, so that no
    salt and no slow hash is needed: it cannot be guessed.
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
    """A key of *tenant*, valid from *now* for *life*. *secret*: `SECRET_BYTES` random bytes.

    Raises:
        InvalidInputError: The tenant, the name, the scopes or the life are none that a key can
            have.
    """
    if not KEY_TENANT.fullmatch(tenant):
        raise InvalidInputError(
            "tenant",
            tenant,
            "no tenant of a key",
            "Use 1 to 64 letters, digits, `_` and `-`, beginning with a letter or a digit.",
        )
    if not KEY_ID.fullmatch(key_id) or len(secret) != SECRET_BYTES:
        raise ValueError("a key has an id of 16 hexadecimal digits and a secret of 32 bytes")
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInputError(
            "name",
            name,
            "no name of a key",
            f"Say in 1 to {MAX_NAME} printable characters who or what has the key.",
        )
    if not scopes:
        raise InvalidInputError(
            "scopes",
            [],
            "a key needs a scope",
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
    """Refuse a life that no key can have.

    Raises:
        InvalidInputError: It is below a minute or beyond `MAX_LIFE`.
    """
    if not timedelta(minutes=1) <= life <= MAX_LIFE:
        raise InvalidInputError(
            "expiresInSec",
            int(life.total_seconds()),
            f"not between a minute and {MAX_LIFE.days} days",
            "Give 7776000 for 90 days, and rotate the key before it expires.",
        )


def check_overlap(overlap: timedelta) -> None:
    """Refuse a time that no key outlives its successor's making.

    Raises:
        InvalidInputError: It is negative or beyond `MAX_OVERLAP`.
    """
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise InvalidInputError(
            "overlapSec",
            int(overlap.total_seconds()),
            f"not between nothing and {MAX_OVERLAP.days} days",
            "Give 86400 for a day; 0 ends the old key at once.",
        )


def judge(presented: Presented, stored: ApiKey | None, now: datetime) -> Verdict:
    """Whether *presented* is *stored*, the key of its tenant and id, and is good at *now*.

    Takes the same time whatever the secret is, and whether there is a key or not.
    """
    claimed = f"{presented.tenant}/{presented.key_id}"
    digest = _NOBODYS if stored is None else stored.digest
    same = hmac.compare_digest(digest_of(presented.secret), digest)
    if stored is None:
        return Verdict(None, "there is no such key", claimed)
    if not same:
        return Verdict(None, "the secret is another", claimed)
    if (stored.tenant, stored.key_id) != (presented.tenant, presented.key_id):
        raise ValueError("a key is judged by the record of its own tenant and id")
    match stored.state(now):
        case KeyState.REVOKED:
            return Verdict(None, "the key is revoked", claimed)
        case KeyState.EXPIRED:
            expired = f"the key expired at {isoformat(stored.expires_at)}"
            return Verdict(None, expired, claimed)
        case KeyState.ACTIVE:
            return Verdict(stored, "the key is good", claimed)


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    """*key*, good for nothing from *now* on; as it is if it was revoked before."""
    return key if key.revoked_at is not None else replace(key, revoked_at=cut(now))


def ending(key: ApiKey, at: datetime) -> ApiKey:
    """*key*, expiring at *at*; as it is if it expires before that."""
    if key.expires_at <= at:
        return key
    return replace(key, expires_at=cut(at), issued_until=key.issued_until or key.expires_at)
