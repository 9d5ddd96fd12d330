"""Calls to AWS and their answers, as the rules see them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

Headers = tuple[tuple[bytes, bytes], ...]
Document = dict[str, Any]

_TARGETS = {"DynamoDB_20120810": "dynamodb", "AmazonSQS": "sqs"}
_SCOPE = re.compile(rb"Credential=([^/]+)/\d+/([^/]+)/([^/,]+)/")
_INVOKE = re.compile(rb"/2015-03-31/functions/([^/]+)/invocations")
_OK = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `service`, `operation`: for example `dynamodb`, `GetItem`; empty if it is not a
    call of AWS. `request`: the decoded document of DynamoDB and SQS.
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes
    service: str = ""
    operation: str = ""
    region: str = ""
    key: str = ""
    """Access key id."""
    request: Document = field(default_factory=dict)

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")

    def with_request(self, request: Document) -> Call:
        """The call with another document. The signature stays valid: it covers the digest in a
        header, if there is one, which an emulator does not compare with the body.
        """
        digest = hashlib.sha256(self.body).hexdigest().encode()
        kept = [each for each in self.headers if each[0].lower() != b"content-length"]
        if not self.header(b"x-amz-content-sha256"):
            kept.append((b"x-amz-content-sha256", digest))
        body = json.dumps(request).encode()
        return replace(self, headers=tuple(kept), body=body, request=request)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `lost`: the connection is closed instead of sending it."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    lost: bool = False

    @property
    def ok(self) -> bool:
        return self.status == _OK and not self.lost

    @property
    def document(self) -> Document:
        found: Document = json.loads(self.body) if self.body else {}
        return found

    def with_document(self, document: Mapping[str, Any]) -> Answer:
        # Checksum and length are those of the body that is replaced.
        dropped = {b"content-length", b"x-amz-crc32"}
        kept = tuple(each for each in self.headers if each[0].lower() not in dropped)
        return replace(self, headers=kept, body=json.dumps(document).encode())


LOST = Answer(0, lost=True)
Proceed = Callable[[Call], Awaitable[Answer]]


class Upstream(Protocol):
    """The emulator behind the stand-in."""

    async def send(self, call: Call) -> Answer:
        """Pass *call* on."""

    async def ask(self, call: Call, operation: str, request: Document) -> Document:
        """Ask for something of the account and the service of *call*. Empty if refused."""


def parsed(method: str, target: bytes, headers: Headers, body: bytes) -> Call:
    """The call of a request."""
    call = Call(method, target, headers, body)
    scope = _SCOPE.search(call.header(b"authorization"))
    if scope is None:
        return call
    key, region, service = (part.decode() for part in scope.groups())
    prefix, _, operation = call.header(b"x-amz-target").decode().partition(".")
    service = _TARGETS.get(prefix, service)
    request: Document = {}
    if service in _TARGETS.values() and operation:
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            return call  # the emulator rejects it
    elif service == "lambda" and _INVOKE.match(target):
        operation = "Invoke"
    return replace(
        call, service=service, operation=operation or method, region=region, key=key,
        request=request,
    )  # fmt: skip


def refusal(call: Call, code: str, message: str, *, status: int = 400, **members: Any) -> Answer:
    """The answer of an error, in the protocol of the call's service."""
    if call.service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Answer(status, ((b"content-type", b"application/xml"),), text.encode())
    kind = b"application/x-amz-json-1.0"
    prefix = "com.amazonaws.dynamodb.v20120810#" if call.service == "dynamodb" else ""
    document = {"__type": f"{prefix}{code}", "message": message, **members}
    headers = ((b"content-type", kind), (b"x-amzn-errortype", code.encode()))
    return Answer(status, headers, json.dumps(document).encode())
