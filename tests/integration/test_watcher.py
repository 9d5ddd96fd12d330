"""The watcher on moto: its steps on a clock moved by the tests, and its handler for two seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — what the SDK raises

from functions.watcher import handler as watcher
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey, run_id
from nextfire.domain.instants import cut, to_ms
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.control import Lease
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.watch import Watch
from nextfire.wiring import watcher_ports
from tests.builders import RUN_ALL, a_definition, a_fire, a_job, a_retry, at, job_key, run_key
from tests.fakes import Clock, InlineExecutor
from tests.integration.deployment import SHARDS, Context, Deployment, Proxy

SECOND = timedelta(seconds=1)


@dataclass
class Stand:
    """A deployment with watchers that a test steps, and the SDK clients that they use."""

    system: Deployment
    clock: Clock
    database: Proxy
    queues: Proxy
    watch: Watch = field(init=False)
    reports: list[TickReport] = field(default_factory=list)
    errors: list[UnavailableError] = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = Limits({"default": timedelta(minutes=14)}, self.system.bucket)
        unsent = FindUnsent(
            self.system.due,
            DynamoDbControlStore(self.system.database, table=self.system.control_table),
            read_shards=SHARDS,
        )
        self.jobs = ManageJobs(self.system.jobs, limits, unsent)
        self.watch = self.new_watch("first")

    def new_watch(self, holder: str) -> Watch:
        database: Any = self.database
        queues: Any = self.queues
        system = self.system
        control = DynamoDbControlStore(database, table=system.control_table)

        def dispatcher(lease: Lease) -> Dispatch:
            return Dispatch(
                jobs=DynamoDbJobStore(database, table=system.jobs_table),
                due=DynamoDbDueStore(
                    database, table=system.due_table, shards=SHARDS, executor=InlineExecutor()
                ),
                runs=DynamoDbRunStore(
                    database, table=system.runs_table, due_table=system.due_table, shards=SHARDS
                ),
                queue=SqsRunQueue(
                    queues, queues={"default": system.queue_url}, executor=InlineExecutor()
                ),
                control=control,
                clock=self.clock,
                executor=InlineExecutor(),
                lanes=InlineExecutor(),
                shards=range(SHARDS),
                epoch=lease.epoch,
                shares=Shares(backlogs={"default": 1_000}),
            )

        return Watch(HoldLease(control, group=0, holder=holder), dispatcher)

    def store(self, *jobs: Job) -> None:
        """Store *jobs*, each with its first due entry."""
        for job in jobs:
            first = job.next_after(job.effective_from)
            assert first is not None
            entry = a_fire(job, first)
            former = self.system.jobs.get(job.key)
            now = self.clock.now()
            assert self.system.jobs.create(job, entry, now, former=former) is None

    def put(self, *entries: DueEntry) -> None:
        assert self.system.due.put(entries, self.clock.now()) == set(entries)

    def go_to(self, until: datetime, *others: Watch) -> None:
        """Step the watch and *others* at the instants that they ask for, up to *until*."""
        again = {watch: self.clock.now() for watch in (self.watch, *others)}
        for _ in range(10_000):
            now = self.clock.now()
            for watch, again_at in again.items():
                if again_at > now:
                    continue
                try:
                    report, again[watch] = watch.step(now)
                except UnavailableError as error:
                    self.errors.append(error)
                    report, again[watch] = None, now + SECOND / 4
                if report is not None:
                    self.reports.append(report)
            if now >= until and min(again.values()) > now:
                return
            self.clock.move_to(max(now, min(until, *again.values())))
        raise AssertionError("the watcher never reaches the end")

    def received(self) -> list[RunMessage]:
        return [decode_message(message["Body"]) for message in self.system.receive()]

    def fires(self, job: Job) -> list[str]:
        """The sort keys of the FIRE entries of *job*, for all versions."""
        return sorted(
            item["entry"]["S"]
            for item in self.system.due_items()
            if item["job_id"]["S"] == job.key.job_id and item["bucket"]["S"] != "quarantine"
        )

    @property
    def notes(self) -> list[str]:
        return [note for report in self.reports for note in report.notes]

    @property
    def lateness(self) -> list[timedelta]:
        return [run.lateness for report in self.reports for run in report.dispatched]


@pytest.fixture
def stand(system: Deployment) -> Stand:
    return Stand(system, Clock(at("11:59:57")), Proxy(system.database), Proxy(system.queues))


def minutely(job_id: str = "report", since: str = "11:59:30", **more: Any) -> Job:
    """A job that is due each minute, with its own uid."""
    uid = f"{job_id.replace('-', ''):0>8}"
    return a_job(job_id, schedule="* * * * *", since=at(since), **{"uid": uid} | more)


def refusal(code: str) -> Callable[..., Any]:
    """Answers an operation with the error *code*."""

    def refuse(_real: object, _request: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": code}}, "Operation")

    return refuse


def once(proxy: Proxy, operation: str, do: Callable[..., Any]) -> None:
    """Replace the next call of *operation* with *do*."""

    def first(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        del proxy.instead[operation]
        return do(real, request)

    proxy.instead[operation] = first


def run_ids(job: Job, *times: str) -> list[str]:
    return [run_id(job.uid, at(time)) for time in times]


class TestDispatch:
    def test_each_occurrence_is_sent_once_and_on_the_instant(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)

        stand.go_to(at("12:02:02"))

        messages = stand.received()
        assert [m.run_id for m in messages] == run_ids(job, "12:00", "12:01", "12:02")
        assert {(m.tenant, m.job_id, m.dispatch) for m in messages} == {("acme", "report", 1)}
        assert max(stand.lateness) == timedelta()
        assert stand.fires(job) == [a_fire(job, at("12:03")).sort_key]

    def test_message_groups_and_deduplication_are_the_runs_own(self, stand: Stand) -> None:
        stand.store(minutely(), minutely(tenant="other"))

        stand.go_to(at("12:01:00"))

        attributes = [message["Attributes"] for message in stand.system.receive()]
        assert len(attributes) == 4
        for name in ("MessageGroupId", "MessageDeduplicationId"):
            assert len({attribute[name] for attribute in attributes}) == 4

    def test_entries_due_while_no_watcher_ran_are_sent(self, stand: Stand) -> None:
        job = minutely(since="11:49:30", misfire=RUN_ALL)
        stand.clock.move_to(at("11:49:30"))
        stand.store(job)
        stand.clock.move_to(at("11:58:30"))

        stand.go_to(at("11:58:36"))

        assert [m.run_id for m in stand.received()] == [
            run_id(job.uid, at("11:50") + n * 60 * SECOND) for n in range(9)
        ]
        assert stand.fires(job) == [a_fire(job, at("11:59")).sort_key]

    def test_job_that_was_not_read_is_not_taken_for_deleted(self, stand: Stand) -> None:
        """Its entry is overdue by more than the age at which an orphan is dropped."""
        job = minutely(since="11:57:30", misfire=RUN_ALL)
        stand.clock.move_to(at("11:57:30"))
        stand.store(job)
        stand.clock.move_to(at("11:59:30"))

        throttled = [True] * 7  # five requests in a row fail a read

        def nothing_read(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            if stand.system.jobs_table in request["RequestItems"] and throttled:
                throttled.pop()
                return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}
            return real(**request)

        stand.database.instead["batch_get_item"] = nothing_read

        stand.go_to(at("11:59:33"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "11:58", "11:59")
        assert stand.fires(job) == [a_fire(job, at("12:00")).sort_key]

    def test_more_than_a_hundred_of_one_second(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(105)]
        stand.store(*jobs)

        stand.go_to(at("12:00:05"))

        assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}
        assert sorted(item["entry"]["S"] for item in stand.system.due_items()) == sorted(
            a_fire(job, at("12:01")).sort_key for job in jobs
        )

    def test_more_than_a_page_of_entries(self, stand: Stand) -> None:
        key = job_key()
        retries = [a_retry(run_key(at("11:00") + n * SECOND), at("12:00")) for n in range(120)]
        for entry in retries:
            item = entry_item(entry, stand.clock.now(), SHARDS) | {"pad": {"S": "x" * 10_000}}
            stand.system.database.put_item(TableName=stand.system.due_table, Item=item)
        bucket = retries[0].bucket(stand.clock.now(), SHARDS)

        stand.go_to(at("12:00:01"))

        further = [
            request
            for name, request in stand.database.calls
            if name == "query" and "ExclusiveStartKey" in request
        ]
        assert bucket in {
            request["ExpressionAttributeValues"][":bucket"]["S"] for request in further
        }
        assert {m.run_id for m in stand.received()} == {entry.run_id for entry in retries}
        assert stand.fires(a_job(key.job_id)) == []

    def test_retry_is_sent_with_its_own_dispatch_number(self, stand: Stand) -> None:
        run = run_key(at("11:59"))
        stand.put(a_retry(run, at("12:00:00.250"), dispatch=3))

        stand.go_to(at("12:00:01"))

        [message] = stand.received()
        assert (message.key, message.dispatch) == (run, 3)
        assert stand.lateness == [timedelta()]
        assert stand.system.due_items() == []


class TestTwoWatchers:
    def test_two_on_one_lease_send_each_run_once(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        second = stand.new_watch("second")

        stand.go_to(at("12:01:01"), second)

        sent = [name for name, _ in stand.queues.calls if name.startswith("send_message")]
        assert len(sent) == 2, "FIFO deduplication would hide double sends"
        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
        assert stand.watch.holds != second.holds

    def test_standby_takes_over_from_a_killed_holder_within_four_seconds(
        self, stand: Stand
    ) -> None:
        job = minutely()
        stand.store(job)
        second = stand.new_watch("second")
        stand.go_to(at("11:59:59.9"), second)
        dead, stand.watch = stand.watch, second
        assert dead.holds

        stand.go_to(at("12:00:05"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
        [lateness] = stand.lateness
        assert lateness <= timedelta(seconds=4)

    def test_holder_that_slept_sends_nothing_twice_in_effect(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        second = stand.new_watch("second")
        stand.go_to(at("11:59:59.9"), second)
        sleeper, stand.watch = stand.watch, second
        stand.go_to(at("12:00:10"))

        stand.go_to(at("12:00:20"), sleeper)

        assert not sleeper.holds
        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
        assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]

    def test_lease_that_is_let_go_passes_on_at_once(self, stand: Stand) -> None:
        second = stand.new_watch("second")
        stand.go_to(at("11:59:58"), second)
        stand.watch.end()
        stand.watch = second

        stand.go_to(at("11:59:58.5"))

        assert second.holds


class TestPartialFailures:
    def test_message_that_was_refused_is_sent_by_a_later_tick(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(8)]
        stand.store(*jobs)

        def half(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            entries = request["Entries"]
            answer = real(**request | {"Entries": entries[::2]})
            failed = [
                {"Id": e["Id"], "Code": "InternalError", "SenderFault": False}
                for e in entries[1::2]
            ]
            return answer | {"Failed": failed}

        once(stand.queues, "send_message_batch", half)
        stand.go_to(at("12:00:00.4"))
        assert len(stand.received()) == 4
        # Neither sent nor deleted: those four entries stay in their buckets.
        assert sum(a_fire(job, at("12:00")).sort_key in stand.fires(job) for job in jobs) == 4

        stand.go_to(at("12:00:04"))

        assert len(stand.received()) == 4
        sent = Counter(each.run.execution_id for r in stand.reports for each in r.dispatched)
        assert sent == {f"{j.key.job_id}.{run_id(j.uid, at('12:00'))}": 1 for j in jobs}
        assert [stand.fires(job) for job in jobs] == [
            [a_fire(job, at("12:01")).sort_key] for job in jobs
        ]

    def test_successor_that_was_not_processed_is_stored_by_a_later_tick(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(8)]
        stand.store(*jobs)

        def half(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            [(table, writes)] = request["RequestItems"].items()
            assert all("PutRequest" in write for write in writes), "puts go before deletes"
            answer = real(RequestItems={table: writes[::2]})
            return answer | {"UnprocessedItems": {table: writes[1::2]}}

        once(stand.database, "batch_write_item", half)
        stand.go_to(at("12:00:00.4"))
        kept = [job for job in jobs if a_fire(job, at("12:00")).sort_key in stand.fires(job)]
        stored = [job for job in jobs if a_fire(job, at("12:01")).sort_key in stand.fires(job)]
        assert (len(kept), len(stored)) == (4, 4)
        assert {job.key for job in kept}.isdisjoint(job.key for job in stored)

        stand.go_to(at("12:00:04"))

        assert [stand.fires(job) for job in jobs] == [
            [a_fire(job, at("12:01")).sort_key] for job in jobs
        ]
        assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}

    def test_delete_that_was_not_processed_is_made_up_for(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(4)]
        stand.store(*jobs)

        def nothing_deleted(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            [(table, writes)] = request["RequestItems"].items()
            if "PutRequest" in writes[0]:
                once(stand.database, "batch_write_item", nothing_deleted)
                return real(**request)
            return {"UnprocessedItems": {table: writes}}

        once(stand.database, "batch_write_item", nothing_deleted)

        stand.go_to(at("12:00:50"))

        assert Counter(m.job_id for m in stand.received()) == {job.key.job_id: 1 for job in jobs}
        assert [stand.fires(job) for job in jobs] == [
            [a_fire(job, at("12:01")).sort_key] for job in jobs
        ]

    def test_one_bad_message_does_not_keep_its_batch(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(5)]
        stand.store(*jobs)

        def refuse_one(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            # SQS rejects the whole request if one entry is too long or has an invalid character.
            if '"job-3"' in str(request):
                refusal("AWS.SimpleQueueService.BatchRequestTooLong")(real, request)
            return real(**request)

        stand.queues.instead["send_message_batch"] = refuse_one
        stand.queues.instead["send_message"] = refuse_one

        stand.go_to(at("12:00:04"))

        assert {m.job_id for m in stand.received()} == {"job-0", "job-1", "job-2", "job-4"}
        assert a_fire(jobs[3], at("12:00")).sort_key in stand.fires(jobs[3])
        assert any("not sent, stays" in note for note in stand.notes)

    @pytest.mark.parametrize(
        ("code", "calls", "done_at"),
        [("ValidationException", None, "12:00:00.4"), ("InternalServerError", 1, "12:00:04")],
    )
    def test_batch_of_writes_refused_whole_is_written_one_by_one_or_later(
        self, stand: Stand, code: str, calls: int | None, done_at: str
    ) -> None:
        """A fault of one entry does not affect the others; if the service is at fault, more
        requests would make it worse.
        """
        jobs = [minutely(f"job-{n}") for n in range(5)]
        stand.store(*jobs)
        real = refusal(code)
        refused: list[None] = []

        def refuse(request: Any, parameters: dict[str, Any]) -> Any:
            if calls is not None and len(refused) == calls:
                return request(**parameters)
            refused.append(None)
            return real(request, parameters)

        stand.database.instead["batch_write_item"] = refuse

        stand.go_to(at(done_at))

        assert [stand.fires(job) for job in jobs] == [
            [a_fire(job, at("12:01")).sort_key] for job in jobs
        ]
        assert len(stand.received()) == 5

    def test_one_bad_write_does_not_keep_its_batch(self, stand: Stand) -> None:
        jobs = [minutely(f"job-{n}") for n in range(5)]
        stand.store(*jobs)

        def refuse_one(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            if "'job-3'" in str(request):
                refusal("ValidationException")(real, request)
            return real(**request)

        stand.database.instead["batch_write_item"] = refuse_one
        stand.database.instead["put_item"] = refuse_one

        stand.go_to(at("12:00:03"))

        # Sent, but without a successor: the entry stays, so that its chain continues.
        assert stand.fires(jobs[3]) == [a_fire(jobs[3], at("12:00")).sort_key]
        others = [job for job in jobs if job is not jobs[3]]
        assert [stand.fires(job) for job in others] == [
            [a_fire(job, at("12:01")).sort_key] for job in others
        ]
        assert len(stand.received()) == 5

    def test_an_entry_of_a_removed_pool_stays_and_blocks_nothing(self, stand: Stand) -> None:
        target = {"pool": "gone", "handler": "report"}
        lost, fine = minutely("lost", target=target), minutely("fine")
        stand.store(lost, fine)

        stand.go_to(at("12:00:04"))

        assert [m.job_id for m in stand.received()] == ["fine"]
        assert a_fire(lost, at("12:00")).sort_key in stand.fires(lost)


class TestChanges:
    @pytest.mark.parametrize(
        ("changed_at", "old_entry_fires"),
        [("11:59:59.999", False), ("12:00:00", True), ("12:00:00.001", True)],
    )
    def test_schedule_changed_in_the_second_it_is_due(
        self, stand: Stand, changed_at: str, *, old_entry_fires: bool
    ) -> None:
        job = minutely()
        stand.store(job)
        stand.go_to(at("11:59:59.5"))
        stand.clock.move_to(at(changed_at))

        def edit(_: object) -> Any:
            return a_definition("*/2 * * * *", timezone="Europe/Berlin")

        changed = stand.jobs.change(job.key, edit, now=stand.clock.now())
        stand.go_to(at("12:02:05"))

        # 12:00 belongs to the old schedule, or to the new one if changed earlier: one run either
        # way.
        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:02")
        assert stand.fires(job) == [a_fire(changed, at("12:04")).sort_key]
        reasons = [run.reason for report in stand.reports for run in report.dispatched]
        assert any("before the change" in reason for reason in reasons) is old_entry_fires

    def test_payload_changed_in_the_second_it_is_due(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        stand.go_to(at("11:59:59.5"))
        definition = job.definition.model_copy(update={"payload": {"new": True}})
        stand.clock.move_to(at("12:00:00"))
        stand.jobs.change(job.key, lambda _: definition, now=stand.clock.now())

        stand.go_to(at("12:01:00"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
        assert stand.fires(job) == [a_fire(job, at("12:02")).sort_key]

    def test_change_that_the_watcher_does_not_see_yet_is_not_dropped(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        table, key = stand.system.jobs_table, {"tenant": job.key.tenant, "job_id": job.key.job_id}
        before = stand.system.database.get_item(TableName=table, Key=to_item(key))["Item"]
        definition = a_definition("* * * * *", timezone="Europe/Berlin")
        changed = stand.jobs.change(job.key, lambda _: definition, now=at("11:59:56"))
        assert changed.schedule_version > job.schedule_version

        def stale_jobs(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            # An eventually consistent read still shows the old job.
            if table in request["RequestItems"]:
                return {"Responses": {table: [before]}, "UnprocessedKeys": {}}
            once(stand.database, "batch_get_item", stale_jobs)  # this call reads cursors
            return real(**request)

        once(stand.database, "batch_get_item", stale_jobs)

        stand.go_to(at("12:01:01"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
        assert stand.fires(job) == [a_fire(changed, at("12:02")).sort_key]

    def test_job_changed_while_its_run_is_queued(self, stand: Stand) -> None:
        stand.system.upload("import sys; print(sys.stdin.read())", "report", tenant="acme")
        job = minutely(payload={"old": 1})
        stand.store(job)
        stand.go_to(at("12:00:01"))
        definition = job.definition.model_copy(update={"payload": {"new": 1}})
        changed = stand.jobs.change(job.key, lambda _: definition, now=stand.clock.now())
        [message] = stand.system.receive()

        assert stand.system.execute([message]) == set()

        run = stand.system.run(decode_message(message["Body"]))
        assert run.job_revision == changed.revision == 2
        assert run.stdout == '{"new": 1}\n'

    def test_deleted_job_fires_no_more(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        stand.go_to(at("12:00:01"))
        stand.jobs.delete(job.key, now=stand.clock.now())

        stand.go_to(at("12:01:05"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
        assert stand.fires(job) == []
        assert any("dropped" in note and "replaced" in note for note in stand.notes)

    def test_job_deleted_and_made_again_has_one_chain(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        stand.go_to(at("12:00:30"))
        stand.jobs.delete(job.key, now=at("12:00:20"))
        again = minutely(since="12:00:25", uid="uid00002")
        stand.store(again)

        stand.go_to(at("12:02:05"))

        assert [m.run_id for m in stand.received()] == [
            *run_ids(job, "12:00"),
            *run_ids(again, "12:01", "12:02"),
        ]
        assert stand.fires(again) == [a_fire(again, at("12:03")).sort_key]

    def test_job_made_again_in_the_second_it_is_due_has_its_past_put_on_record(
        self, stand: Stand
    ) -> None:
        """The executor does not find the former job: the run is CANCELLED, and nothing runs."""
        job = minutely()
        stand.store(job)
        stand.go_to(at("11:59:59.5"))
        stand.jobs.delete(job.key, now=at("11:59:59.9"))
        stand.clock.move_to(at("12:00:00.1"))
        again = minutely(since="12:00:00.1", uid="uid00002")
        stand.store(again)

        stand.go_to(at("12:01:02"))

        assert [m.run_id for m in stand.received()] == [
            *run_ids(job, "12:00"),
            *run_ids(again, "12:01"),
        ]
        assert stand.fires(again) == [a_fire(again, at("12:02")).sort_key]

    def test_job_completed_by_hand_of_the_executor_ends_its_chain(self, stand: Stand) -> None:
        job = a_job(type="ONCE", schedule="2026-05-24T12:00:00Z", since=at("11:59:30"))
        stand.system.upload("", "report", tenant="acme")
        stand.store(job)
        stand.go_to(at("12:00:01"))

        assert stand.system.execute(stand.system.receive()) == set()

        done = stand.system.jobs.get(job.key)
        assert done is not None
        assert done.state is JobState.COMPLETED
        assert stand.system.due_items() == []


class TestBrokenItems:
    def spoil(self, stand: Stand, job: Job, **values: str) -> None:
        entry = a_fire(job, at("12:00"))
        item = entry_item(entry, stand.clock.now(), SHARDS)
        item |= {name: {"S": value} for name, value in values.items()}
        stand.system.database.put_item(TableName=stand.system.due_table, Item=item)

    def test_broken_entry_is_set_aside_and_its_chain_goes_on(self, stand: Stand) -> None:
        broken, fine = minutely("broken"), minutely("fine")
        stand.store(broken, fine)
        self.spoil(stand, broken, kind="NOTHING")

        stand.go_to(at("12:01:01"))

        quarantined = [i for i in stand.system.due_items() if i["bucket"]["S"] == "quarantine"]
        [item] = quarantined
        assert "NOTHING" in item["error"]["S"]
        assert (item["kind"]["S"], item["job_id"]["S"]) == ("NOTHING", "broken")
        assert sum(report.quarantined for report in stand.reports) == 1
        assert Counter(m.job_id for m in stand.received()) == {"broken": 2, "fine": 2}
        assert stand.fires(broken) == [a_fire(broken, at("12:02")).sort_key]

    def test_an_orphaned_broken_entry_blocks_nothing(self, stand: Stand) -> None:
        fine = minutely("fine")
        stand.store(fine)
        item = entry_item(a_fire(fine, at("12:00")), stand.clock.now(), SHARDS)
        for key in (f"{to_ms(at('12:00'))}#rubbish", "9#", "rubbish", "~"):
            orphan = {"bucket": item["bucket"], "entry": {"S": key}}
            stand.system.database.put_item(TableName=stand.system.due_table, Item=orphan)

        stand.go_to(at("12:01:35"))

        assert [m.run_id for m in stand.received()] == run_ids(fine, "12:00", "12:01")
        items = stand.system.due_items()
        assert Counter(item["bucket"]["S"] == "quarantine" for item in items) == {
            True: 4,
            False: 1,
        }

    def test_broken_job_keeps_its_entry_and_blocks_nothing(self, stand: Stand) -> None:
        broken, fine = minutely("broken"), minutely("fine")
        stand.store(broken, fine)
        key: Any = {"tenant": {"S": "acme"}, "job_id": {"S": "broken"}}
        table = stand.system.jobs_table
        item: Any = stand.system.database.get_item(TableName=table, Key=key)["Item"]
        spoilt = item | {"definition": {"S": "{"}}
        stand.system.database.put_item(TableName=table, Item=spoilt)

        stand.go_to(at("12:00:10"))

        assert [m.job_id for m in stand.received()] == ["fine"]
        assert stand.fires(broken) == [a_fire(broken, at("12:00")).sort_key]
        assert sum(report.quarantined for report in stand.reports) == 1
        assert any("cannot decide" in note for note in stand.notes)

        stand.system.database.put_item(TableName=table, Item=item)
        stand.go_to(at("12:01:30"))

        runs = [m.run_id for m in stand.received() if m.job_id == "broken"]
        assert runs == run_ids(broken, "12:00", "12:01"), "its runs continue once repaired"


class TestTrouble:
    @pytest.mark.parametrize("operation", ["query", "batch_get_item", "get_item"])
    def test_throttled_store_delays_and_loses_nothing(self, stand: Stand, operation: str) -> None:
        job = minutely()
        stand.store(job)
        stand.go_to(at("11:59:59.4"))
        throttle = refusal("ProvisionedThroughputExceededException")
        stand.database.instead[operation] = throttle
        stand.go_to(at("12:00:01"))
        del stand.database.instead[operation]

        stand.go_to(at("12:00:04"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
        assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]
        if operation != "get_item":  # consistent reads happen only if nothing is sent
            assert stand.errors

    def test_holder_that_cannot_renew_stops_sending(self, stand: Stand) -> None:
        stand.clock.move_to(at("11:59:52"))
        stand.store(minutely())
        stand.go_to(at("11:59:53"))
        stand.database.instead["put_item"] = refusal("InternalServerError")

        stand.go_to(at("12:00:10"))

        assert not stand.watch.holds
        assert stand.received() == []

    def test_queue_that_does_not_answer_delays_and_loses_nothing(self, stand: Stand) -> None:
        job = minutely()
        stand.store(job)
        for operation in ("send_message_batch", "send_message"):
            stand.queues.instead[operation] = refusal("ServiceUnavailable")
        stand.go_to(at("12:00:01"))
        assert a_fire(job, at("12:00")).sort_key in stand.fires(job)
        stand.queues.instead.clear()

        stand.go_to(at("12:00:04"))

        assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
        assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]


def test_cursor_passes_what_is_done_and_what_must_wait_comes_along(stand: Stand) -> None:
    stuck = minutely("stuck", target={"pool": "gone", "handler": "report"}, misfire=RUN_ALL)
    stand.store(stuck)
    control = DynamoDbControlStore(stand.system.database, table=stand.system.control_table)

    stand.go_to(at("12:02:40"))

    cursors = control.cursors(range(SHARDS))
    assert set(cursors.values()) == {at("12:02")}
    assert a_fire(stuck, at("12:00")).sort_key in stand.fires(stuck)
    minutes = {item["bucket"]["S"].partition("T")[2][:5] for item in stand.system.due_items()}
    assert minutes == {"12:02"}, "a chain has one end"


def test_handlers_of_two_groups_share_the_shards(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, groups="2", life="PT2S")
    now = cut(SystemClock().now())
    jobs = {f"job-{n}": system.register(jobId=f"job-{n}", schedule="0 0 1 1 *") for n in range(8)}
    assert {JobKey(job.key.tenant, job_id).shard(SHARDS) for job_id, job in jobs.items()} == {
        *range(SHARDS)
    }
    due_at = now + SECOND
    system.due.put({a_fire(job, due_at) for job in jobs.values()}, now)

    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda group: watcher.handler({"group": group}, Context()), range(2))
        )

    received = [decode_message(message["Body"]) for message in system.receive()]
    assert Counter(message.job_id for message in received) == dict.fromkeys(jobs, 1)
    assert sum(answer["dispatched"] for answer in answers) == 8
    assert all(answer["dispatched"] for answer in answers)
    assert all(message.dispatched_at >= due_at for message in received)
    control = DynamoDbControlStore(system.database, table=system.control_table)
    for group in range(2):
        lease = control.lease(group)
        assert lease is not None
        assert lease.released, "the next invocation must not have to wait for its expiry"


def test_a_group_that_does_not_exist_is_not_watched(system: Deployment) -> None:
    job = system.register(jobId="a", schedule="0 0 1 1 *")
    now = cut(SystemClock().now())
    system.due.put([a_fire(job, now)], now)

    assert watcher.handler({"group": 7}, Context()) == {"dispatched": 0}
    assert system.receive() == []


def test_handler_outlives_a_store_that_does_not_answer(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, life="PT1.2S")
    job = system.register(jobId="a", schedule="0 0 1 1 *")
    now = cut(SystemClock().now())
    system.due.put([a_fire(job, now + SECOND / 2)], now)
    proxy = Proxy(system.database)
    once(proxy, "query", refusal("ThrottlingException"))
    monkeypatch.setattr(watcher_ports, "dynamodb", lambda: proxy)

    assert watcher.handler({"group": 0}, Context()) == {"dispatched": 1}

    assert len(system.receive()) == 1
