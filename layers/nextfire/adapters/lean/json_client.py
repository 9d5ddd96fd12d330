"""A call of AWS's JSON protocol: encoded, signed, sent, sent again if that may help, decoded."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import orjson

from nextfire.adapters.aws_errors import (
    EXPIRED_CREDENTIALS,
    RefusedError,
    UnansweredError,
    error_code,
    is_transient,
)
from nextfire.adapters.lean.credentials import CredentialsSource, credentials_source
from nextfire.adapters.lean.environment import place_of
from nextfire.adapters.lean.response import LostError, Response
from nextfire.adapters.lean.retries import RetryBudget, Trouble, backoff
from nextfire.adapters.lean.signing import Signer
from nextfire.adapters.lean.transport import TimedOutError, Transport

_SKEW = frozenset({"InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed"})
_SKEW_AT_LEAST = 60.0  # s; AWS accepts five minutes
_OK = 200
_UNSIGNED = {"accept-encoding": "identity", "user-agent": "nextfire"}
"""Headers that a proxy may change."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client waits, in seconds, and how often it asks in all."""

    connect: float = 1.0
    read: float = 4.0
    attempts: int = 3


class JsonClient:
    """Calls *service*, whose operations are named ``<prefix>.<operation>``. Threads share it."""

    def __init__(
        self,
        service: str,
        prefix: str,
        patience: Patience,
        *,
        credentials: CredentialsSource | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        place = place_of(service)
        self.service = service
        self._prefix = prefix
        self._attempts = patience.attempts
        self._credentials = credentials or credentials_source()
        self._now = now
        self._sleep = sleep
        self._signer = Signer(place.region, service)
        self._transport = Transport(place.endpoint, connect=patience.connect, read=patience.read)
        self._headers = {
            "content-type": "application/x-amz-json-1.0",
            "host": urlsplit(place.endpoint).netloc,
        }
        self._budget = RetryBudget()
        self._offset = 0.0  # s by which AWS's clock is ahead of this machine's

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The response of *operation*.

        Raises:
            RefusedError: AWS answered with an error, after the last attempt.
            UnansweredError: The last attempt got no valid answer.
        """
        body = _encode(request)
        attempt, cost = 1, 0
        while True:
            try:
                answer = self._authentic(operation, body)
            except (RefusedError, UnansweredError) as error:
                trouble = _trouble(error)
                if trouble is None or attempt >= self._attempts:
                    raise
                cost = self._budget.take(trouble)
                if not cost:
                    raise
                self._sleep(backoff(attempt, trouble))
                attempt += 1
                continue
            self._budget.put_back(cost)
            answer["ResponseMetadata"]["RetryAttempts"] = attempt - 1
            return answer

    def _authentic(self, operation: str, body: bytes) -> dict[str, Any]:
        """One attempt; what AWS refuses for the time or the age of its signature is signed again,
        once for each.
        """
        may_refresh = may_correct = True
        while True:
            credentials = self._credentials.get()
            try:
                return self._once(operation, body, credentials)
            except RefusedError as error:
                code = error_code(error)
                if may_refresh and code in EXPIRED_CREDENTIALS:
                    may_refresh = False
                    if self._credentials.refresh(credentials):
                        continue
                if may_correct and code in _SKEW:
                    may_correct = False
                    if self._correct_clock(error):
                        continue
                raise

    def _once(self, operation: str, body: bytes, credentials: Any) -> dict[str, Any]:
        headers = {**self._headers, "x-amz-target": f"{self._prefix}.{operation}"}
        signed = self._signer.sign(headers, body, credentials, self._now() + self._offset)
        response = self._transport.send(signed | _UNSIGNED, body)
        document = _decode(response)
        document["ResponseMetadata"] = {
            "RequestId": response.headers.get("x-amzn-requestid", ""),
            "HTTPStatusCode": response.status,
            "HTTPHeaders": response.headers,
            "RetryAttempts": 0,
        }
        if response.status == _OK:
            return document
        raise RefusedError(_as_error(document, response), operation)

    def _correct_clock(self, error: RefusedError) -> bool:
        """Whether AWS's clock shows another time than the one that was signed; then it counts."""
        date = error.response["ResponseMetadata"]["HTTPHeaders"].get("date")
        try:
            offset = parsedate_to_datetime(date or "").timestamp() - self._now()
        except ValueError:
            return False
        if abs(offset - self._offset) < _SKEW_AT_LEAST:
            return False
        self._offset = offset
        return True


def _trouble(error: RefusedError | UnansweredError) -> Trouble | None:
    """Why a request failed that may succeed if it is sent again; None: it will fail again."""
    if isinstance(error, RefusedError):
        if error_code(error) in EXPIRED_CREDENTIALS or not is_transient(error):
            return None
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        return Trouble(throttled=status < 500)  # noqa: PLR2004 — else a server error
    if isinstance(error, TimedOutError):
        return Trouble(timed_out=True)
    return Trouble() if isinstance(error, LostError) else None


def _encode(request: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(request, default=_binary)
    except TypeError:
        # What orjson refuses (half a surrogate pair, an integer of more than 64 bits) goes out as
        # boto3 sends it: AWS says what it thinks of it.
        return json.dumps(request, default=_binary).encode()


def _binary(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be sent to AWS")


def _decode(response: Response) -> dict[str, Any]:
    """The JSON object in the body, without the members that are null.

    Raises:
        LostError: The body is damaged.
    """
    checksum = response.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(crc32(response.body)):
        raise LostError(f"The body's CRC32 is {crc32(response.body)}, not {checksum}")
    try:
        document = _loads(response.body) if response.body else {}
    except ValueError as error:
        raise LostError(f"The body of a response {response.status} is not JSON") from error
    if not isinstance(document, dict):
        raise LostError(f"The body of a response {response.status} is not a JSON object")
    return {name: value for name, value in document.items() if value is not None}


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # which reads half a surrogate pair


def _as_error(document: dict[str, Any], response: Response) -> dict[str, Any]:
    """The form of botocore's `ClientError.response`."""
    code = str(document.pop("__type", response.headers.get("x-amzn-errortype", "")))
    code = code.split(":", 1)[0].rsplit("#", 1)[-1]
    # SQS has other names for some errors, those of its former protocol; botocore uses them too.
    former, _, kind = response.headers.get("x-amzn-query-error", "").partition(";")
    message = document.pop("message", None) or document.pop("Message", "")
    error = {"Code": former if former and kind else code, "Message": message}
    return {**document, "Error": error}
