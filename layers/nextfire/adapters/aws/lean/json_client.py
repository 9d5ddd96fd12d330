"""A client of AWS's JSON protocol: encodes, signs, sends, retries and decodes calls."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import orjson

from nextfire.adapters.aws.errors import (
    EXPIRED_CREDENTIALS,
    RefusedError,
    UnansweredError,
    error_code,
    is_server_error,
    is_transient,
)
from nextfire.adapters.aws.lean.credentials import CredentialsSource, credentials_source
from nextfire.adapters.aws.lean.environment import service_endpoint
from nextfire.adapters.aws.lean.response import ConnectionLostError, Response
from nextfire.adapters.aws.lean.retries import FailureCause, RetryBudget, backoff
from nextfire.adapters.aws.lean.signing import Signer
from nextfire.adapters.aws.lean.transport import TimedOutError, Transport
from nextfire.dataclass import dataclass

_SKEW = frozenset(
    {
        "InvalidSignatureException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",  # SQS: "Signature expired: … is now earlier than …"
    }
)
_SKEW_AT_LEAST = 60.0  # seconds; AWS accepts five minutes
_OK = 200
_UNSIGNED = {"accept-encoding": "identity", "user-agent": "nextfire"}
"""Headers that a proxy may change, so they are not signed."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Timeouts of a client in seconds, and its maximum number of attempts."""

    connect: float = 1.0
    read: float = 4.0
    attempts: int = 3


class JsonClient:
    """Calls operations ``<prefix>.<operation>`` of *service*. Thread-safe.

    *headers*: sent with each request; names in lower case.
    """

    def __init__(
        self,
        service: str,
        prefix: str,
        patience: ClientTimeouts,
        *,
        credentials: CredentialsSource | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        place = service_endpoint(service)
        self.service = service
        self._prefix = prefix
        self._attempts = patience.attempts
        self._credentials = credentials or credentials_source()
        self._signer = Signer(place.region, service)
        self._transport = Transport(place.endpoint, connect=patience.connect, read=patience.read)
        self._headers = {
            "content-type": "application/x-amz-json-1.0",
            "host": urlsplit(place.endpoint).netloc,
            **(headers or {}),
        }
        self._budget = RetryBudget()
        self._offset = 0.0  # seconds by which AWS's clock is ahead of the local clock

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call *operation* and return its response.

        Raises:
            RefusedError: AWS returned an error, after the last attempt.
            UnansweredError: The last attempt got no valid response.
        """
        body = _encode(request)
        begun_at = time.time()
        attempt, cost = 1, 0
        while True:
            try:
                answer = self._attempt(operation, body, begun_at)
            except (RefusedError, UnansweredError) as error:
                trouble = _failure_cause(error)
                if trouble is None or attempt >= self._attempts:
                    raise
                cost = self._budget.take(trouble)
                if not cost:
                    raise
                time.sleep(backoff(attempt, trouble))
                attempt += 1
                continue
            self._budget.put_back(cost)
            answer["ResponseMetadata"]["RetryAttempts"] = attempt - 1
            return answer

    def _attempt(self, operation: str, body: bytes, begun_at: float) -> dict[str, Any]:
        """Make one attempt. If AWS rejects it for expired credentials or for clock skew, sign and
        send it again, once for each cause.
        """
        may_refresh = may_correct = True
        while True:
            credentials = self._credentials.get()
            headers = {**self._headers, "x-amz-target": f"{self._prefix}.{operation}"}
            signed_at = time.time() + self._offset
            signed = self._signer.sign(headers, body, credentials, signed_at)
            try:
                return self._send_once(operation, signed, body, begun_at)
            except RefusedError as error:
                code = error_code(error)
                if may_refresh and code in EXPIRED_CREDENTIALS:
                    may_refresh = False
                    if self._credentials.refresh(credentials):
                        continue
                if may_correct and code in _SKEW:
                    may_correct = False
                    if self._correct_clock(error, signed_at):
                        continue
                raise

    def _send_once(
        self, operation: str, signed: Mapping[str, str], body: bytes, begun_at: float
    ) -> dict[str, Any]:
        response = self._transport.send({**signed, **_UNSIGNED}, body, begun_at=begun_at)
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

    def _correct_clock(self, error: RefusedError, signed_at: float) -> bool:
        """Adopt AWS's clock if the time that was signed differs from it. Returns whether it did.

        The time may differ although the clock is right by now: another thread has corrected it, or
        the machine slept before the request arrived.
        """
        date = error.response["ResponseMetadata"]["HTTPHeaders"].get("date")
        try:
            now = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return False
        if abs(now - signed_at) < _SKEW_AT_LEAST:
            return False
        self._offset = now - time.time()
        return True


def _failure_cause(error: RefusedError | UnansweredError) -> FailureCause | None:
    """The cause of a failure that may be retried; None if a retry would fail again."""
    if isinstance(error, RefusedError):
        if error_code(error) in EXPIRED_CREDENTIALS or not is_transient(error):
            return None
        return FailureCause(throttled=not is_server_error(error))
    if isinstance(error, TimedOutError):
        return FailureCause(timed_out=True)
    return FailureCause() if isinstance(error, ConnectionLostError) else None


def _encode(request: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(request, default=_binary)
    except TypeError:
        # Values that orjson rejects (half a surrogate pair, an integer of more than 64 bits) are
        # sent as boto3 sends them, so that AWS decides.
        return json.dumps(request, default=_binary).encode()


def _binary(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be sent to AWS")


def _decode(response: Response) -> dict[str, Any]:
    """Decode the JSON object in the body. Members that are null are omitted.

    Raises:
        ConnectionLostError: The body is damaged.
    """
    checksum = response.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(crc32(response.body)):
        raise ConnectionLostError(f"The body's CRC32 is {crc32(response.body)}, not {checksum}")
    try:
        document = _loads(response.body) if response.body else {}
    except ValueError as error:
        raise ConnectionLostError(
            f"The body of a {response.status} response is not JSON"
        ) from error
    if not isinstance(document, dict):
        raise ConnectionLostError(f"The body of a {response.status} response is not a JSON object")
    return {name: value for name, value in document.items() if value is not None}


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # accepts half a surrogate pair


def _as_error(document: dict[str, Any], response: Response) -> dict[str, Any]:
    """Convert to the shape of botocore's `ClientError.response`."""
    named = response.headers.get("x-amzn-errortype") or str(response.status)
    code = str(document.pop("__type", named))
    code = code.split(":", 1)[0].rsplit("#", 1)[-1]
    # SQS has other codes for some errors, from its former query protocol; botocore uses them too.
    former, _, kind = response.headers.get("x-amzn-query-error", "").partition(";")
    message = document.pop("message", None) or document.pop("Message", "")
    error = {"Code": former if former and kind else code, "Message": message}
    return {**document, "Error": error}
