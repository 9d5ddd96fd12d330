"""Run records in DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nextfire.adapters.dynamodb.run_items import (
    ATTEMPTS,
    CHECKPOINT,
    SKIPPED,
    STEP,
    encode_checkpoint,
    encode_record,
    encode_step,
    expiry,
)
from nextfire.adapters.dynamodb.run_reads import RunReads
from nextfire.adapters.dynamodb.run_requests import RunRequests
from nextfire.adapters.dynamodb.run_updates import RunUpdates, set_all, set_or_remove
from nextfire.domain.attempt import Attempt, Value
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.instants import isoformat, to_ms
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.runs import Claim
from nextfire.domain.run import Run, RunState
from nextfire.domain.run_writes import TRIED_AGAIN

_CLAIM = (
    "SET #state = :running, dispatch = :dispatch, attempt = if_not_exists(attempt, :zero) + :one, "
    "fence = if_not_exists(fence, :zero) + :one, claim_token = :token, worker = :worker, "
    "lease_until = :lease_until, #pool = :pool, job_revision = :job_revision, "
    "dispatched_at = :dispatched_at, dispatch_reason = :dispatch_reason, started_at = :now, "
    "expires_at = :expires_at, "
    "attempts = list_append(if_not_exists(attempts, :none), :attempts) "
    # Leftovers of the previous attempt would add to the cost of each heartbeat.
    # The audit trail already holds the request that changed the run before.
    f"REMOVE not_before, exit_code, stdout, stderr, reason, {CHANGED_BY}"
)
_FREE = (
    "attribute_not_exists(run_id) OR (#state = :pending AND dispatch <= :dispatch AND "
    "(attribute_not_exists(not_before) OR not_before <= :now_ms) AND "
    "attribute_not_exists(cancel_requested))"
)
_HELD = "fence = :fence AND #state = :running"


class DynamoDbRunStore(RunReads, RunRequests):
    """`RunStore` on the table `runs`.

    Instants that conditions compare (`lease_until`, `not_before`) are epoch milliseconds.
    """

    _updates: RunUpdates

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        # The attempt's number is unknown before the write; `decode_run` computes it.
        started = Attempt(0, worker, now, pool=pool)
        values = {
            ":running": RunState.RUNNING.value,
            ":pending": RunState.PENDING.value,
            ":dispatch": message.dispatch,
            ":zero": 0,
            ":one": 1,
            ":token": token,
            ":worker": worker,
            ":lease_until": to_ms(lease_until),
            ":pool": pool,
            ":job_revision": job_revision,
            ":dispatched_at": isoformat(message.dispatched_at),
            ":dispatch_reason": message.reason,
            ":now": isoformat(now),
            ":now_ms": to_ms(now),
            ":expires_at": expiry(now),
            ":none": [],
        }
        return self._updates.change(
            message.key,
            what="claim run",
            update=_CLAIM,
            condition=_FREE,
            values=values,
            fields={"attempts": ATTEMPTS.attribute([started])},
            ours=lambda run: run.state is RunState.RUNNING and run.claim_token == token,
        )

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        fields = encode_step(to)
        values: dict[str, object] = {
            ":was_fence": was.fence,
            ":was_running": RunState.RUNNING.value,
        }
        condition = "#fence = :was_fence AND #state = :was_running"
        if to.state in TRIED_AGAIN:
            condition += " AND attribute_not_exists(cancel_requested)"
        if lapsed and was.lease_until is not None:
            condition += " AND lease_until = :was_lease"
            values[":was_lease"] = to_ms(was.lease_until)
        return self._updates.change(
            was.key,
            what="advance run",
            update=set_or_remove(STEP, fields),
            condition=condition,
            values=values,
            fields=fields,
            # Each claim starts a new attempt, so equal attempts mean that this write succeeded.
            # Compared as stored: instants read back are rounded to milliseconds.
            ours=lambda run: (
                run.state is to.state and ATTEMPTS.attribute(run.attempts) == fields["attempts"]
            ),
        )

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        values = {
            ":cancelled": RunState.CANCELLED.value,
            ":pending": RunState.PENDING.value,
            ":dispatch": message.dispatch,
            ":reason": reason,
            ":now": isoformat(now),
            ":expires_at": expiry(now),
        }
        return self._updates.change(
            message.key,
            what="cancel run",
            update=(
                "SET #state = :cancelled, dispatch = if_not_exists(dispatch, :dispatch), "
                "reason = :reason, finished_at = :now, expires_at = :expires_at "
                "REMOVE not_before"
            ),
            condition="attribute_not_exists(run_id) OR #state = :pending",
            values=values,
        ).run

    def skip(self, run: Run) -> Run:
        if run.on_request:
            return self._skip_requested(run)
        # Not PutItem: that replaces the whole item, so executors may not use it.
        fields = encode_record(run)
        return self._updates.change(
            run.key,
            what="skip run",
            update=set_all(fields),
            condition="attribute_not_exists(run_id)",
            values={},
            fields=fields,
        ).run

    def _skip_requested(self, run: Run) -> Run:
        """Skip a run that a user requested. The request's attributes are not written again:
        executors may not write them.
        """
        fields = encode_record(run)
        return self._updates.change(
            run.key,
            what="skip run",
            update=set_or_remove((*STEP, *SKIPPED), fields),
            condition=(
                "#state = :pending AND #dispatch = :dispatch AND attribute_not_exists(claim_token)"
            ),
            values={":pending": RunState.PENDING.value},
            fields=fields,
        ).run

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        while not run.state.ended:
            if run.state is RunState.PENDING:
                claim = self._updates.change(
                    run.key,
                    what="cancel run",
                    update=(
                        "SET #state = :to, reason = :reason, finished_at = :now, "
                        "expires_at = :expires_at REMOVE not_before"
                    ),
                    condition="#state = :from",
                    values={
                        ":from": RunState.PENDING.value,
                        ":to": RunState.CANCELLED.value,
                        ":reason": reason,
                        ":now": isoformat(now),
                        ":expires_at": expiry(now),
                    },
                    absent_ok=True,
                )
            else:
                claim = self._updates.change(
                    run.key,
                    what="request cancel",
                    update="SET cancel_requested = :yes, cancel_reason = :reason",
                    condition="#state = :from",
                    values={":from": RunState.RUNNING.value, ":yes": True, ":reason": reason},
                    ours=lambda stored: stored.cancel_requested,
                    absent_ok=True,
                )
            run = claim.run
            if claim.taken:
                break
        return run

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        claim = self._updates.change(
            run.key,
            what="extend lease",
            update="SET lease_until = :lease_until",
            condition=_HELD,
            values={
                ":lease_until": to_ms(lease_until),
                ":fence": run.fence,
                ":running": RunState.RUNNING.value,
            },
            absent_ok=True,
        )
        return claim.run if claim.taken else None

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        fields = encode_checkpoint(replace(run, checkpoint=checkpoint))
        claim = self._updates.change(
            run.key,
            what="save checkpoint",
            update=set_or_remove(CHECKPOINT, fields),
            condition=_HELD,
            values={":fence": run.fence, ":running": RunState.RUNNING.value},
            fields=fields,
            absent_ok=True,
        )
        return claim.run if claim.taken else None

    def mark_death_published(self, run: Run) -> None:
        self._updates.change(
            run.key,
            what="mark buried",
            update="SET buried = :dispatch",
            condition="#state = :dead AND dispatch = :dispatch",
            values={":dispatch": run.dispatch, ":dead": RunState.DEAD.value},
            absent_ok=True,
        )
