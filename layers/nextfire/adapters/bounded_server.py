"""Serves connections of one run in one thread, within bounds that a hostile script cannot exceed.

Bounds of a run: its connections, the bytes that are buffered for each (`CHUNK` per direction), the
time a connection may be idle, and computing time. Connections and computing time are shared with
the other runs of the process: each run is sure of a few, and no run can take what others need.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

_log = logging.getLogger(__name__)

CHUNK = 64 * 1024
"""Bytes that are read at a time; as many are buffered for each direction of a connection."""
MOST_CONNECTIONS = 32
"""Connections of one run at a time; further ones wait in the backlog of its listener."""
SURE_CONNECTIONS = 2
"""Connections that a run has however many the others hold."""
_SHARE_OF_FILES = 16
"""All runs together hold 1/16 as many connections as the process may open files, apart from the
sure ones. A connection has two."""
IDLE = 900.0
"""Seconds for which a connection may carry nothing: as long as a Lambda function may take."""
_SHARE_OF_CORE = 0.5
"""Of one core, what all runs together may use; each has an equal part."""
_BURST = 0.25
"""Seconds of computing time that a run may use before it is slowed down."""
_LOOK_AGAIN = 0.05
_GONE_WITHIN = 5.0


@dataclass(slots=True)
class Room:
    """What the servers of a process share."""

    connections: int
    """Connections that all of them may hold, apart from the sure ones."""
    servers: int = 0
    open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, servers: int = 0, connections: int = 0) -> None:
        """Count servers or connections that came (or went, if negative)."""
        with self._lock:
            self.servers += servers
            self.open += connections

    def has_place(self, held: int) -> bool:
        """Whether a server that holds *held* connections may accept one more."""
        if held < SURE_CONNECTIONS:
            return True
        return held < MOST_CONNECTIONS and self.open < self.connections

    @property
    def share_of_core(self) -> float:
        """What one server may use of a core."""
        return _SHARE_OF_CORE / max(self.servers, 1)


class Pace:
    """Slows a server down that uses more than its share of a core."""

    def __init__(self, share: Callable[[], float], *, now: float, spent: float) -> None:
        """Build. *share*: of a core; *now* and *spent*: seconds of the clock, and of computing."""
        self._share = share
        self._now, self._spent = now, spent
        self._credit = _BURST

    def delay(self, *, now: float, spent: float) -> float:
        """Seconds to wait before more is done, given the clock and the computing time so far."""
        earned = (now - self._now) * self._share()
        self._credit = min(_BURST, self._credit + earned - (spent - self._spent))
        self._now, self._spent = now, spent
        return max(-self._credit / self._share(), 0)


_room = Room(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)

Handle = Callable[["BoundedServer", socket.socket], Awaitable[None]]


class BoundedServer:
    """Accepts connections on a listener and has each handled, in its own thread."""

    def __init__(
        self,
        listener: socket.socket,
        handle: Handle,
        *,
        room: Room = _room,
        idle: float = IDLE,
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._room = room
        self._idle = idle
        self._pace: Pace | None = None
        self._stop: Callable[[], object] | None = None
        self._starting = threading.Event()
        self._problem: OSError | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve within; at the end all connections and the listener are closed.

        Raises:
            OSError: The process has no file descriptor or thread left.
        """
        self._listener.setblocking(False)
        thread = threading.Thread(target=self._run, name="bounded-server", daemon=True)
        try:
            try:
                thread.start()
            except RuntimeError as error:
                raise OSError(f"no thread can be started: {error}") from error
            self._starting.wait()
            if self._problem is not None:
                raise self._problem
            yield
        finally:
            if self._stop is not None:
                self._stop()
            if thread.ident is not None:
                thread.join(_GONE_WITHIN)
                if thread.is_alive():
                    _log.warning("a server of a run does not end")
            self._listener.close()

    async def paced(self) -> None:
        """Wait for as long as the server has used more than its share of a core."""
        if self._pace:
            delay = self._pace.delay(now=time.monotonic(), spent=time.thread_time())
            if delay > 0:
                await asyncio.sleep(delay)

    async def exchange(self, one: socket.socket, other: socket.socket) -> None:
        """Copy between two sockets in both directions, until both ends have closed or nothing has
        come for the idle time.
        """
        last = [time.monotonic()]
        copies = asyncio.gather(self._copy(one, other, last), self._copy(other, one, last))
        idle = asyncio.ensure_future(self._idle_since(last))
        ends: set[asyncio.Future[Any]] = {copies, idle}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            copies.cancel()
            idle.cancel()
            await asyncio.gather(copies, idle, return_exceptions=True)

    async def _copy(self, source: socket.socket, sink: socket.socket, last: list[float]) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(source, CHUNK):
            last[0] = time.monotonic()
            await loop.sock_sendall(sink, data)
            last[0] = time.monotonic()
            await self.paced()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    async def _idle_since(self, last: list[float]) -> None:
        while (left := last[0] + self._idle - time.monotonic()) > 0:  # noqa: ASYNC110 — it is a time
            await asyncio.sleep(left)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass  # the end of `serving`
        except OSError as error:
            self._problem = error
        finally:
            self._starting.set()

    async def _serve(self) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.current_task()
        if not serving:  # asyncio.run makes a task of every coroutine
            raise RuntimeError("not a task")
        self._stop = _once_from_another_thread(loop, serving)
        self._pace = Pace(
            lambda: self._room.share_of_core, now=time.monotonic(), spent=time.thread_time()
        )
        self._starting.set()
        self._room.add(servers=1)
        handled: dict[asyncio.Task[None], socket.socket] = {}

        def forget(task: asyncio.Task[None]) -> None:
            # Not in the task: one that is cancelled before it began runs nothing.
            handled.pop(task).close()
            self._room.add(connections=-1)

        try:
            while True:
                client = await self._accept(handled.__len__)
                task = loop.create_task(self._served(client))
                handled[task] = client
                self._room.add(connections=1)
                task.add_done_callback(forget)
        finally:
            self._room.add(servers=-1)
            ending = [*handled]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(self, held: Callable[[], int]) -> socket.socket:
        while True:
            await self.paced()
            if self._room.has_place(held()):
                await _readable(self._listener)
                # Fails where no file descriptor is free, or the client is gone already.
                with suppress(OSError):
                    client, _ = self._listener.accept()
                    client.setblocking(False)
                    return client
            await asyncio.sleep(_LOOK_AGAIN)

    async def _served(self, client: socket.socket) -> None:
        try:
            await self._handle(self, client)
        except OSError:
            pass  # either end has hung up
        except Exception:  # noqa: BLE001 — one connection does not end the others
            _log.exception("a connection of a run failed")


async def _readable(sock: socket.socket) -> None:
    """Wait for *sock*. Unlike asyncio's `sock_accept` it loses no connection if it is cancelled."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _once_from_another_thread(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]
) -> Callable[[], object]:
    def stop() -> None:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(task.cancel)

    return stop
