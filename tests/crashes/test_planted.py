"""The explorer can fail: where calls are in a wrong order, it finds the point."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

import pytest

from nextfire.adapters import job_store
from nextfire.adapters.due_store import DynamoDbDueStore
from nextfire.adapters.run_queue import SqsDelivery
from nextfire.domain.due import DueEntry, Slot
from nextfire.usecases.execute_run import ExecuteRun, Handled
from tests.crashes.cloud import Fate
from tests.crashes.explorer import Explorer
from tests.crashes.flows import Flow, Register, Succeed
from tests.crashes.stack import Stack, TravelClock
from tests.integration.deployment import Deployment


class Dispatch(Flow):
    """One occurrence of one job."""

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("12:00")

    def act(self, stack: Stack) -> None:
        stack.watcher().step()


@pytest.fixture
def explorer(stack_of_tests: Deployment, clock: TravelClock) -> Callable[[Flow], Explorer]:
    return lambda flow: Explorer(flow, stack_of_tests, clock)


def test_a_job_that_is_stored_before_its_due_entry(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(client: Any, writes: list[Any], what: str) -> None:  # noqa: ARG001
        for write in writes:
            client.put_item(**{k: write["Put"][k] for k in ("TableName", "Item")})

    monkeypatch.setattr(job_store, "transact", one_by_one)

    class OnceAsked(Register):
        def again(self, stack: Stack) -> None:
            """Its caller was told nothing, and looks at the job."""

        def check(self, stack: Stack) -> None:
            """That it is sound is enough: without an answer it may not be stored."""

    assert explorer(OnceAsked()).first_lost() == ("PutItem", Fate.AFTER)


def test_a_due_entry_that_is_deleted_before_its_successor_is_stored(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, delete = DynamoDbDueStore.put, DynamoDbDueStore.delete

    def put_later(
        self: DynamoDbDueStore, entries: Collection[DueEntry], now: datetime
    ) -> set[DueEntry]:
        self.__dict__["later"] = entries, now
        return set(entries)

    def delete_first(self: DynamoDbDueStore, slots: Collection[Slot]) -> None:
        delete(self, slots)
        if later := self.__dict__.pop("later", None):
            put(self, *later)

    monkeypatch.setattr(DynamoDbDueStore, "put", put_later)
    monkeypatch.setattr(DynamoDbDueStore, "delete", delete_first)
    assert explorer(Dispatch()).first_lost() == ("DeleteItem", Fate.AFTER)


def test_a_message_that_is_deleted_before_its_run_is_on_record(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = ExecuteRun.handle

    def acknowledge_first(self: ExecuteRun, delivery: SqsDelivery, **more: Any) -> Handled:
        delivery.client.delete_message(
            QueueUrl=delivery.queue_url, ReceiptHandle=delivery.receipt_handle
        )
        return handle(self, delivery, **more)

    monkeypatch.setattr(ExecuteRun, "handle", acknowledge_first)
    assert explorer(Succeed()).first_lost() == ("DeleteMessage", Fate.AFTER)


def test_what_is_in_order_is_survived(explorer: Callable[[Flow], Explorer]) -> None:
    assert explorer(Dispatch()).first_lost() is None
