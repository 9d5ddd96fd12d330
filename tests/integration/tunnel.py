"""A proxy that opens tunnels to the hosts that its clients request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Tunnel:
    """`heads`: the heads of the requests, including headers."""

    def __init__(self, listener: socket.socket) -> None:
        self.heads: list[str] = []
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._open: list[socket.socket] = [listener]

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (more := client.recv(1)):
                    return  # the client hung up
                head += more
            self.heads.append(head.decode())
            host, _, port = head.split()[1].decode().rpartition(":")
            server = socket.create_connection((host, int(port)))
            self._open += [client, server]
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            _pump(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def tunnel() -> Iterator[Tunnel]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Tunnel(listener)
        threading.Thread(target=found.accept, daemon=True).start()
        try:
            yield found
        finally:
            found.close()
