"""Responses about API keys."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from nextfire.domain.keys import ApiKey, KeyState, Minted, Scope
from nextfire.domain.ports.pages import Page
from nextfire.responses.base import UNREADABLE, ApiResponse, field, one_line


class KeyResponse(ApiResponse):
    """An API key without its secret text."""

    # of(key, now)
    key_id: str
    name: str = field(description="Who or what uses the key.")
    scopes: list[Scope] = field(lambda key, *_: [each for each in Scope if each in key.scopes])
    state: KeyState = field(lambda key, now, *_: key.state(now))
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    last_used_on: date | None = field(
        description="UTC date of the last use. Absent if the key has not been used."
    )
    cidrs: list[str] | None = field(
        lambda key, *_: list(key.restriction.cidrs) or None,
        description="Networks that the key may be used from. Absent: all networks.",
    )
    labels: dict[str, str] | None = field(
        lambda key, *_: dict(key.restriction.labels) or None,
        description="Labels that a job must have to be accessible. Absent: all jobs.",
    )

    @property
    def reason(self) -> str | None:
        """Why the stored key cannot be decoded, if `state` is UNREADABLE."""
        return self.document.get("reason")


class NewKeyResponse(KeyResponse):
    """An API key with its secret text."""

    # of(key, now, text or None)
    key: str | None = field(
        lambda _key, _now, text: text,
        description="The text that callers send. It is returned once and never stored: absent if "
        "an earlier response returned it.",
        secret=True,
    )

    @classmethod
    def of_made(cls, made: Minted | ApiKey, now: datetime) -> NewKeyResponse:
        """A key that was just made. It has its text unless an earlier response had it."""
        if isinstance(made, ApiKey):
            return cls.of(made, now, None)
        return cls.of(made.key, now, made.text)


class RotatedResponse(ApiResponse):
    """The new key and the key that it replaces."""

    # of(rotated, now)
    new: NewKeyResponse = field(lambda done, now: NewKeyResponse.of_made(done.made, now))
    old: KeyResponse = field(lambda done, now: KeyResponse.of(done.old, now))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(new={self.new!r}, old={self.old!r})"


class UnreadableKey(ApiResponse):
    """A stored key that cannot be decoded. Requests with it are rejected."""

    key_id: str = field(lambda found: found.identity)
    state: Literal["UNREADABLE"] = field(lambda _: UNREADABLE)
    reason: str = field(lambda found: one_line(found.problem))


def _items(page: Page[ApiKey], now: datetime) -> list[ApiResponse]:
    readable = [KeyResponse.of(each, now) for each in page.items]
    unreadable = [UnreadableKey.of(each) for each in page.unreadable]
    return sorted([*readable, *unreadable], key=lambda each: str(each.document["keyId"]))


class KeyPage(ApiResponse):
    """API keys, ordered by id, including expired and revoked keys. If `cursor` is present, there
    may be more.
    """

    # of(page, now)
    items: list[KeyResponse] = field(_items, schema=list[KeyResponse | UnreadableKey])
    cursor: str | None
