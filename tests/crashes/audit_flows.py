"""The auditor's repairs, and the audit chain."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.domain.chain import Batch, verify
from nextfire.domain.change import ItemChange
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.usecases.record_changes import RecordChanges
from tests.crashes.flow import Flow, attempt, die, dispatch, lose_worker, watch
from tests.crashes.run_flows import BeginBackfill
from tests.crashes.stack import Stack
from tests.fakes import Script


class Audit(Flow):
    """The auditor is invoked until its audit is done."""

    until = "12:40"

    def lose(self, stack: Stack) -> None:
        raise NotImplementedError

    def prepare(self, stack: Stack) -> None:
        dispatch(stack, schedule="0 */6 * * *")
        self.lose(stack)
        watch(stack, "12:30:40")  # the cursor catches up

    def act(self, stack: Stack) -> None:
        report = stack.auditor()
        stack.answered = report if report.done else None

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            self.act(stack)

    def script(self, call: ScriptCall) -> Script:
        return Script(meanwhile=die) if attempt(call) == 1 and self.dies else Script()

    dies = False


class AuditEntry(Audit):
    name = "audit: a job without its entry"

    def lose(self, stack: Stack) -> None:
        stack.worker().work()
        (entry,) = stack.cloud.raw("due")
        key: Any = {name: entry[name] for name in ("bucket", "entry")}
        stack.system.database.delete_item(TableName="due", Key=key)


class AuditBackfill(Audit):
    name = "audit: a backfill without its entry"
    until = "12:00:40"

    def prepare(self, stack: Stack) -> None:
        stack.register()
        stack.at("11:59:40")
        BeginBackfill().ask(stack.api(), stack)
        (entry,) = [item for item in stack.cloud.items("due") if item["kind"] == "BACKFILL"]
        key: Any = {name: {"S": entry[name]} for name in ("bucket", "entry")}
        stack.system.database.delete_item(TableName="due", Key=key)
        watch(stack, "11:59:50")  # the cursor catches up

    def check(self, stack: Stack) -> None:
        assert stack.job().backfilling is None
        for time in ("09:00", "10:00", "11:00"):
            stack.assert_attempts(stack.run(time), 1)


class AuditMessage(Audit):
    name = "audit: a run without its message"

    def lose(self, stack: Stack) -> None:
        stack.purge()


class AuditRevive(Audit):
    name = "audit: a run without its worker"
    dies = True

    def lose(self, stack: Stack) -> None:
        lose_worker(stack)
        stack.purge()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        stack.assert_attempts(stack.run(), 2)


class AppendChanges(Flow):
    """The function dies while it appends; the stream delivers the batch again, with later changes,
    to another process. Each change is in the chain once.
    """

    name = "audit log: append changes"

    def script(self, call: ScriptCall) -> Script:
        raise AssertionError(call)

    def prepare(self, stack: Stack) -> None:
        self._deliver(stack, "a")

    def act(self, stack: Stack) -> None:
        self._deliver(stack, "b", "c")

    def repeat(self, stack: Stack) -> None:
        # Lambda delivers a batch again until an invocation succeeds.
        if stack.answered != "d":
            self._deliver(stack, "b", "c", "d")

    def check(self, stack: Stack) -> None:
        while stack.answered != "d":
            self._deliver(stack, "b", "c", "d")
        batch: Batch | None = self.log(stack).last()
        batches: list[Batch] = []
        while batch is not None:
            batches.insert(0, batch)
            before = batch.number - 1
            batch = self.log(stack).read(before) if before else None
        verify(batches)
        ids = [event["id"] for batch in batches for event in batch.events]
        assert ids == ["a", "b", "c", "d"]

    @staticmethod
    def log(stack: Stack) -> S3AuditLog:
        adapters = stack.process("auditlog")
        return S3AuditLog(adapters.process.s3, bucket=stack.system.outputs_bucket)

    def _deliver(self, stack: Stack, *ids: str) -> None:
        changes = [ItemChange(each, "jobs", "MODIFY", {"job_id": each}, stack.now) for each in ids]
        with suppress(UnavailableError):
            RecordChanges(self.log(stack), stack.clock).record(changes)
            stack.answered = ids[-1]
