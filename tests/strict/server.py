"""The stand-in as a server on the loopback interface: Hypercorn, which the emulator uses too."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx2
from hypercorn.asyncio import serve
from hypercorn.config import Config
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.http_stream import HTTPStream

from tests.strict.exchange import LOST, Answer, Call, Document, parsed
from tests.strict.proxy import StrictProxy
from tests.strict.strictness import Strictness

CONTROL = "/_strict"
"""GET: the report. PUT: other settings, as JSON of `Strictness`."""
_SIGNED_AS = "AWS4-HMAC-SHA256 Credential={}/20260101/{}/{}/aws4_request, SignedHeaders=host, "
_PREFIXES = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}
_OWN_KEY = "test"
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date", b"server"}
)
_OK, _BAD = 200, 400


class Emulator:
    """`Upstream` over HTTP. *address*: its base URL."""

    def __init__(self, address: str) -> None:
        self._base = httpx2.URL(address)
        # An invocation lasts up to 15 minutes.
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(920, connect=5), trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )  # fmt: skip

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, call: Call) -> Answer:
        url = self._base.copy_with(raw_path=call.target)
        headers = [each for each in call.headers if each[0].lower() not in _HOP_BY_HOP]
        request = self._client.build_request(
            call.method, url, headers=headers, content=call.body or None
        )
        try:
            answer = await self._client.send(request, stream=True)
            try:
                body = b"".join([part async for part in answer.aiter_raw()])
            finally:
                await answer.aclose()
        except httpx2.TransportError:
            return LOST
        kept = tuple(each for each in answer.headers.raw if each[0].lower() not in _HOP_BY_HOP)
        if call.method == "HEAD" and "content-length" in answer.headers:
            kept += ((b"content-length", answer.headers["content-length"].encode()),)
        return Answer(answer.status_code, kept, body)

    async def ask(self, call: Call, operation: str, request: Document) -> Document:
        key = call.key if call.key.isdigit() else _OWN_KEY
        signed = _SIGNED_AS.format(key, call.region, call.service) + "Signature=0"
        headers = (
            (b"authorization", signed.encode()),
            (b"content-type", b"application/x-amz-json-1.0"),
            (b"x-amz-target", f"{_PREFIXES[call.service]}.{operation}".encode()),
        )
        asked = Call("POST", b"/", headers, json.dumps(request).encode())
        answer = await self.send(asked)
        return answer.document if answer.ok else {}


class Server:
    """The ASGI application of *proxy*."""

    def __init__(self, proxy: StrictProxy) -> None:
        self.proxy = proxy

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["path"] == CONTROL:
            answer = self._control(scope["method"], body)
        else:
            target = scope["raw_path"]
            if scope["query_string"]:
                target += b"?" + scope["query_string"]
            headers = tuple((name, value) for name, value in scope["headers"])
            answer = await self.proxy.answer(parsed(scope["method"], target, headers, body))
        await _respond(send, answer)

    def _control(self, method: str, body: bytes) -> Answer:
        if method == "PUT":
            try:
                strictness = Strictness.model_validate_json(body)
            except ValueError as error:
                return Answer(_BAD, body=str(error).encode())
            self.proxy.here.strictness = strictness
        return Answer(_OK, ((b"content-type", b"application/json"),)).with_document(
            self.proxy.report()
        )


async def _respond(send: Callable[[dict[str, Any]], Awaitable[None]], answer: Answer) -> None:
    if answer.lost:
        # ASGI has no message for it: Hypercorn closes the connection of a stream that ends early.
        stream = cast("HTTPStream", send.__self__)  # type: ignore[attr-defined]
        stream.closed = True
        await stream.send(StreamClosed(stream_id=stream.stream_id))
        return
    headers = list(answer.headers)
    if not any(name.lower() == b"content-length" for name, _ in headers):
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def run(
    upstream: str,
    strictness: Strictness,
    listener: socket.socket,
    stop: asyncio.Event,
    started: Callable[[StrictProxy], None] = lambda _proxy: None,
) -> None:
    """Serve on *listener*, and close it, until *stop*. *started* gets the proxy at once."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_timeout = 3600
    config.graceful_timeout = 0
    config.shutdown_timeout = 1
    config.accesslog = None
    emulator = Emulator(upstream)
    proxy = StrictProxy(emulator, strictness)
    started(proxy)
    try:
        await serve(Server(proxy), config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
    finally:
        await emulator.close()
