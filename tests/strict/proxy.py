"""The stand-in: its rules in order, in front of the emulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.strict.concurrency import Concurrency, LostEvents
from tests.strict.conflicts import Conflicts
from tests.strict.exchange import Answer, Call, Upstream
from tests.strict.lag import Lag
from tests.strict.queues import FifoRate, InFlight, ReceiveIds
from tests.strict.rule import Circumstances, Rule
from tests.strict.sizes import Sizes
from tests.strict.strictness import Strictness
from tests.strict.tables import Tables
from tests.strict.throughput import Throughput
from tests.strict.weather import Faults, Latency, Outage, Resets

_JUDGED = frozenset(
    {"dynamodb", "sqs", "lambda", "s3", "secretsmanager", "ssm", "sts", "events", "monitoring"}
)
"""Services whose calls the rules see. Others, and what is not a call of AWS, pass unchanged."""


class StrictProxy:
    """Answers calls as AWS would, with the emulator behind it."""

    def __init__(self, upstream: Upstream, strictness: Strictness, **clock: Any) -> None:
        self.here = here = Circumstances(upstream, strictness, **clock)
        self.calls: Counter[str] = Counter()
        tables = Tables(upstream)
        self._rules: Sequence[Rule] = (
            Outage(here),
            Latency(here),
            Resets(here),
            Faults(here),
            Sizes(here),
            LostEvents(here),
            Concurrency(here),
            ReceiveIds(here),
            FifoRate(here),
            InFlight(here),
            Throughput(here, tables),
            Conflicts(here, tables),
            Lag(here, tables),
        )

    async def answer(self, call: Call) -> Answer:
        if call.service not in _JUDGED:
            return await self.here.upstream.send(call)
        self.calls[f"{call.service}.{call.operation}"] += 1
        active = [rule for rule in self._rules if rule.name not in self.here.strictness.off]
        return await self._through(call, active)

    async def _through(self, call: Call, rules: Sequence[Rule]) -> Answer:
        if not rules:
            return await self.here.upstream.send(call)
        first, *others = rules

        async def proceed(passed: Call) -> Answer:
            return await self._through(passed, others)

        return await first.apply(call, proceed)

    def report(self) -> dict[str, Any]:
        """How often each rule acted, by operation, and how often each operation was called."""
        acted: dict[str, dict[str, int]] = {rule.name: {} for rule in self._rules}
        for (rule, operation), times in sorted(self.here.acted.items()):
            acted[rule][operation] = times
        return {
            "strictness": self.here.strictness.model_dump(mode="json"),
            "acted": acted,
            "calls": dict(sorted(self.calls.items())),
        }
