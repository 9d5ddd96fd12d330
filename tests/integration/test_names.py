"""Owners of leases and runs have unique names. The name distinguishes the holder of a lease from
a holder that took it over in the same millisecond.
"""

from __future__ import annotations

import pytest

from functions.watcher import handler as watcher
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from tests.integration.deployment import Deployment, message_for

GROUP = 3


def test_each_watcher_process_holds_the_lease_under_its_own_name(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = DynamoDbControlStore(system.database, table=system.control_table)
    names = []
    for _ in range(2):
        system.configure(monkeypatch)
        life = watcher._watcher_of(GROUP)  # noqa: SLF001 — cached per process
        life.turn(SystemClock().now())
        lease = control.lease(GROUP)
        assert lease is not None
        names.append(lease.holder)
        life.end()

    assert len(set(names)) == 2
    assert all(name.startswith(f"{GROUP}-") for name in names)


def test_each_executor_process_has_runs_under_its_own_name(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.upload("")
    job = system.register()
    names = []
    for _ in range(2):
        system.configure(monkeypatch)
        message = message_for(job, SystemClock().now())
        system.send(message.encode(), group=message.run_id, dedup=message.run_id)
        system.execute(system.receive())
        names.append(system.run(message).worker)

    assert len(set(names)) == 2
    assert all(name is not None and name.startswith("lambda-") for name in names)
