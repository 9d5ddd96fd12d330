"""API keys, secrets and the credentials of job roles."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from typing import Protocol

from nextfire.domain.ids import JobKey
from nextfire.domain.keys import ApiKey
from nextfire.domain.masking import Masker
from nextfire.domain.ports.pages import Page
from nextfire.domain.references import Reference


class KeyStore(Protocol):
    """Stores API keys: hashes, never secrets."""

    def create(self, key: ApiKey) -> bool:
        """Store *key*. Returns False if the tenant already has a key with its id."""

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        """Return the key, by a consistent read; None if it does not exist.

        Raises:
            UndecodableError: The stored item is not a valid key.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """Return *tenant*'s keys by id, including expired and revoked ones, by consistent reads.
        *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        """Revoke the key from *now* on. A key that is already revoked does not change.

        Returns:
            The stored key; None if it does not exist.

        Raises:
            UndecodableError: It does not decode.
        """

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        """Set the key to expire at *at*, unless it expires earlier.

        Returns:
            The stored key; None if it does not exist.

        Raises:
            UndecodableError: It does not decode.
        """

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        """Record that the key was last used on *day*, unless a later day is recorded or the key
        does not exist.
        """


class Secrets(Protocol):
    """Reads the secrets and parameters of one pool."""

    def resolve(self, tenant: str, reference: Reference, *, again: bool = False) -> str:
        """Return the value of *tenant*'s secret or parameter, at most a minute old; with *again*,
        the present one.

        Raises:
            NotFoundError: It does not exist.
            InvalidInputError: The executor may not read it, or it does not have the key.
        """


class JobRole(Protocol):
    """Lends the job role of a pool to its scripts."""

    def lent(self, job: JobKey, masker: Masker) -> AbstractContextManager[Mapping[str, str]]:
        """Context manager: yields environment variables through which a script of *job* gets the
        role's credentials, renewed until the context ends. No credentials are served afterwards.

        The token and all credentials are added to *masker* before the script can get them.

        Raises:
            InvalidInputError: The executor may not assume the role.
            UnavailableError: Valid credentials are not available now, or this executor lacks
                threads or open files.
        """
