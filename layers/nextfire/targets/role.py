"""Credentials of the pool's job role, for calls that are made with it."""

from __future__ import annotations

from typing import Protocol

from nextfire.dataclass import dataclass, field
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker


@dataclass(frozen=True, slots=True)
class Credentials:
    """Temporary AWS credentials."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(repr=False)


class RoleCredentials(Protocol):
    """Issues credentials of the pool's job role."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:
        """Return credentials of the role for *job*, which are added to *masker*.

        Raises:
            InvalidInputError: The pool has no job role, or the executor may not assume it.
            UnavailableError: AWS did not answer.
        """
