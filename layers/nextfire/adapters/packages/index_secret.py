"""The credentials of a pool's package index, in Secrets Manager or the SSM Parameter Store."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.domain.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_ssm import SSMClient

_MAX_AGE = 60.0  # seconds; a rotated secret takes effect within this time
_FORM = 'Store USER:PASSWORD, or {"username": "…", "password": "…"}.'
_ABSENT = frozenset({"ResourceNotFoundException", "InvalidRequestException", "ParameterNotFound"})
_REFUSED = frozenset(
    {"AccessDeniedException", "DecryptionFailure", "InvalidKeyId", "ValidationException"}
)


class IndexSecret:
    """Reads ``USER:PASSWORD`` from the secret or parameter *arn*; cached for one minute."""

    def __init__(self, arn: str, secrets: SecretsManagerClient, parameters: SSMClient) -> None:
        self._arn = arn
        self._secrets = secrets
        self._parameters = parameters
        self._lock = threading.Lock()
        self._kept: tuple[str, float] | None = None

    def __call__(self) -> str:
        """Return the credentials as ``USER:PASSWORD``.

        Raises:
            UnavailableError: AWS did not respond. Try again.
            NotFoundError: The secret does not exist.
            InvalidInputError: The executor may not read the secret, or it holds no credentials.
        """
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[1] >= _MAX_AGE:
                self._kept = _credentials(self._arn, self._read()), time.monotonic()
            return self._kept[0]

    def _read(self) -> str:
        try:
            with translated("read the secret of the package index"):
                if ":ssm:" in self._arn:
                    found = self._parameters.get_parameter(Name=self._arn, WithDecryption=True)
                    return found["Parameter"]["Value"]
                return self._secrets.get_secret_value(SecretId=self._arn)["SecretString"]
        except KeyError:
            raise _invalid(self._arn, "not a text secret", _FORM) from None
        except refused() as error:
            if error_code(error) in _ABSENT:
                raise NotFoundError(
                    "secret of the package index", self._arn, "Create it."
                ) from error
            if error_code(error) in _REFUSED:
                remedy = "Deploy again, and allow the executor's role to decrypt with its key."
                raise _invalid(self._arn, "this pool may not read it", remedy) from error
            raise


def _credentials(arn: str, text: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None  # the error contains the secret, so it is not raised further
    if isinstance(document, dict):
        user, password = document.get("username"), document.get("password")
        text = f"{user}:{password}" if isinstance(user, str) and isinstance(password, str) else ""
    text = text.strip()
    if ":" not in text or not text.isprintable():
        raise _invalid(arn, "does not hold credentials", _FORM)
    return text


def _invalid(arn: str, problem: str, remedy: str) -> InvalidInputError:
    return InvalidInputError("packageIndexSecret", arn, problem, remedy)
