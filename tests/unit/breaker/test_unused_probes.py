"""Probes of an endpoint that is down, whose runs make no attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from nextfire.domain.endpoints import OPENS_AFTER, PROBE_AFTER
from nextfire.domain.target import TargetKind
from nextfire.targets.http.runner import HttpTarget
from nextfire.usecases.breaker import KNOWN_FOR, Breaker
from nextfire.usecases.endpoint_gate import EndpointGate
from tests.fakes import Clock, MemoryEndpointStore
from tests.unit.breaker.conftest import HOST, Store, fail, starts
from tests.unit.calling import HTTP
from tests.unit.requested import MANUAL, run_now
from tests.world import World


def test_a_run_that_was_cancelled_before_its_first_dispatch_gives_the_probe_back() -> None:
    """Its record is not read before: that would cost a read for each run."""
    world = World("11:59")
    gate = EndpointGate(MemoryEndpointStore(), "default", world.clock)
    unused = cast("Any", None)
    world.call_targets[TargetKind.HTTP] = HttpTarget(
        transport=unused, secrets=unused, authentication=unused, clock=world.clock, gate=gate
    )
    for _ in range(OPENS_AFTER):
        gate.report("acme", HOST, "down")
    run = run_now(world, world.register(target=HTTP, **MANUAL))
    world.manage_runs.cancel(run.key, None)
    world.clock.advance(PROBE_AFTER)
    world.tick()

    assert world.worker().work_one().reason == "has ended CANCELLED"

    timeout = timedelta(seconds=10)
    assert gate.admit("acme", HOST, "next", world.now, first=True, timeout=timeout) is None
    assert gate.admit("acme", HOST, "later", world.now, first=True, timeout=timeout) is not None


def test_a_probe_without_an_attempt_is_given_back(
    breaker: Breaker, store: Store, clock: Clock
) -> None:
    """Its run had been cancelled, or its message was received again."""
    another = Breaker(store, "calls", clock)
    fail(breaker)
    clock.advance(PROBE_AFTER)
    assert starts(breaker, clock, "cancelled")
    breaker.unused("acme", HOST, "another run")
    assert not starts(another, clock)

    breaker.unused("acme", HOST, "cancelled")
    clock.advance(KNOWN_FOR)

    assert starts(another, clock)
    assert not starts(breaker, clock)
    breaker.unused("acme", HOST, "cancelled")
    assert not starts(breaker, clock), "it was given back once"
    another.report("acme", HOST, "ok")
    clock.advance(KNOWN_FOR)
    assert starts(breaker, clock)
