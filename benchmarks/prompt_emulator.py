"""MiniStack with long polls that end within 5 ms of a message.

MiniStack looks for messages every 0.1 s while a receiver waits, so a message waits 0.05 s on
average. SQS answers a waiting receiver when the message arrives. Where a benchmark measures the
time from the sending of a message on, this file is run instead of the module `ministack`.
"""

import asyncio
from importlib import import_module
from typing import Any

_LOOK_EVERY = 0.005


class _Prompt:
    """`asyncio`, whose sleeps are short."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — any attribute of the module
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, _LOOK_EVERY))


if __name__ == "__main__":
    # MiniStack has no type information, so it is not imported by a statement.
    vars(import_module("ministack.services.sqs"))["asyncio"] = _Prompt()
    import_module("ministack.app").main()
