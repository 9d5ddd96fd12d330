"""The adapters of a process, and the scripts and receivers that its executors call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from nextfire.adapters.aws.event_bus import EventBridgeEventBus
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.sqs.run_queue import SqsDeadLetters, SqsDelivery, SqsInbox, SqsRunQueue
from nextfire.adapters.worker.journal import HeldMessage
from nextfire.domain.log import Stream
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.domain.quotas import NO_QUOTAS
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.messages import Request, Response
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.script.runner import ScriptTarget
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.endpoint_gate import EndpointGate
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.return_held import Returned, ReturnHeld
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue, WakingRuns
from tests.builders import LEASE
from tests.crashes.names import POOL
from tests.crashes.process import Process
from tests.fakes import InlineExecutor, MemoryNotices, MemoryScriptRunner

if TYPE_CHECKING:
    from nextfire.targets.http.transport import Transport
    from tests.crashes.stack_records import StackRecords


JOB_ROLE = "arn:aws:iam::123456789012:role/jobs"


class _Runner:
    """`ScriptRunner` that plays the flow's script and reports each start to the stack."""

    def __init__(self, stack: StackRecords) -> None:
        self._stack = stack

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        execution_id = call.environment["NEXTFIRE_EXECUTION_ID"]
        self._stack.started(execution_id, supervisor.checkpoint())
        script = self._stack.script(call)
        if self._stack.meanwhile is not None:
            script.meanwhile, self._stack.meanwhile = self._stack.meanwhile, None
        runner = MemoryScriptRunner(self._stack.clock, deque([script]))
        witness = _Witness(
            supervisor, lambda saved: self._stack.saved.update({execution_id: saved})
        )
        return runner.run(call, witness)


class _Transport:
    """The transport of callbacks: the flow's receiver, which reports each request to the stack."""

    def __init__(self, stack: StackRecords) -> None:
        self._stack = stack

    def send(self, request: Request, **_: Any) -> Response:
        self._stack.started(request.headers["Nextfire-Execution-Id"], None)
        self._stack.sent.append(request.headers)
        return self._stack.respond(request, len(self._stack.sent))


class _Witness:
    """A `Supervisor` that reports each checkpoint whose save was acknowledged."""

    def __init__(self, supervisor: Supervisor, saved: Callable[[bytes], None]) -> None:
        self._supervisor = supervisor
        self._saved = saved

    def ask(self) -> Directive:
        return self._supervisor.ask()

    def output(self, stream: Stream, data: bytes) -> None:
        self._supervisor.output(stream, data)

    def checkpoint(self) -> bytes | None:
        return self._supervisor.checkpoint()

    def save(self, checkpoint: bytes) -> str | None:
        refused = self._supervisor.save(checkpoint)
        if refused is None:
            self._saved(checkpoint)
        return refused


class _Asleep:
    """A `Waker` whose events are all lost, and the notices about that."""

    def wake(self, group: int) -> None: ...

    def wake_up_lost(self, why: Exception) -> None: ...


class Adapters:
    """The adapters of a process."""

    def __init__(self, stack: StackRecords, process: Process) -> None:
        self.stack = stack
        self.process = process
        self.inline = InlineExecutor()
        self.clock = stack.clock
        system, database = stack.system, process.dynamodb
        due_table = system.due_table
        self.jobs = DynamoDbJobStore(database, table=system.jobs_table, due_table=due_table)
        self.due = DynamoDbDueStore(database, table=due_table, shards=1, executor=self.inline)
        self.runs = DynamoDbRunStore(
            database,
            table=system.runs_table,
            due_table=due_table,
            jobs_table=system.jobs_table,
        )
        self.control = DynamoDbControlStore(database, table=system.control_table)
        self.endpoints = DynamoDbEndpointStore(database, table=system.endpoints_table)
        self.joins = DynamoDbJoinStore(database, table=system.runs_table)

    def queue(self, pools: Collection[str] = (POOL,)) -> SqsRunQueue:
        queues = dict.fromkeys(pools, self.stack.system.queue_url)
        return SqsRunQueue(self.process.sqs, queues=queues, executor=self.inline)

    def auditor(self) -> AuditJobs:
        return AuditJobs(
            jobs=self.jobs,
            due=self.due,
            runs=self.runs,
            queue=self.queue(),
            control=self.control,
            joins=self.joins,
            clock=self.clock,
            executor=self.inline,
            pools=[POOL],
            write_shards=1,
            read_shards=1,
            every=timedelta(days=1),
        )

    @property
    def wake(self) -> WakeWatchers:
        """Reads the lease after each entry that is due soon. Flows start their watchers anyway."""
        return WakeWatchers(self.control, _Asleep(), self.clock, _Asleep(), shards=1, groups=1)

    def executor(self) -> ExecutorPorts:
        stack, system = self.stack, self.stack.system
        secrets = AwsSecrets(self.process.secrets, self.process.parameters, pool=POOL)
        scripts = ScriptTarget(
            scripts=S3ScriptStore(self.process.s3),
            bucket=system.bucket,
            runner=_Runner(stack),
            secrets=secrets,
            job_role=self._job_role() if stack.job_role else None,
            clock=self.clock,
        )
        callbacks = HttpTarget(
            transport=cast("Transport", _Transport(stack)),
            secrets=secrets,
            authentication=Authentication(secrets, None, None),
            clock=self.clock,
            gate=EndpointGate(self.endpoints, POOL, self.clock),
        )
        return ExecutorPorts(
            jobs=self.jobs,
            runs=cast("RunStore", WakingRuns(self.runs, self.wake)),
            due=cast("DueStore", WakingDue(self.due, self.wake)),
            files=S3RunFiles(self.process.s3, bucket=system.outputs_bucket),
            target=TargetsByKind({TargetKind.SCRIPT: scripts, TargetKind.HTTP: callbacks}),
            dead_letters=SqsDeadLetters(self.process.sqs, queue_url=system.dlq_url),
            events=EventBridgeEventBus(self.process.events, bus=system.event_bus),
            clock=self.clock,
            background=self.inline,
            joins=self.joins,
            queue=self.queue(),
            children=self.inline,
            quotas=NO_QUOTAS,
        )

    def watcher(self, pools: Collection[str]) -> WatcherPorts:
        return WatcherPorts(
            jobs=self.jobs,
            due=self.due,
            runs=self.runs,
            queue=self.queue(pools),
            control=self.control,
            clock=self.clock,
            executor=self.inline,
            lanes=self.inline,
        )

    def give_back(self, held: Sequence[HeldMessage]) -> Returned:
        notices, inbox, now = MemoryNotices(), self.inbox(), self.clock.now()
        url = self.stack.system.queue_url
        deliveries = [
            SqsDelivery(
                self.process.sqs,
                url,
                each.body,
                each.receipt_handle,
                each.message_id,
                each.group,
                each.token,
            )
            for each in held
        ]
        use_case = ReturnHeld(self.runs, inbox.show, self.clock, notices)
        polls_until = now + timedelta(seconds=2)
        returned = use_case.give_back(deliveries, polls_until=polls_until, until=now + LEASE)
        notices.assert_no_defect()
        return returned

    def inbox(self) -> SqsInbox:
        return SqsInbox(self.process.sqs, queue_url=self.stack.system.queue_url)

    def _job_role(self) -> StsJobRole:
        return _JobRole(
            self.process.sts, role_arn=JOB_ROLE, pool=POOL, environment={}, clock=self.clock
        )


class _JobRole(StsJobRole):
    """Without the server that provides credentials: no script here requests them."""

    def _address(self) -> str:
        return "http://127.0.0.1"
