"""What the stand-in enforces, and how often chance acts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tests.strict.limits import TABLE, limit

RULES = ("outage", *dict.fromkeys(row.rule for row in TABLE.values()))
"""All rules; `outage` has no row: `Strictness.outages` names the services that do not answer."""


class Strictness(BaseModel):
    """Settings of the stand-in. The same seed makes the same choices for the n-th call of an
    operation, whatever other calls are in between.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 1
    scale: float = Field(default=1.0, gt=0)
    """Factor of all rates: this machine cannot reach those of AWS."""
    off: frozenset[str] = frozenset()
    """Rules that do not act."""
    lag_chance: float = 0.1
    """Part of the writes that eventually consistent reads do not see for `lag_seconds`."""
    lag_seconds: float = limit("stale-read")
    fault_chance: float = limit("fault")
    reset_chance: float = limit("reset")
    lost_event_chance: float = 0.05
    latency_ms: float = 4.0
    """Median latency that is added to each call; one call in a hundred takes 10 times as long, one
    in a thousand 100 times."""
    transaction_ms: float = 10.0
    """How long a transaction is in progress, at least: the emulator is faster than AWS."""
    account_concurrency: int = int(limit("account-concurrency"))
    outages: frozenset[str] = frozenset()
    """Services that answer each call with 503, for example `s3`."""

    @classmethod
    def of(cls, settings: Iterable[str]) -> Self:
        """Settings as text, for example ``["scale=0.05", "off=lag,latency"]``; the last of a name
        counts.

        Raises:
            ValueError: A name or a value is invalid.
        """
        given: dict[str, str | list[str]] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            given[name] = value.split(",") if name in {"off", "outages"} else value
        return cls.model_validate(given)

    @model_validator(mode="after")
    def _known_rules(self) -> Self:
        if unknown := self.off - set(RULES):
            raise ValueError(f"unknown rules: {sorted(unknown)}; known: {', '.join(RULES)}")
        return self

    def rate(self, name: str) -> float:
        """The limit *name*, scaled if it is a rate; never below 1."""
        row = TABLE[name]
        return max(row.value * self.scale, 1.0) if row.scaled else row.value
