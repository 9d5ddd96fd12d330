"""What `http.client` uses instead of a socket."""

from __future__ import annotations

import socket

from nextfire.targets.http.wire import Wire


def test_all_parts_of_a_request_are_sent() -> None:
    class Full(socket.socket):
        """Its buffer takes three bytes at a time."""

        sent = b""

        def send(self, data: object, *_: object) -> int:
            part = bytes(memoryview(data)[:3])  # type: ignore[arg-type]
            self.sent += part
            return len(part)

    with Full() as connection:
        Wire(connection, lambda: 1.0, 0).sendall(b"hunter22")

        assert connection.sent == b"hunter22"
