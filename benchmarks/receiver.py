"""A server that responds to each request after a while.

``python -m benchmarks.receiver FILE SECONDS`` writes its URL into FILE, then a line per request:
the time at which it arrived (seconds since 1970), and its idempotency key.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import TextIO

_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
_KEY = re.compile(rb"\r\nidempotency-key: *([^\r]+)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


async def serve(log: Path, seconds: float) -> None:
    """Serve until the process ends."""
    with log.with_suffix(".new").open("w") as lines:

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _respond(reader, writer, lines, seconds)

        server = await asyncio.start_server(respond, "127.0.0.1", 0, backlog=2048)
        host, port = server.sockets[0].getsockname()
        lines.write(f"http://{host}:{port}\n")
        lines.flush()
        log.with_suffix(".new").rename(log)
        await server.serve_forever()


async def _respond(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: TextIO, seconds: float
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    key, length = _KEY.search(head), _LENGTH.search(head)
    lines.write(json.dumps([time.time(), key[1].decode() if key else ""]) + "\n")
    lines.flush()
    await reader.readexactly(int(length[1]) if length else 0)
    await asyncio.sleep(seconds)
    writer.write(_RESPONSE)
    await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2])))
