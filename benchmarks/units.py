"""The cost of a recurring run in DynamoDB units and SQS and S3 requests: dispatch and execution."""

from __future__ import annotations

from datetime import datetime, timedelta

from benchmarks.meter import Meter, Tally
from benchmarks.report import Result, progress, tell
from benchmarks.simulated import SimulatedClock, drive, new_watch, next_hour
from benchmarks.stack import Stack
from benchmarks.stack import stack as running_stack
from nextfire.domain.attempt import AttemptOutcome
from nextfire.usecases.handled import Handled
from nextfire.usecases.message_batch import MessageBatch

TOGETHER = 100
_BATCH = 10
_MINUTE = timedelta(minutes=1)
_HALF = timedelta(seconds=30)
_WARM_UP = timedelta(seconds=10)
_APART = timedelta(hours=1)
SCRIPT = b"print('hello')\n"
_BOUNDS = {"write_units": 4.0, "read_units": 2.0, "sqs_sends": 0.1}


def measure() -> Result:
    """Simulate an idle minute of a lease holder and a minute in which runs are due. The difference
    is the cost of their dispatch. Then execute the messages of the queue.
    """
    result = Result()
    with running_stack(watcher=False) as stack:
        stack.push_script("instant", SCRIPT)
        for runs, prefix in ((TOGETHER, ""), (1, "lonely_")):
            stack.become_watcher()
            meter = Meter()
            due_at = next_hour() + (runs == 1) * _APART
            idle, busy = minutes(stack, meter, due_at, runs)
            stack.become_worker()
            executed = _carry_out(Meter(), runs)
            _add(result, busy - idle, executed, runs, prefix)
            _explain(result, f"{runs} due together" if runs > 1 else "1 alone", idle, busy)
            calls = ", ".join(f"{n} {call}" for call, n in executed.calls.most_common())
            result.notes.append(f"{runs} executed: {calls}")
    result.notes.append(
        "Dispatch: the put of the successor, the delete of the entry, the reads of both and of "
        "the job, the message. Execution: receive, job, claim, script, outcome, acknowledgement, "
        "by the parts of the worker in one thread; the scripts end immediately. Write units are as "
        "the answers report them; read units are computed from the items in the answers. The "
        "cost of a "
        "minute of polling is subtracted. A run that takes longer than 4 s costs another half "
        "read unit "
        "every 4 s, and with the default lease a write unit and a visibility request every 20 s."
    )
    return result


def minutes(stack: Stack, meter: Meter, due_at: datetime, runs: int) -> tuple[Tally, Tally]:
    """The tallies of an idle minute of a lease holder, and of a minute in the middle of which
    *runs* hourly jobs are due.
    """
    idle_from, busy_from = due_at - _HALF - _MINUTE, due_at - _HALF
    registrar = stack.registrar()
    cron = f"{due_at.minute} {due_at.hour} * * *"
    for number in range(runs):
        document = {"type": "CRON", "schedule": cron}
        registrar.register(f"units-{due_at:%H%M}-{number}", document, due_at - timedelta(hours=1))
    tell(f"simulating two minutes, {runs} runs due")
    clock = SimulatedClock(idle_from - _WARM_UP)
    watch = new_watch(clock)
    drive([watch], clock, idle_from)
    meter.take()
    drive([watch], clock, busy_from)
    idle = meter.take()
    dispatched = drive([watch], clock, busy_from + _MINUTE)
    busy = meter.take()
    watch.end()
    if dispatched != runs:
        raise RuntimeError(f"{dispatched} runs were dispatched, not {runs}")
    return idle, busy


class Outcomes:
    """`MessageNotices` that counts outcomes."""

    def __init__(self) -> None:
        self.succeeded = 0

    def handled(self, handled: Handled) -> None:
        self.succeeded += handled.outcome is AttemptOutcome.SUCCEEDED

    def wake_up_lost(self, why: Exception) -> None:
        raise RuntimeError from why

    def warn(self, what: str, why: Exception | str) -> None:
        raise RuntimeError(f"{what}: {why}")

    fail = warn


def _carry_out(meter: Meter, runs: int) -> Tally:
    """The tally of executing the *runs* runs in the queue."""
    # Imported here because these modules read the environment, which must be a worker's by now.
    from nextfire.adapters.aws.clients import sqs  # noqa: PLC0415
    from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox  # noqa: PLC0415
    from nextfire.settings import ExecutorSettings  # noqa: PLC0415
    from nextfire.usecases.execute_run import ExecuteRun  # noqa: PLC0415
    from nextfire.wiring.execution import executor_config, executor_ports  # noqa: PLC0415

    settings = ExecutorSettings.read()
    config, outcomes = executor_config(settings, worker="benchmark"), Outcomes()
    execute_run = ExecuteRun(executor_ports(settings, outcomes), config)
    batch: MessageBatch[SqsDelivery] = MessageBatch(execute_run, outcomes)
    inbox = SqsInbox(sqs(), queue_url=settings.queue_url)
    meter.take()
    for _ in progress(range(-(-runs // _BATCH)), f"executing {runs} runs"):
        received = inbox.receive(_BATCH, wait=timedelta(), hidden_for=settings.lease)
        batch.carry_out(received, stopping=lambda: False)
        inbox.acknowledge(received)
    if outcomes.succeeded != runs:
        raise RuntimeError(f"{outcomes.succeeded} runs succeeded, not {runs}")
    return meter.take()


def _add(result: Result, sent: Tally, executed: Tally, runs: int, prefix: str) -> None:
    together = f"{runs} due together" if runs > 1 else "one alone"
    for what, dispatch, execution in (
        ("write_units", sent.write_units, executed.write_units),
        ("read_units", sent.read_units, executed.read_units),
        ("sqs_sends", _sqs(sent, "SendMessageBatch", "SendMessage"), 0),
        ("sqs_receives", 0, _sqs(executed, "ReceiveMessage")),
        ("sqs_visibility", 0, _sqs(executed, "ChangeMessageVisibility")),
        ("sqs_deletes", 0, _sqs(executed, "DeleteMessage", "DeleteMessageBatch")),
        ("s3_requests", 0, executed.of("s3")),
    ):
        text = f"{what.replace('_', ' ')} per run, {together}"
        bound = None if prefix else _BOUNDS.get(what)
        result.add(f"{prefix}{what}_per_run", text, (dispatch + execution) / runs, most=bound)


def _sqs(tally: Tally, *operations: str) -> int:
    return sum(tally.calls[f"sqs {operation}"] for operation in operations)


def _explain(result: Result, what: str, idle: Tally, busy: Tally) -> None:
    for name, tally in (("idle minute before", idle), ("minute with them", busy)):
        calls = ", ".join(f"{count} {call.split()[1]}" for call, count in tally.calls.most_common())
        result.notes.append(
            f"{what}, {name}: {tally.write_units:g} write units, {tally.read_units:g} read units; "
            f"{calls}"
        )
