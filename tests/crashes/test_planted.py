"""The explorer finds planted defects: for calls in a wrong order, it finds the point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from nextfire.adapters.dynamodb import job_store
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.domain.due import DispatchEntry, DueEntry, Slot
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.requests import KeptRequest
from nextfire.usecases import execute_run
from nextfire.usecases.cover_missed import Recorded, record_missed
from nextfire.usecases.dispatch.waiting import Postponer
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.handled import Handled
from nextfire.usecases.message_batch import MessageBatch
from nextfire.usecases.watcher_life import WatcherLife
from tests.builders import job_key
from tests.crashes.call_flows import Held
from tests.crashes.cloud import Cloud
from tests.crashes.executor_flows import InTurn, Succeed
from tests.crashes.explorer import Explorer
from tests.crashes.fates import Fate, Point
from tests.crashes.flow import Flow
from tests.crashes.job_flows import Register
from tests.crashes.missed_flows import SendLatest
from tests.crashes.quota_flows import DeleteCounted, Park, TakeOverWithRates
from tests.crashes.repeated_requests import CreateAgain
from tests.crashes.stack import Stack
from tests.crashes.stack_records import TravelClock
from tests.crashes.watcher_flows import ReleaseLease
from tests.crons import LONG
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
        def repeat(self, stack: Stack) -> None:
            """The caller has no answer and looks at the job instead."""

        def check(self, stack: Stack) -> None:
            """No more than soundness: without an answer the job may be missing."""

    assert explorer(OnceAsked()).first_lost(at="PutItem") is Fate.AFTER


def test_a_due_entry_that_is_deleted_before_its_successor_is_stored(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, delete = DynamoDbDueStore.put, DynamoDbDueStore.delete

    def put_later(
        self: DynamoDbDueStore, entries: Collection[DueEntry], now: datetime
    ) -> set[DueEntry]:
        self.__dict__["later"] = entries, now
        return set(entries)

    def delete_first(self: DynamoDbDueStore, slots: Collection[Slot]) -> set[Slot]:
        deleted = delete(self, slots)
        if later := self.__dict__.pop("later", None):
            put(self, *later)
        return deleted

    monkeypatch.setattr(DynamoDbDueStore, "put", put_later)
    monkeypatch.setattr(DynamoDbDueStore, "delete", delete_first)
    assert explorer(Dispatch()).first_lost(at="DeleteItem") is Fate.AFTER


def test_an_entry_that_waits_and_is_deleted_before_it_is_parked(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_first(self: Any, entries: Any, at: datetime, why: Any) -> None:
        if entries:
            self._due.delete([stored.slot for stored in entries])
            self._due.put([replace(stored.entry, held=why.held) for stored in entries], at)

    monkeypatch.setattr(Postponer, "_move", delete_first)
    assert explorer(Park()).first_lost(at="DeleteItem") is Fate.AFTER


def test_a_message_that_is_deleted_before_its_run_is_on_record(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = ExecuteRun.handle

    def acknowledge_first(self: ExecuteRun, delivery: Any, **more: Any) -> Handled:
        message: SqsDelivery = delivery.message
        message.client.delete_message(
            QueueUrl=message.queue_url, ReceiptHandle=message.receipt_handle
        )
        return handle(self, delivery, **more)

    monkeypatch.setattr(ExecuteRun, "handle", acknowledge_first)
    assert explorer(Succeed()).first_lost(at="DeleteMessage") is Fate.AFTER


def test_a_run_that_waits_for_its_endpoint_and_whose_message_is_deleted_first(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, put = ExecuteRun.handle, DynamoDbDueStore.put
    handled: list[SqsDelivery] = []

    def note(self: ExecuteRun, delivery: Any, **more: Any) -> Handled:
        handled.append(delivery.message)
        return handle(self, delivery, **more)

    def delete_first(self: DynamoDbDueStore, entries: Collection[DueEntry], now: datetime) -> Any:
        if any(isinstance(entry, DispatchEntry) and entry.dispatch > 1 for entry in entries):
            handled[-1].client.delete_message(
                QueueUrl=handled[-1].queue_url, ReceiptHandle=handled[-1].receipt_handle
            )
        return put(self, entries, now)

    monkeypatch.setattr(ExecuteRun, "handle", note)
    monkeypatch.setattr(DynamoDbDueStore, "put", delete_first)
    assert explorer(Held()).first_lost(at="DeleteMessage") is Fate.AFTER


def test_a_run_that_is_claimed_before_what_was_missed_is_on_record(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = ExecuteRun._carry_out  # noqa: SLF001

    def claim_first(self: Any, job: Any, message: Any, host: Any) -> Handled:
        handled = carry_out(self, job, message, host)
        if handled.started:
            record_missed(self._ports.runs, job, message, self._ports.clock.now())
        return handled

    monkeypatch.setattr(execute_run, "record_missed", lambda *_: Recorded())
    monkeypatch.setattr(ExecuteRun, "_carry_out", claim_first)
    assert explorer(SendLatest()).first_lost(at="UpdateItem") is Fate.AFTER


def test_a_count_that_is_written_after_its_job(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(client: Any, writes: list[Any], what: str) -> None:  # noqa: ARG001
        for write in writes:
            for kind, request in write.items():
                (client.put_item if kind == "Put" else client.update_item)(**request)

    monkeypatch.setattr(job_store, "transact", one_by_one)

    class OnceAsked(DeleteCounted):
        def repeat(self, stack: Stack) -> None:
            """The caller has no answer and looks at the job instead."""

        def check(self, stack: Stack) -> None:
            """No more than soundness, which includes the count."""

    assert explorer(OnceAsked()).first_lost(at="PutItem") is Fate.AFTER


def test_an_idempotency_record_that_is_written_after_the_effect(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, finish = DynamoDbRequestStore.begin, DynamoDbRequestStore.finish

    def begin_on_repetition(
        self: DynamoDbRequestStore, tenant: str, key: str, fingerprint: str, now: datetime
    ) -> KeptRequest | None:
        self.__dict__["began"] = fingerprint
        stored = self._client.get_item(TableName="requests", Key={"request": {"S": f"acme#{key}"}})
        return begin(self, tenant, key, fingerprint, now) if "Item" in stored else None

    def finish_and_begin(
        self: DynamoDbRequestStore, tenant: str, key: str, at: datetime, answer: str
    ) -> str:
        begin(self, tenant, key, self.__dict__["began"], at)
        return finish(self, tenant, key, at, answer)

    monkeypatch.setattr(DynamoDbRequestStore, "begin", begin_on_repetition)
    monkeypatch.setattr(DynamoDbRequestStore, "finish", finish_and_begin)
    assert explorer(CreateAgain()).first_lost(at="TransactWriteItems") is Fate.AFTER


def test_runs_that_a_watcher_counts_in_its_memory(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_runs(
        self: DynamoDbControlStore, tenant: str, minute: datetime, wanted: int, most: int
    ) -> int:
        taken = self.__dict__.setdefault("taken", Counter())
        granted = min(wanted, most - taken[tenant, minute])
        taken[tenant, minute] += granted
        return int(granted)

    monkeypatch.setattr(DynamoDbControlStore, "take_runs", take_runs)
    with pytest.raises(AssertionError, match="sent: "):
        explorer(TakeOverWithRates()).sample_kills(of=1)


class ReleaseAndTakeOver(ReleaseLease):
    """A standby steps as soon as the watcher has ended."""

    def act(self, stack: Stack) -> None:
        super().act(stack)
        standby = stack.watcher()
        standby.step()
        assert standby.holds, "the standby has to wait"


def test_a_worker_that_deletes_messages_before_handling_them(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = MessageBatch.carry_out

    def delete_first(batch: Any, messages: Any, **more: Any) -> Any:
        for message in messages:
            batch.done(message)
        return carry_out(batch, messages, **more)

    monkeypatch.setattr(MessageBatch, "carry_out", delete_first)
    assert explorer(Succeed()).first_lost(at="DeleteMessageBatch") is Fate.AFTER


def test_a_batch_that_names_only_the_first_failed_message(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = MessageBatch.carry_out

    def name_first(batch: Any, messages: Any, **more: Any) -> Any:
        return carry_out(batch, messages, **more)[:1]

    monkeypatch.setattr(MessageBatch, "carry_out", name_first)
    assert explorer(InTurn()).finds_a_fault()


def test_a_watcher_that_does_not_release_its_lease(
    explorer: Callable[[Flow], Explorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatcherLife, "end", lambda _: None)
    with pytest.raises(AssertionError, match="the standby has to wait"):
        explorer(ReleaseAndTakeOver()).sample_kills(of=1)


@pytest.mark.parametrize(
    "flow",
    [Dispatch(), ReleaseAndTakeOver(), InTurn()] if LONG else [Dispatch()],
    ids=lambda flow: type(flow).__name__,
)
def test_correct_code_survives_every_kill(explorer: Callable[[Flow], Explorer], flow: Flow) -> None:
    assert explorer(flow).first_lost() is None


def test_a_call_that_is_throttled_has_no_effect(
    stack_of_tests: Deployment, clock: TravelClock
) -> None:
    cloud = Cloud()
    stack = Stack(stack_of_tests, cloud, clock, Register().script, counted=True)
    stack.at("11:59")
    stack.register("first")
    cloud.expect()
    stack.register("whole")
    [write] = [number for number, call in enumerate(cloud.calls) if "Transact" in call.name]
    cloud.expect(Point(write, Fate.REFUSED))

    with pytest.raises(UnavailableError):
        stack.register("throttled")

    assert cloud.left == 0
    jobs = DynamoDbJobStore(stack_of_tests.database, table=stack_of_tests.jobs_table)
    assert jobs.get(job_key("whole")) is not None
    assert jobs.get(job_key("throttled")) is None
