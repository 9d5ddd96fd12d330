"""Serves the connections of one run in one thread, within limits that hold for hostile scripts.

Each run has a limit on connections, on buffered bytes (`CHUNK` per direction and connection), on
the idle time of a connection, and on CPU time. All runs of the process share connections and CPU
time: each run is guaranteed a minimum, and no run can starve the others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nextfire.dataclass import dataclass, field

_log = logging.getLogger(__name__)

CHUNK = 64 * 1024
"""Bytes per read, and buffer size for each direction of a connection."""
MAX_CONNECTIONS_PER_RUN = 32
"""Maximum number of connections of one run; others wait in the listener's backlog."""
GUARANTEED_CONNECTIONS = 2
"""Connections guaranteed to each run, however many the other runs hold."""
_SHARE_OF_FILES = 16
"""All runs together may hold 1/16 of the process's open-file limit as connections, in addition to
the guaranteed ones. A connection uses two file descriptors."""
IDLE = 900.0
"""Idle timeout of a connection in seconds: the maximum duration of a Lambda function."""
_SHARE_OF_CORE = 0.5
"""Fraction of one core that all runs together may use; divided equally."""
_BURST = 0.25
"""Seconds of CPU time that a run may use before it is throttled."""
_ACCEPT_RETRY_AFTER = 0.05
_GONE_WITHIN = 5.0


@dataclass(slots=True)
class SharedCapacity:
    """Capacity that all servers of a process share."""

    connections: int
    """Maximum number of connections of all servers, in addition to the guaranteed ones."""
    servers: int = 0
    open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, servers: int = 0, connections: int = 0) -> None:
        """Add servers or connections to the counts; negative numbers remove them."""
        with self._lock:
            self.servers += servers
            self.open += connections

    def has_place(self, held: int) -> bool:
        """Whether a server that holds *held* connections may accept one more."""
        if held < GUARANTEED_CONNECTIONS:
            return True
        return held < MAX_CONNECTIONS_PER_RUN and self.open < self.connections

    @property
    def share_of_core(self) -> float:
        """Fraction of a core that one server may use."""
        return _SHARE_OF_CORE / max(self.servers, 1)


class CpuThrottle:
    """Throttles a server that uses more than its share of a core."""

    def __init__(
        self, share: Callable[[], float], *, now: float, spent: float, burst: float = _BURST
    ) -> None:
        """Build. *share*: fraction of a core. *now*: clock, *spent*, *burst*: CPU time; all in
        seconds.
        """
        self._share = share
        self._now, self._spent = now, spent
        self._credit = self._burst = burst

    def delay(self, *, now: float, spent: float) -> float:
        """Return the seconds to wait before more work, given the clock and the CPU time so far."""
        earned = (now - self._now) * self._share()
        self._credit = min(self._burst, self._credit + earned - (spent - self._spent))
        self._now, self._spent = now, spent
        return max(-self._credit / self._share(), 0)


_room = SharedCapacity(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)

Handle = Callable[["BoundedServer", socket.socket], Awaitable[None]]


class BoundedServer:
    """Accepts connections on a listener and handles them in one dedicated thread."""

    def __init__(
        self,
        listener: socket.socket,
        handle: Handle,
        *,
        room: SharedCapacity = _room,
        idle: float = IDLE,
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._room = room
        self._idle = idle
        self._pace: CpuThrottle | None = None
        self._stop: Callable[[], object] | None = None
        self._starting = threading.Event()
        self._problem: OSError | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve inside the `with` block; on exit close all connections and the listener.

        Raises:
            OSError: The process is out of file descriptors or threads.
        """
        self._listener.setblocking(False)
        thread = threading.Thread(target=self._run, name="bounded-server", daemon=True)
        try:
            try:
                thread.start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, f"cannot start a thread: {error}") from error
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
                    _log.warning("the server of a run did not stop")
            self._listener.close()

    async def paced(self) -> None:
        """Sleep until the server is within its share of a core again."""
        if self._pace:
            delay = self._pace.delay(now=time.monotonic(), spent=time.thread_time())
            if delay > 0:
                await asyncio.sleep(delay)

    async def exchange(self, one: socket.socket, other: socket.socket) -> None:
        """Copy between two sockets in both directions until both close or the idle timeout."""
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
        while (left := last[0] + self._idle - time.monotonic()) > 0:  # noqa: ASYNC110 — a deadline
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
        self._stop = _canceller_of(loop, serving)
        self._pace = CpuThrottle(
            lambda: self._room.share_of_core, now=time.monotonic(), spent=time.thread_time()
        )
        self._starting.set()
        self._room.add(servers=1)
        handled: dict[asyncio.Task[None], socket.socket] = {}

        def forget(task: asyncio.Task[None]) -> None:
            # Not in the task itself: a task that is cancelled before it starts runs no code.
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
                # Fails if no file descriptor is free, or if the client has disconnected.
                with suppress(OSError):
                    client, _ = self._listener.accept()
                    client.setblocking(False)
                    return client
            await asyncio.sleep(_ACCEPT_RETRY_AFTER)

    async def _served(self, client: socket.socket) -> None:
        try:
            await self._handle(self, client)
        except OSError:
            pass  # either end has hung up
        except Exception:  # noqa: BLE001 — a failed connection must not end the others
            _log.exception("a connection of a run failed")


async def _readable(sock: socket.socket) -> None:
    """Wait until *sock* is readable. If cancelled, no connection is lost, unlike `sock_accept`."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _canceller_of(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]
) -> Callable[[], object]:
    def stop() -> None:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(task.cancel)

    return stop
