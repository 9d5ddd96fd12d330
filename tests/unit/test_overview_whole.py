"""Since when the overview has all runs: of a new stack, and of tenants that come later."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from nextfire.domain.overview import BrokenHead
from nextfire.usecases.project_runs import WHOLE
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.builders import NOON, run_key
from tests.fakes import MemoryRunScan
from tests.overview_stream import EVER, SECOND, Stream, ended, rebuild, started


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_after_a_rebuild_new_tenants_lack_nothing(stream: Stream) -> None:
    """Otherwise the answers for each of them would ask for a rebuild."""

    def begins_at(tenant: str) -> datetime | None:
        stream.write(started(run_key(tenant=tenant), stream.clock.now()))
        stream.deliver()
        return stream.overview.list(tenant, EVER, cursor=None, limit=1).freshness.begins_at

    stream.write(started(run_key(tenant="earlier"), NOON))
    stream.pending.clear()  # it was not delivered
    stream.clock.advance(SECOND)
    assert begins_at("first") == stream.clock.now()
    assert stream.projector.begun == {"first"}
    rebuild(stream, step=timedelta())

    assert begins_at("second") is None
    assert begins_at("earlier") is None
    assert len(stream.overview.list("earlier", EVER, cursor=None, limit=2).items) == 1
    assert stream.projector.begun == {"first"}
    stream.store.heads["second"] = BrokenHead("?", "head does not decode")
    assert begins_at("second") == stream.clock.now()


def test_a_rebuild_that_does_not_end_promises_nothing(stream: Stream) -> None:
    for name in ("a", "b", "c"):
        stream.write(ended(started(run_key(tenant=name), NOON), NOON))
    use = RebuildOverview(MemoryRunScan(stream.runs), stream.store, stream.runs, stream.clock)

    assert not use.run(stream.clock.now()).done

    assert WHOLE not in stream.store.heads
