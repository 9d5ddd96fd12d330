"""Run the stand-in in front of an emulator until SIGTERM; print its report at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket

from tests.strict.limits import HIGH_THROUGHPUT, TABLE
from tests.strict.proxy import StrictProxy
from tests.strict.server import run
from tests.strict.strictness import RULES, Strictness


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.strict", description=__doc__)
    parser.add_argument("--limits", action="store_true", help="print the table of limits, and end")
    parser.add_argument("--upstream", help="address of the emulator, http://127.0.0.1:4566")
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0: any")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a setting: {', '.join(Strictness.model_fields)}; rules: {', '.join(RULES)}",
    )
    given = parser.parse_args()
    if given.limits:
        print(_table())
        return
    if not given.upstream:
        parser.error("--upstream is missing")
    try:
        strictness = Strictness.of(given.set)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(_serve(given.upstream, given.port, strictness))


async def _serve(upstream: str, port: int, strictness: Strictness) -> None:
    stop, proxies = asyncio.Event(), list[StrictProxy]()
    for sig in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    listener = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await run(upstream, strictness, listener, stop, proxies.append)
    print(json.dumps(proxies[0].report()), flush=True)


def _table() -> str:
    rows = [
        f"{name:20} {row.rule:12} {row.value:>9,} {row.unit} | {row.source} | {row.dated}"
        for name, row in TABLE.items()
    ]
    regions = ", ".join(f"{name} {calls:,}" for name, calls in HIGH_THROUGHPUT.items())
    return "\n".join([*rows, f"calls/s of a FIFO queue with high throughput: {regions}"])


if __name__ == "__main__":
    main()
