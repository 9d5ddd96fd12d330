"""Latency with a tail, server errors, closed connections, and services that are down."""

from __future__ import annotations

from dataclasses import dataclass

from tests.strict.exchange import LOST, Answer, Call, Proceed, refusal
from tests.strict.rule import Circumstances

_SIGMA = 0.35
_ONE_IN_A_HUNDRED, _ONE_IN_A_THOUSAND = 0.01, 0.001
_FAULTS = {"dynamodb": "InternalServerError", "sqs": "InternalError", "lambda": "ServiceException"}


@dataclass
class Outage:
    """Services named in `Strictness.outages` answer 503."""

    here: Circumstances
    name = "outage"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        if call.service not in self.here.strictness.outages:
            return await proceed(call)
        self.here.act(self.name, call)
        return refusal(call, "ServiceUnavailable", "The service is unavailable.", status=503)


@dataclass
class Latency:
    """Log-normal around the median, with a tail."""

    here: Circumstances
    name = "latency"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        dice = self.here.dice(self.name, call)
        takes = dice.lognormvariate(0, _SIGMA) * self.here.strictness.latency_ms / 1000
        rare = dice.random()
        if rare < _ONE_IN_A_HUNDRED:
            self.here.act(self.name, call)
            takes *= 100 if rare < _ONE_IN_A_THOUSAND else 10
        await self.here.sleep(takes / 2)
        answer = await proceed(call)
        await self.here.sleep(takes / 2)
        return answer


@dataclass
class Faults:
    """5xx, half of them after the call took effect."""

    here: Circumstances
    name = "faults"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        dice = self.here.dice(self.name, call)
        if dice.random() >= self.here.strictness.fault_chance:
            return await proceed(call)
        self.here.act(self.name, call)
        if dice.random() < 1 / 2:
            await proceed(call)
        code = _FAULTS.get(call.service, "InternalFailure")
        return refusal(call, code, "We encountered an internal error. Try again.", status=500)


@dataclass
class Resets:
    """Closed connections, half of them after the call took effect."""

    here: Circumstances
    name = "resets"

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        dice = self.here.dice(self.name, call)
        if dice.random() >= self.here.strictness.reset_chance:
            return await proceed(call)
        self.here.act(self.name, call)
        if dice.random() < 1 / 2:
            await proceed(call)
        return LOST
