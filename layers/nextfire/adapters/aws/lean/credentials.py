"""AWS credentials: from the environment, as in Lambda, or else from botocore."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from nextfire.adapters.aws.errors import UnansweredError
from nextfire.adapters.aws.lean.signing import Credentials


class NoCredentialsError(UnansweredError):
    """AWS credentials are missing, or cannot be refreshed now."""


class CredentialsSource(Protocol):
    """Provides the current credentials."""

    def get(self) -> Credentials: ...

    def refresh(self, expired: Credentials) -> bool:
        """Replace *expired* by new credentials. Return whether new ones were found."""


def credentials_source() -> CredentialsSource:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access_key, secret_key = (os.environ.get(name) for name in names)
    if access_key and secret_key:
        token = os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_SECURITY_TOKEN")
        return FixedCredentials(Credentials(access_key, secret_key, token or None))
    return BotocoreCredentials()


class FixedCredentials:
    """Credentials from the environment, fixed for the life of the process.

    Lambda replaces the process together with its credentials.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get(self) -> Credentials:
        return self._credentials

    def refresh(self, expired: Credentials) -> bool:  # noqa: ARG002
        return False


class BotocoreCredentials:
    """Credentials of a task role, a profile or an instance. botocore refreshes them in time.

    A thread that refreshes them early does not keep others from using the current ones.
    """

    def __init__(self, found: Any = None) -> None:
        self._found = found
        self._lock = threading.Lock()

    def get(self) -> Credentials:
        return _frozen(self._source())

    def refresh(self, expired: Credentials) -> bool:
        source = self._source()
        if _frozen(source) == expired:
            with self._lock:
                self._found = None if self._found is source else self._found
        return _frozen(self._source()) != expired

    def _source(self) -> Any:
        with self._lock:
            if self._found is None:
                self._found = _from_botocore()
            return self._found


def _frozen(source: Any) -> Credentials:
    try:
        frozen = source.get_frozen_credentials()
    except Exception as error:  # a refresh may fail in any way, such as a refusal of STS
        raise NoCredentialsError(f"{type(error).__name__}: {error}") from error
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def _from_botocore() -> Any:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - the import takes a second
    from botocore.session import Session  # noqa: PLC0415 - the same

    try:
        found = Session().get_credentials()
    except (BotoCoreError, OSError, ValueError) as error:  # the others: of a credential_process
        raise NoCredentialsError(f"{type(error).__name__}: {error}") from error
    if found is None:
        raise NoCredentialsError(
            "No AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        )
    return found
