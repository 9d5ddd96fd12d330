"""Requests of users for runs: most commit a run record together with its due entry or its job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import transact
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.fields import STAMP
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.job_store import replacing
from nextfire.adapters.dynamodb.run_items import (
    SKIPPED,
    STEP,
    decode_run,
    encode_key,
    encode_run,
    encode_step,
    expiry,
)
from nextfire.adapters.dynamodb.run_updates import RunUpdates, set_or_remove
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import to_ms
from nextfire.domain.job import Job
from nextfire.domain.ports.runs import Claim, Written
from nextfire.domain.run import Run, RunState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NO_ATTEMPT = "(attribute_not_exists(attempt) OR attempt = :base)"
"""A run that was cancelled before its first dispatch has no attribute `attempt`."""


class RunRequests:
    """The transactions of `RunStore`, on the tables `runs`, `due` and `jobs`."""

    def __init__(
        self,
        client: DynamoDBClient,
        *,
        table: str,
        due_table: str = "",
        jobs_table: str = "",
        shards: int = 1,
    ) -> None:
        """Build a store. `redrive` and `request` need *due_table* and *shards*; `skip_next` and
        `unskip` need *jobs_table*.
        """
        self._client = client
        self._updates = RunUpdates(client, table)
        self._table = table
        self._due_table = due_table
        self._jobs_table = jobs_table
        self._shards = shards

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        item = encode_run(run)
        if run.finished_at is None:
            item |= to_item({"expires_at": expiry(now)})
        put = self._put_if_absent(item)
        refused = self._write_with_entry({"Put": put}, entry, now, "request run")
        if refused is None:
            return Claim(run, taken=True)
        if not refused:
            raise UnavailableError("request run: the record is gone. Try again.")
        stored = decode_run(refused)
        return Claim(stored, taken=stored.on_request and stored.request == run.request)

    def _write_with_entry(
        self, write: dict[str, Any], entry: DueEntry, now: datetime, what: str
    ) -> Item | None:
        """Make *write* and store *entry*, both or none. Returns None if both are stored; else the
        item that fails the condition of *write*, empty if no item exists.
        """
        due = {"TableName": self._due_table, "Item": entry_item(entry, now, self._shards)}
        refused = transact(self._client, [write, {"Put": due}], what)
        return None if refused is None else refused[1]

    def skip_next(self, run: Run, job: Job) -> Written:
        put = self._put_if_absent(encode_run(run))
        return self._write_with_job(job, {"Put": put}, "skip occurrence")

    def unskip(self, run: RunKey, job: Job) -> Written:
        delete = {
            "TableName": self._table,
            "Key": encode_key(run),
            # Runs on request have a trigger.
            "ConditionExpression": (
                "#state = :skipped AND attribute_exists(#request)"
                " AND attribute_not_exists(#trigger)"
            ),
            "ExpressionAttributeNames": {
                "#state": "state",
                "#request": "request",
                "#trigger": "trigger",
            },
            "ExpressionAttributeValues": to_item({":skipped": RunState.SKIPPED.value}),
        }
        return self._write_with_job(job, {"Delete": delete}, "unskip occurrence")

    def _put_if_absent(self, item: Item) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(run_id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _write_with_job(self, job: Job, write: dict[str, Any], what: str) -> Written:
        put = replacing(job, self._jobs_table)
        refused = transact(self._client, [{"Put": put}, write], what)
        if refused is None:
            return Written.DONE
        index, stored = refused
        if index:
            return Written.REFUSED
        # The SDK may have sent the request twice: then the first one succeeded.
        return Written.DONE if stored == put["Item"] else Written.CHANGED

    def redrive(
        self,
        run: Run,
        entry: DueEntry,
        now: datetime,
        *,
        was: RunState = RunState.DEAD,
        by_user: bool = True,
    ) -> Claim:
        attempts = "attempt = :base" if run.attempt_base else _NO_ATTEMPT
        # Executors redrive what was SKIPPED because of its parents. They may not write these, and
        # it has no other values.
        base, cancel_reason = "", ""
        of_user: dict[str, object] = {}
        if by_user:
            base = "attempt_base = :base, fence_base = :fence, restarted = :yes, "
            cancel_reason = "cancel_reason, "
            of_user = {":yes": True, ":fence": run.fence_base}
        update = {
            "TableName": self._table,
            "Key": encode_key(run.key),
            "UpdateExpression": (
                f"SET #state = :pending, dispatch = :dispatch, {base}"
                "not_before = :not_before, reason = :reason, expires_at = :expires_at "
                f"REMOVE {cancel_reason}finished_at, attention, attention_at, cancel_requested"
            ),
            "ConditionExpression": (
                f"#state = :was AND dispatch < :dispatch AND {attempts}"
                " AND attribute_not_exists(covered)"
            ),
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": to_item(
                of_user
                | {
                    ":pending": RunState.PENDING.value,
                    ":was": was.value,
                    ":dispatch": run.dispatch,
                    ":base": run.attempt_base,
                    ":not_before": to_ms(run.not_before or now),
                    ":reason": run.reason or "redriven",
                    ":expires_at": expiry(now),
                }
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        refused = self._write_with_entry({"Update": update}, entry, now, "redrive run")
        if refused is None:
            return Claim(run, taken=True)
        if not refused:
            return Claim(Run(run.key, RunState.CANCELLED), taken=False)
        stored = decode_run(refused)
        ours = (stored.dispatch, stored.attempt_base) == (run.dispatch, run.attempt_base)
        return Claim(stored, taken=ours)

    def bring_forward(self, was: Run, to: Run, entry: DueEntry, now: datetime) -> Claim:
        update = {
            "TableName": self._table,
            "Key": encode_key(was.key),
            "UpdateExpression": (
                "SET dispatch = :dispatch, not_before = :not_before, reason = :reason"
            ),
            "ConditionExpression": (
                "#state = :pending AND dispatch = :was AND fence = :fence"
                " AND attribute_not_exists(cancel_requested)"
            ),
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": to_item(
                {
                    ":pending": RunState.PENDING.value,
                    ":was": was.dispatch,
                    ":fence": was.fence,
                    ":dispatch": to.dispatch,
                    ":not_before": to_ms(to.not_before or now),
                    ":reason": to.reason or "",
                }
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        refused = self._write_with_entry({"Update": update}, entry, now, "bring run forward")
        if refused is None:
            return Claim(to, taken=True)
        if not refused:
            return Claim(Run(was.key, RunState.CANCELLED), taken=False)
        stored = decode_run(refused)
        return Claim(stored, taken=stored.dispatch == to.dispatch)

    def await_parents(self, was: Run, to: Run) -> Claim:
        fields = encode_step(to)
        # The client of the API sets the stamp.
        group = [each for each in (*STEP, *SKIPPED) if each is not STAMP]
        update = set_or_remove(group, fields)
        sets, removes = update.split(" REMOVE ")
        return self._updates.change(
            to.key,
            what="await parents",
            update=(
                f"{sets}, attempt_base = :base, fence_base = :fence, restarted = :yes "
                f"REMOVE {removes}, cancel_requested, cancel_reason"
            ),
            condition=(
                "#state = :was AND #state IN (:dead, :skipped) AND #dispatch = :dispatch"
                " AND #attempt = :attempt AND attribute_not_exists(covered)"
            ),
            values={
                ":was": was.state.value,
                ":dead": RunState.DEAD.value,
                ":skipped": RunState.SKIPPED.value,
                ":base": to.attempt_base,
                ":yes": True,
            },
            fields=fields,
            ours=lambda stored: stored.skipped_by_parents and stored.dispatch == to.dispatch,
            absent_ok=True,
        )
