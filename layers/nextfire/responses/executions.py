"""Responses about executions, their attempts and logs. The code calls executions runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from nextfire.domain.attempt import Attempt, AttemptOutcome
from nextfire.domain.cancel_plan import CancelAction
from nextfire.domain.ids import RunKey
from nextfire.domain.redrive_plan import RedriveAction
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.domain.run_graph import MAX_PARENTS_SHOWN, MAX_REASONS_SHOWN, NodeLimit, RunNode
from nextfire.responses.base import UNREADABLE, ApiResponse, Json, field, one_line
from nextfire.responses.watchers import WatcherResponse


class Covered(ApiResponse):
    """Range of occurrences that one record covers: the first, the last, and their number."""

    from_: datetime = field(lambda run: run.key.scheduled_at)
    to: datetime = field(lambda run: run.covered_to)
    count: int = field(lambda run: run.covered)


def _logs(attempt: Attempt, run: Run) -> str | None:
    if not attempt.may_have_parts:
        return None  # the only copy is on the record
    return f"/v1/executions/{run.key.execution_id}/logs?attempt={attempt.number}"


class AttemptResponse(ApiResponse):
    """An attempt. `scriptSha256`: digest of the script that was fetched. `call`: what an HTTP
    callback or AWS call sent and received, for the latest attempts. `logs`: where to read the full
    output, unless the only copy is on the record.
    """

    # of(attempt, run)
    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: AttemptOutcome | None
    exit_code: int | None
    reason: str | None
    script_sha256: str | None
    call: JsonValue | None = field(
        lambda attempt, _: None if attempt.call is None else Json(json.loads(attempt.call))
    )
    logs: str | None = field(_logs)


def _is_cancelling(run: Run) -> bool:
    return run.state is RunState.RUNNING and run.cancel_requested


class ExecutionResponse(ApiResponse):
    """An execution. `startedAt` and `exitCode` belong to its latest attempt. A pending occurrence
    without a record has only a few of these fields.
    """

    # of(run, result or None)
    execution_id: str = field(lambda run, *_: run.key.execution_id)
    job_id: str = field(lambda run, *_: run.key.job.job_id)
    state: RunState
    trigger: Trigger | None = field(
        description="What created the execution. Absent before the first record."
    )
    request_reason: str | None = field(description="Reason given in the request.")
    scheduled_at: datetime = field(lambda run, *_: run.key.scheduled_at)
    range: Covered | None = field(lambda run, *_: Covered.of(run) if run.covered_to else None)
    dispatched_at: datetime | None
    dispatch_reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    retry_at: datetime | None = field(lambda run, *_: run.not_before)
    pool: str | None
    dispatch: int | None
    attempt: int | None
    attempts_before_redrive: int | None = field(lambda run, *_: run.attempt_base or None)
    worker: str | None
    job_revision: int | None
    exit_code: int | None
    reason: str | None
    cancel_requested: bool | None = field(lambda run, *_: _is_cancelling(run) or None)
    cancel_reason: str | None = field(
        lambda run, *_: run.cancel_reason if run.state is RunState.RUNNING else None
    )
    stdout: str | None
    stderr: str | None
    result_bytes: int | None = field(lambda run, *_: run.result and run.result.size)
    checkpoint_bytes: int | None = field(lambda run, *_: run.checkpoint and run.checkpoint.size)
    attempts: list[AttemptResponse] | None = field(
        lambda run, *_: [AttemptResponse.of(each, run) for each in run.attempts]
    )
    payload: JsonValue | None = field(
        lambda run, *_: None if run.payload is None else Json(json.loads(run.payload)),
        description="Payload that replaces that of the job.",
    )
    replay_of: str | None = field(
        lambda run, *_: run.replay_of and run.shown.key.execution_id,
        description="Execution whose request it sends again.",
    )
    result: JsonValue | None = field(lambda _, result=None: result)

    @classmethod
    def of_pending(cls, key: RunKey, reason: str) -> ExecutionResponse:
        """An occurrence that is due and has no record yet. *reason*: why it waits."""
        return cls.of(
            execution_id=key.execution_id,
            job_id=key.job.job_id,
            state=RunState.PENDING,
            scheduled_at=key.scheduled_at,
            reason=reason,
        )


def _reason(node: RunNode, limit: NodeLimit) -> str | None:
    reason = None if node.run is None else node.run.reason
    if reason is None or limit.reason is None or len(reason) <= limit.reason:
        return reason
    return f"{reason[: limit.reason - 1]}…"


class SequenceNode(ApiResponse):
    """A job of a sequence and its execution. `state`: WAITING before it has a record. `after`: its
    parents. `critical`: it is on the critical path, the executions that determined when the last
    one ended.
    """

    # of(node, limit)
    job_id: str = field(lambda node, _: node.key.job.job_id)
    execution_id: str = field(lambda node, _: node.key.execution_id)
    state: RunState | Literal["WAITING"] = field(
        lambda node, _: "WAITING" if node.run is None else node.run.state
    )
    after: list[str] = field(lambda node, limit: [*node.parents[: limit.parents]])
    more_parents: int | None = field(
        lambda node, limit: (limit.parents and len(node.parents[limit.parents :])) or None,
        description="Number of parents that `after` leaves out, if all executions of the sequence "
        f"together have over {MAX_PARENTS_SHOWN:,} parents.",
    )
    critical: bool
    started_at: datetime | None = field(lambda node, _: node.run and node.run.started_at)
    finished_at: datetime | None = field(lambda node, _: node.run and node.run.finished_at)
    attempt: int | None = field(lambda node, _: node.run and node.run.attempt)
    reason: str | None = field(
        _reason,
        description="Shortened, with … at the end, if all reasons of the sequence together have "
        f"over {MAX_REASONS_SHOWN:,} characters.",
    )


def _nodes(nodes: Sequence[RunNode], _at: datetime) -> list[SequenceNode]:
    limit = NodeLimit.of(nodes)
    return [SequenceNode.of(each, limit) for each in nodes]


class SequenceResponse(ApiResponse):
    """The executions of a sequence with one logical time, each after its parents."""

    # of(nodes, logical time)
    scheduled_at: datetime = field(lambda _, at: at)
    items: list[SequenceNode] = field(_nodes)


class _SequenceStep(ApiResponse):
    # of(step)
    job_id: str = field(lambda step: step.node.key.job.job_id)
    execution_id: str = field(lambda step: step.node.key.execution_id)
    state: RunState | Literal["WAITING"] = field(
        lambda step: "WAITING" if step.node.run is None else step.node.run.state
    )


class _SequenceChange(ApiResponse):
    # of(steps, logical time, whether it is a plan only)
    scheduled_at: datetime = field(lambda _, at, __: at)
    dry_run: bool = field(lambda _, __, dry_run: dry_run)


class SequenceRedriveStep(_SequenceStep):
    """What a redrive of a sequence does with an execution. `action`: RUN, it starts again now;
    FOLLOW, it starts again when its parents have ended again, if its trigger rule allows it; KEEP,
    it stays as it is. `state`: before the redrive; WAITING before it has a record.
    """

    action: RedriveAction
    reason: str


class SequenceRedriveResponse(_SequenceChange):
    """The redrive of a sequence: a step for each of its executions, each after its parents."""

    items: list[SequenceRedriveStep] = field(
        lambda steps, *_: [SequenceRedriveStep.of(each) for each in steps]
    )


class SequenceCancelStep(_SequenceStep):
    """What a cancel of a sequence does with an execution: CANCEL, or KEEP, it stays as it is.
    `state`: before the cancel; WAITING before it has a record.
    """

    action: CancelAction
    reason: str


class SequenceCancelResponse(_SequenceChange):
    """The cancel of a sequence: a step for each of its executions, each after its parents."""

    items: list[SequenceCancelStep] = field(
        lambda steps, *_: [SequenceCancelStep.of(each) for each in steps]
    )


class UnreadableExecution(ApiResponse):
    """A stored execution that cannot be decoded."""

    # of(unreadable, execution id)
    execution_id: str = field(lambda _, execution_id: execution_id)
    job_id: str = field(lambda _, execution_id: execution_id.partition(".")[0])
    state: Literal["UNREADABLE"] = field(lambda *_: UNREADABLE)
    reason: str = field(lambda found, _: one_line(found.problem))


class FreshnessResponse(ApiResponse):
    """How complete an answer from the overview is. The overview is derived from the executions and
    lags seconds behind them.
    """

    # of(freshness)
    as_of: datetime | None = field(
        description="When the latest change that is included was stored. Absent if unknown."
    )
    lag_sec: float = field(
        lambda freshness: round(freshness.lag.total_seconds(), 1),
        description="Seconds until that change was included.",
    )
    begins_at: datetime | None = field(
        description="Executions that have not changed since are missing. Absent: none are."
    )


class ExecutionPage(ApiResponse):
    """Executions. A page may hold fewer items than `limit`: if `cursor` is present, there may
    be more.
    """

    items: list[ExecutionResponse] = field(schema=list[ExecutionResponse | UnreadableExecution])
    cursor: str | None
    overview: FreshnessResponse | None = field(
        description="Present if the page is from the overview."
    )


class MinuteResponse(ApiResponse):
    """Executions that ended in a minute, by state. On AWS, those that were redriven later, and
    skips that were undone, stay counted; on the embedded stack they do not.
    """

    # of(minute, counts by state)
    at: datetime = field(lambda minute, _: minute, description="Start of the minute.")
    succeeded: int = field(lambda _, ended: ended.get(RunState.SUCCEEDED, 0))
    dead: int = field(lambda _, ended: ended.get(RunState.DEAD, 0))
    cancelled: int = field(lambda _, ended: ended.get(RunState.CANCELLED, 0))
    skipped: int = field(lambda _, ended: ended.get(RunState.SKIPPED, 0))


class OverviewResponse(ApiResponse):
    """Numbers of executions of all jobs, and the state of the watchers."""

    # of(counts, freshness, groups of watchers)
    running: int = field(lambda counts, *_: counts.open[RunState.RUNNING])
    pending: int = field(
        lambda counts, *_: counts.open[RunState.PENDING],
        description="Executions with a record that wait: retries, redrives and runs on request.",
    )
    from_: datetime = field(
        lambda counts, *_: counts.first,
        description="The first minute in `minutes`; later than requested if there were too many.",
    )
    minutes: list[MinuteResponse] = field(
        lambda counts, *_: [MinuteResponse.of(*each) for each in counts.minutes.items()],
        description="Minutes in which executions ended, oldest first.",
    )
    overview: FreshnessResponse = field(lambda _, freshness, *__: FreshnessResponse.of(freshness))
    watchers: list[WatcherResponse] = field(
        lambda *sources: [WatcherResponse.of(each) for each in sources[2]],
        description="All groups of watchers.",
    )


class LogLineResponse(ApiResponse):
    """A line that an attempt printed."""

    # of(line, number of the attempt)
    attempt: int = field(lambda _, attempt: attempt)
    at: datetime | None
    stream: str
    text: str


class LogResponse(ApiResponse):
    """Lines of a log. `ended`: no more lines will follow."""

    items: list[LogLineResponse] = field(
        lambda page: [LogLineResponse.of(line, attempt) for attempt, line in page.lines]
    )
    cursor: str | None
    ended: bool


class NotRedriven(ApiResponse):
    """An execution that was not redriven, and the reason."""

    # of(execution id, reason)
    execution_id: str = field(lambda execution_id, _: execution_id)
    reason: str = field(lambda _, reason: one_line(reason))


class RedrivenResponse(ApiResponse):
    """Result of redriving dead executions. `more`: others may be left; continue from `cursor`."""

    redriven: list[str] = field(lambda done: [key.execution_id for key in done.redriven])
    skipped: list[NotRedriven] = field(
        lambda done: [
            *(NotRedriven.of(key.execution_id, reason) for key, reason in done.skipped),
            *(NotRedriven.of(each.identity, each.problem) for each in done.unreadable),
        ]
    )
    more: bool = field(lambda done: done.cursor is not None)
    cursor: str | None
