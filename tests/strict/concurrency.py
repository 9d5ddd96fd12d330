"""Concurrent executions of a Lambda account, and asynchronous events that are lost."""

from __future__ import annotations

from dataclasses import dataclass

from tests.strict.exchange import Answer, Call, Proceed, refusal
from tests.strict.rule import Circumstances

_ACCEPTED, _THROTTLED = 202, 429


def _is_event(call: Call) -> bool:
    return call.header(b"x-amz-invocation-type") == b"Event"


@dataclass
class Concurrency:
    """Sees synchronous invocations. The emulator enforces the same limit on those that its event
    sources and its API make, which do not pass here.
    """

    here: Circumstances
    _running: int = 0
    name = "concurrency"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service != "lambda" or call.operation != "Invoke" or _is_event(call):
            return await proceed(call)
        if self._running >= self.here.strictness.account_concurrency:
            self.here.act(self.name, call)
            reason = {"Reason": "ConcurrentInvocationLimitExceeded", "Type": "User"}
            return refusal(
                call, "TooManyRequestsException", "Rate Exceeded.", status=_THROTTLED, **reason
            )
        self._running += 1
        try:
            return await proceed(call)
        finally:
            self._running -= 1


@dataclass
class LostEvents:
    """Lambda accepts an asynchronous event, and nothing runs."""

    here: Circumstances
    name = "lost-events"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service != "lambda" or call.operation != "Invoke" or not _is_event(call):
            return await proceed(call)
        if self.here.dice(self.name, call).random() >= self.here.strictness.lost_event_chance:
            return await proceed(call)
        self.here.act(self.name, call)
        return Answer(_ACCEPTED)
