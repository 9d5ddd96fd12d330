"""The stand-in on a thread of the tests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue

from tests.strict.proxy import StrictProxy
from tests.strict.server import run
from tests.strict.strictness import RULES, Strictness

_PATIENCE = 30


@dataclass(frozen=True)
class StandInThread:
    """`address`: the URL for clients."""

    address: str
    proxy: StrictProxy

    def enforce(self, *rules: str, **strictness: object) -> None:
        """From now on only *rules* act. Without rules all calls pass."""
        off = frozenset(RULES) - set(rules)
        self.proxy.here.strictness = Strictness.model_validate({"off": off, **strictness})

    def acted(self, rule: str) -> int:
        return sum(self.proxy.report()["acted"][rule].values())


@contextmanager
def stand_in(upstream: str) -> Iterator[StandInThread]:
    """Run the stand-in in front of *upstream*; no rule acts before `enforce`."""
    started: Queue[tuple[StrictProxy, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        await run(
            upstream, Strictness(off=frozenset(RULES)), listener, stop,
            lambda proxy: started.put((proxy, loop, stop)),
        )  # fmt: skip

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    proxy, loop, stop = started.get(timeout=_PATIENCE)
    try:
        yield StandInThread(address, proxy)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_PATIENCE)
