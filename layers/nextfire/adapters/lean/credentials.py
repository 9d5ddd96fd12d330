"""Credentials: those that Lambda puts in the environment, else those that botocore finds."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from nextfire.adapters.aws_errors import UnansweredError
from nextfire.adapters.lean.signing import Credentials


class NoCredentialsError(UnansweredError):
    """AWS credentials are missing, or cannot be refreshed at present."""


class CredentialsSource(Protocol):
    """Gives the credentials of the moment."""

    def get(self) -> Credentials: ...

    def refresh(self, expired: Credentials) -> bool:
        """Get others, which AWS may accept in place of *expired*. False: none found."""


def credentials_source() -> CredentialsSource:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access_key, secret_key = (os.environ.get(name) for name in names)
    if access_key and secret_key:
        token = os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN")
        return FixedCredentials(Credentials(access_key, secret_key, token or None))
    return BotocoreCredentials()


class FixedCredentials:
    """Those of the environment, for as long as the process lives: Lambda replaces both."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get(self) -> Credentials:
        return self._credentials

    def refresh(self, expired: Credentials) -> bool:  # noqa: ARG002
        return False


class BotocoreCredentials:
    """Those of a task role, a profile or the instance. botocore renews them before they expire."""

    def __init__(self, found: Any = None) -> None:
        self._found = found
        self._lock = threading.Lock()

    def get(self) -> Credentials:
        with self._lock:
            return self._frozen()

    def refresh(self, expired: Credentials) -> bool:
        with self._lock:
            if self._frozen() == expired:
                self._found = None
            return self._frozen() != expired

    def _frozen(self) -> Credentials:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - takes a second

        try:
            if self._found is None:
                self._found = _from_botocore()
            frozen = self._found.get_frozen_credentials()
        except BotoCoreError as error:
            raise NoCredentialsError(f"{type(error).__name__}: {error}") from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def _from_botocore() -> Any:
    from botocore.session import Session  # noqa: PLC0415 - takes a second

    found = Session().get_credentials()
    if found is None:
        raise NoCredentialsError(
            "No AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        )
    return found
