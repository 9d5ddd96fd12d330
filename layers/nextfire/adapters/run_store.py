"""Run records in DynamoDB."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws import transact, transact_all
from nextfire.adapters.aws_errors import error_code, refused, translated
from nextfire.adapters.due_store import entry_item
from nextfire.adapters.items import Item, from_item, to_item
from nextfire.adapters.job_store import decode_cursor, encode_cursor, replacing
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.ids import JOB_ID, JobKey, RunKey, runs_from
from nextfire.domain.instants import from_ms, isoformat, parse_instant, to_ms
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.ports import Claim, Page, Unreadable, Written
from nextfire.domain.run import Attempt, AttemptOutcome, Run, RunState, Trigger, Value

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RETENTION = timedelta(days=90)
"""How long a record is kept after its last change; far longer than the queue's 14 days."""

_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[a-z0-9]{8,32}")
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
_MUTABLE = (
    *("state", "dispatch", "attempt", "fence", "claim_token", "worker", "lease_until"),
    *("not_before", "started_at", "finished_at", "exit_code", "stdout", "stderr", "reason"),
    *("attempts", "expires_at", "attention", "attention_at"),
    *("result", "result_bytes", "result_file", CHANGED_BY),
)
_SKIPPED_FIELDS = ("state", "finished_at", "reason", "pool", "dispatched_at", "expires_at")
_MAX_COUNT = 10**15
_SHA256_BYTES = 32
_INDEX = "attention"
_ATTENTION_AT = re.compile(rf"[0-9]{{13}}#({JOB_ID.pattern})\.({_RUN_ID.pattern})")
_RETRYABLE = frozenset({RunState.PENDING, RunState.RUNNING, RunState.DEAD})
"""States that a run with a cancel request must not enter: it would be retried."""


class DynamoDbRunStore:
    """`RunStore` on the table `runs`.

    Instants that conditions compare (`lease_until`, `not_before`) are epoch milliseconds.
    """

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
        self._jobs_table = jobs_table
        self._client = client
        self._table = table
        self._due_table = due_table
        self._shards = shards

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
        # The attempt's number is unknown before the write; `_decode` computes it.
        started = _encode_attempt(Attempt(0, worker, now, pool=pool))
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
            ":expires_at": _expiry(now),
            ":none": [],
            ":attempts": [started],
        }
        return self._change(
            message.key,
            what="claim run",
            update=_CLAIM,
            condition=_FREE,
            values=values,
            ours=lambda run: run.state is RunState.RUNNING and run.claim_token == token,
        )

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        fields = _encode(to)
        # The stored form: instants read back are rounded to milliseconds.
        attempts = fields["attempts"]
        values = {f":{name}": value for name, value in fields.items() if value is not None}
        sets = ", ".join(f"#{n} = :{n}" for n in _MUTABLE if fields.get(n) is not None)
        removes = ", ".join(f"#{n}" for n in _MUTABLE if fields.get(n) is None)
        condition = "#fence = :was_fence AND #state = :was_running"
        values |= {":was_fence": was.fence, ":was_running": RunState.RUNNING.value}
        if to.state in _RETRYABLE:
            condition += " AND attribute_not_exists(cancel_requested)"
        if lapsed and was.lease_until is not None:
            condition += " AND lease_until = :was_lease"
            values[":was_lease"] = to_ms(was.lease_until)
        return self._change(
            was.key,
            what="advance run",
            update=f"SET {sets}" + (f" REMOVE {removes}" if removes else ""),
            condition=condition,
            values=values,
            # Each claim starts a new attempt, so equal attempts mean that this write succeeded.
            ours=lambda run: run.state is to.state and _encode(run)["attempts"] == attempts,
        )

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        values = {
            ":cancelled": RunState.CANCELLED.value,
            ":pending": RunState.PENDING.value,
            ":dispatch": message.dispatch,
            ":reason": reason,
            ":now": isoformat(now),
            ":expires_at": _expiry(now),
        }
        return self._change(
            message.key,
            what="cancel run",
            update=(
                "SET #state = :cancelled, dispatch = if_not_exists(dispatch, :dispatch), "
                "reason = :reason, finished_at = :now, expires_at = :expires_at "
                "REMOVE not_before"
            ),
            condition="attribute_not_exists(run_id) OR #state = :pending",
            values=values,
            ours=lambda run: run.state is RunState.CANCELLED,
        ).run

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        put = {
            "TableName": self._table,
            "Item": _encode_whole(run) | to_item({"expires_at": _expiry(now)}),
            "ConditionExpression": "attribute_not_exists(run_id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        due = {"TableName": self._due_table, "Item": entry_item(entry, now, self._shards)}
        writes: list[Any] = [{"Put": put}, {"Put": due}]
        refused = transact(self._client, writes, "request run")
        if refused is None:
            return Claim(run, taken=True)
        if not refused:
            raise UnavailableError("request run: the record is gone. Try again.")
        there = _decode(refused)
        return Claim(there, taken=there.on_request and there.request == run.request)

    def skip(self, run: Run) -> Run:
        if run.on_request:
            return self._skip_requested(run)
        # Not PutItem: that replaces the whole item, so executors may not use it.
        fields = {name: value for name, value in _encode(run).items() if value is not None}
        return self._change(
            run.key,
            what="skip run",
            update="SET " + ", ".join(f"#{name} = :{name}" for name in fields),
            condition="attribute_not_exists(run_id)",
            values={f":{name}": value for name, value in fields.items()},
            ours=lambda _: False,
        ).run

    def _skip_requested(self, run: Run) -> Run:
        """Skip a run that a user requested. The request's attributes are not written again:
        executors may not write them.
        """
        fields = _encode(run)
        names = [name for name in _SKIPPED_FIELDS if fields[name] is not None]
        return self._change(
            run.key,
            what="skip run",
            update="SET "
            + ", ".join(f"#{name} = :{name}" for name in names)
            + f" REMOVE not_before, {CHANGED_BY}",
            condition="#state = :pending AND attribute_not_exists(claim_token)",
            values={f":{name}": fields[name] for name in names}
            | {":pending": RunState.PENDING.value},
            ours=lambda there: there.state is RunState.SKIPPED,
        ).run

    def skip_next(self, run: Run, job: Job) -> Written:
        item = _encode_whole(run)
        put = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(run_id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return self._write_with(job, {"Put": put}, "skip occurrence")

    def unskip(self, run: RunKey, job: Job) -> Written:
        delete = {
            "TableName": self._table,
            "Key": _key(run),
            "ConditionExpression": "#state = :skipped AND attribute_exists(#request)",
            "ExpressionAttributeNames": {"#state": "state", "#request": "request"},
            "ExpressionAttributeValues": to_item({":skipped": RunState.SKIPPED.value}),
        }
        return self._write_with(job, {"Delete": delete}, "unskip occurrence")

    def _write_with(self, job: Job, write: dict[str, Any], what: str) -> Written:
        put = replacing(job, self._jobs_table)
        refused = transact_all(self._client, [{"Put": put}, write], what)
        if refused is None:
            return Written.DONE
        index, there = refused
        if index:
            return Written.REFUSED
        # The SDK may have sent the request twice: then the first one succeeded.
        return Written.DONE if there == put["Item"] else Written.CHANGED

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        while not run.state.ended:
            if run.state is RunState.PENDING:
                claim = self._change(
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
                        ":expires_at": _expiry(now),
                    },
                    ours=lambda there: there.state is RunState.CANCELLED,
                    absent_ok=True,
                )
            else:
                claim = self._change(
                    run.key,
                    what="request cancel",
                    update="SET cancel_requested = :yes, cancel_reason = :reason",
                    condition="#state = :from",
                    values={":from": RunState.RUNNING.value, ":yes": True, ":reason": reason},
                    ours=lambda there: there.cancel_requested,
                    absent_ok=True,
                )
            run = claim.run
            if claim.taken:
                break
        return run

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        claim = self._change(
            run.key,
            what="extend lease",
            update="SET lease_until = :lease_until",
            condition="fence = :fence AND #state = :running",
            values={
                ":lease_until": to_ms(lease_until),
                ":fence": run.fence,
                ":running": RunState.RUNNING.value,
            },
            ours=lambda there: False,  # noqa: ARG005 — a rejected resend is still a rejection
            absent_ok=True,
        )
        return claim.run if claim.taken else None

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        fields = _encode_value("checkpoint", checkpoint)
        sets = ", ".join(f"{name} = :{name}" for name, value in fields.items() if value is not None)
        removes = ", ".join(name for name, value in fields.items() if value is None)
        claim = self._change(
            run.key,
            what="save checkpoint",
            update=f"SET {sets}" + (f" REMOVE {removes}" if removes else ""),
            condition="fence = :fence AND #state = :running",
            values={
                **{f":{name}": value for name, value in fields.items() if value is not None},
                ":fence": run.fence,
                ":running": RunState.RUNNING.value,
            },
            ours=lambda there: False,  # noqa: ARG005 — a rejected resend is still a rejection
            absent_ok=True,
        )
        return claim.run if claim.taken else None

    def mark_death_published(self, run: Run) -> None:
        self._change(
            run.key,
            what="mark buried",
            update="SET buried = :dispatch",
            condition="#state = :dead AND dispatch = :dispatch",
            values={":dispatch": run.dispatch, ":dead": RunState.DEAD.value},
            ours=lambda there: False,  # noqa: ARG005 — the run was redriven: nothing to do
            absent_ok=True,
        )

    def redrive(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        update = {
            "TableName": self._table,
            "Key": _key(run.key),
            "UpdateExpression": (
                "SET #state = :pending, dispatch = :dispatch, attempt_base = :base, "
                "not_before = :not_before, reason = :reason, expires_at = :expires_at "
                "REMOVE finished_at, attention, attention_at, cancel_requested, cancel_reason"
            ),
            "ConditionExpression": "#state = :dead AND dispatch < :dispatch AND attempt = :base",
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": to_item(
                {
                    ":pending": RunState.PENDING.value,
                    ":dead": RunState.DEAD.value,
                    ":dispatch": run.dispatch,
                    ":base": run.attempt_base,
                    ":not_before": to_ms(run.not_before or now),
                    ":reason": run.reason or "redriven",
                    ":expires_at": _expiry(now),
                }
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        due = {"TableName": self._due_table, "Item": entry_item(entry, now, self._shards)}
        writes: list[Any] = [{"Update": update}, {"Put": due}]
        refused = transact(self._client, writes, "redrive run")
        if refused is None:
            return Claim(run, taken=True)
        if not refused:
            return Claim(Run(run.key, RunState.CANCELLED), taken=False)
        there = _decode(refused)
        ours = (there.dispatch, there.attempt_base) == (run.dispatch, run.attempt_base)
        return Claim(there, taken=ours)

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        attention = f"{tenant}#{RunState.DEAD.value}"
        low, high = f"{to_ms(first):013d}", f"{to_ms(last):013d}~"
        request: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": _INDEX,
            "KeyConditionExpression": "attention = :attention AND attention_at BETWEEN :a AND :b",
            "ExpressionAttributeValues": to_item({":attention": attention, ":a": low, ":b": high}),
            "ScanIndexForward": False,
            "Limit": limit,
        }
        if cursor is not None:
            attention_at = decode_cursor(cursor, _ATTENTION_AT)
            job_id, _, run_id = attention_at.partition("#")[2].partition(".")
            # DynamoDB rejects a start key outside the range.
            if attention_at < low:
                return Page([], None)
            if attention_at < high:
                request["ExclusiveStartKey"] = _key(
                    RunKey(JobKey(tenant, job_id), run_id)
                ) | to_item({"attention": attention, "attention_at": attention_at})
        with translated("list dead runs"):
            answer = self._client.query(**request)
        end = answer.get("LastEvaluatedKey")
        runs, unreadable = _decode_all(answer["Items"], _execution_id)
        return Page(runs, encode_cursor(end["attention_at"]["S"]) if end else None, unreadable)

    def get(self, key: RunKey) -> Run | None:
        return self._get(key, consistent=True)

    def peek(self, key: RunKey) -> Run | None:
        return self._get(key, consistent=False)

    def _get(self, key: RunKey, *, consistent: bool) -> Run | None:
        with translated("get run"):
            answer = self._client.get_item(
                TableName=self._table, Key=_key(key), ConsistentRead=consistent
            )
        item = answer.get("Item")
        return _decode(item) if item else None

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "job = :job AND run_id BETWEEN :first AND :last",
            "ExpressionAttributeValues": to_item(
                {":job": _partition(job), ":first": first, ":last": last}
            ),
            "ScanIndexForward": not newest_first,
            "ConsistentRead": True,
            "Limit": page,
        }
        while True:
            with translated("read runs"):
                answer = self._client.query(**request)
            for item in answer["Items"]:
                try:
                    yield _decode(item)
                except UndecodableError:
                    run_id = item["run_id"]["S"]
                    if not lenient:
                        raise
                    if _RUN_ID.fullmatch(run_id):
                        yield Run(RunKey(job, run_id), RunState.DEAD)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "job = :job",
            "ExpressionAttributeValues": to_item({":job": _partition(job)}),
            "ScanIndexForward": False,
            "Limit": limit,
        }
        low = high = None
        if first is not None and before is not None:
            low, high = runs_from(first), runs_from(before)
            request["KeyConditionExpression"] += " AND run_id BETWEEN :low AND :high"
            request["ExpressionAttributeValues"] |= to_item({":low": low, ":high": high})
        if cursor is not None:
            last_id = decode_cursor(cursor, _RUN_ID)
            # DynamoDB rejects a start key outside the range.
            if low is not None and last_id < low:
                return Page([], None)
            if high is None or last_id < high:
                request["ExclusiveStartKey"] = _key(RunKey(job, last_id))
        with translated("list runs"):
            answer = self._client.query(**request)
        last = answer.get("LastEvaluatedKey")
        runs, unreadable = _decode_all(answer["Items"], lambda item: str(item["run_id"]["S"]))
        return Page(runs, encode_cursor(last["run_id"]["S"]) if last else None, unreadable)

    def _change(
        self,
        key: RunKey,
        *,
        what: str,
        update: str,
        condition: str,
        values: Mapping[str, object],
        ours: Any,
        absent_ok: bool = False,
    ) -> Claim:
        """Make one conditional write. If the condition fails, *ours* decides whether the stored
        record is the result of this same write: the SDK may have sent it twice.
        """
        try:
            with translated(what):
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=_key(key),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    # Some names are reserved words; any name may be written with a hash.
                    ExpressionAttributeNames={
                        name: name[1:] for name in re.findall(r"#\w+", update + condition)
                    },
                    ExpressionAttributeValues=to_item(values),
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except refused() as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            item: Item = error.response.get("Item", {})
            if not item:
                # The record expired (TTL).
                if absent_ok:
                    return Claim(Run(key, RunState.CANCELLED), taken=False)
                raise UnavailableError(f"{what}: the record is gone. Try again.") from error
            run = _decode(item)
            return Claim(run, taken=bool(ours(run)))
        return Claim(_decode(answer["Attributes"]), taken=True)


def _execution_id(item: Item) -> str:
    job_id = str(item["job"]["S"]).partition("/")[2]
    return f"{job_id}.{item['run_id']['S']}"


def _decode_all(
    items: Iterable[Item], identity: Callable[[Item], str]
) -> tuple[list[Run], list[Unreadable]]:
    """Decode *items* as runs; list those that do not decode."""
    runs: list[Run] = []
    unreadable: list[Unreadable] = []
    for item in items:
        try:
            runs.append(_decode(item))
        except UndecodableError as error:
            unreadable.append(Unreadable(identity(item), str(error)))
    return runs, unreadable


def _partition(job: JobKey) -> str:
    return f"{job.tenant}/{job.job_id}"


def _key(key: RunKey) -> Item:
    return to_item({"job": _partition(key.job), "run_id": key.run_id})


def _expiry(now: datetime) -> int:
    return to_ms(now + RETENTION) // 1000


def _instant(at: datetime | None) -> str | None:
    return None if at is None else isoformat(at)


def _encode(run: Run) -> dict[str, object]:
    """The mutable attributes of *run*; None for an absent attribute."""
    changed_at = run.finished_at or _last_step(run) or run.key.scheduled_at
    if run.skip_requested:
        changed_at = max(changed_at, run.key.scheduled_at)  # the record must exist until then
    if run.not_before is not None:
        changed_at = max(changed_at, run.not_before)  # a retry may be months away
    skipped = run.state is RunState.SKIPPED
    dead = run.state is RunState.DEAD
    return {
        "state": run.state.value,
        "dispatch": run.dispatch,
        "attempt": run.attempt,
        "fence": run.fence,
        "claim_token": run.claim_token or None,
        "worker": run.worker,
        "lease_until": None if run.lease_until is None else to_ms(run.lease_until),
        "not_before": None if run.not_before is None else to_ms(run.not_before),
        "started_at": _instant(run.started_at),
        "finished_at": _instant(run.finished_at),
        "exit_code": run.exit_code,
        "stdout": run.stdout or None,
        "stderr": run.stderr or None,
        "reason": run.reason,
        "attempts": [_encode_attempt(attempt) for attempt in run.attempts],
        "expires_at": _expiry(changed_at),
        # For SKIPPED records only: the claim sets them on other records.
        "pool": run.pool if skipped else None,
        "dispatched_at": _instant(run.dispatched_at) if skipped else None,
        "covered_to": to_ms(run.covered_to) if run.covered_to else None,
        "covered": run.covered if run.covered > 1 else None,
        "attention": f"{run.key.job.tenant}#{run.state.value}" if dead else None,
        "attention_at": f"{to_ms(changed_at):013d}#{run.key.execution_id}" if dead else None,
        **_encode_value("result", run.result),
    }


def _last_step(run: Run) -> datetime | None:
    if not run.attempts:
        return None
    return run.attempts[-1].finished_at or run.attempts[-1].started_at


def _encode_whole(run: Run) -> Item:
    """The item of *run*, with the attributes of the user's request, which are written only once."""
    asked_for = {
        "trigger": run.trigger.value if run.on_request else None,
        "request": run.request or None,
        "request_reason": run.request_reason,
        "payload": run.payload,
    }
    return _key(run.key) | to_item(_encode(run) | asked_for)


def _encode_value(name: str, value: Value | None) -> dict[str, object]:
    return {
        name: value and value.text,
        f"{name}_bytes": value and value.size,
        f"{name}_file": value and value.file,
    }


def _decode_value(name: str, values: Mapping[str, Any]) -> Value | None:
    size = values.get(f"{name}_bytes")
    if size is None:
        return None
    return Value(int(size), _text(values, name), _text(values, f"{name}_file"))


def _encode_attempt(attempt: Attempt) -> dict[str, object]:
    values = {
        "worker": attempt.worker,
        "started_at": isoformat(attempt.started_at),
        "finished_at": _instant(attempt.finished_at),
        "outcome": attempt.outcome and attempt.outcome.value,
        "exit_code": attempt.exit_code,
        "reason": attempt.reason,
        "log_parts": attempt.log_parts or None,
        # Base64 is shorter than hexadecimal: DynamoDB bills items by the KB.
        "script": attempt.script_sha256
        and base64.b64encode(bytes.fromhex(attempt.script_sha256)).decode(),
        "pool": attempt.pool,
    }
    return {name: value for name, value in values.items() if value is not None}


def _decode(item: Mapping[str, Any]) -> Run:
    """Decode *item* as a run.

    Raises:
        UndecodableError: *item* is not a run.
    """
    try:
        values = from_item(item)
        tenant, _, job_id = values["job"].partition("/")
        key = RunKey(JobKey(tenant, job_id), values["run_id"])
        _ = key.scheduled_at
        return Run(
            key=key,
            state=RunState(values["state"]),
            dispatch=_count(values, "dispatch", 1),
            attempt=_count(values, "attempt"),
            fence=_count(values, "fence"),
            claim_token=_text(values, "claim_token") or "",
            worker=_text(values, "worker"),
            lease_until=_from_number(values.get("lease_until")),
            not_before=_from_number(values.get("not_before")),
            cancel_requested=bool(values.get("cancel_requested", False)),
            cancel_reason=_text(values, "cancel_reason"),
            pool=_text(values, "pool"),
            job_revision=_int(values.get("job_revision")),
            dispatched_at=_from_text(values.get("dispatched_at")),
            dispatch_reason=_text(values, "dispatch_reason"),
            started_at=_from_text(values.get("started_at")),
            finished_at=_from_text(values.get("finished_at")),
            exit_code=_int(values.get("exit_code")),
            stdout=_text(values, "stdout"),
            stderr=_text(values, "stderr"),
            reason=_text(values, "reason"),
            attempts=_decode_attempts(values.get("attempts", []), _count(values, "attempt")),
            covered_to=_from_number(values.get("covered_to")),
            covered=_count(values, "covered", 1),
            attempt_base=_count(values, "attempt_base"),
            buried=_count(values, "buried"),
            checkpoint=_decode_value("checkpoint", values),
            result=_decode_value("result", values),
            trigger=Trigger(values.get("trigger", Trigger.SCHEDULE)),
            request=_text(values, "request") or "",
            request_reason=_text(values, "request_reason"),
            payload=_text(values, "payload"),
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UndecodableError(f"run does not decode: {type(error).__name__}: {error}") from error


def _decode_attempts(items: list[dict[str, Any]], latest: int) -> tuple[Attempt, ...]:
    """Decode attempts. *latest*: number of the latest attempt. The others are numbered backward
    from it, because the first attempts may have been dropped.
    """
    attempts: list[Attempt] = []
    number = latest
    for values in reversed(items):
        outcome = AttemptOutcome(values["outcome"]) if "outcome" in values else None
        # The next attempt reuses the number of an attempt that was handed back.
        number += outcome is AttemptOutcome.HANDED_BACK
        attempts.append(
            Attempt(
                number=number,
                worker=_text(values, "worker") or values["worker"],
                started_at=parse_instant(values["started_at"]),
                finished_at=_from_text(values.get("finished_at")),
                outcome=outcome,
                exit_code=_int(values.get("exit_code")),
                reason=_text(values, "reason"),
                log_parts=_count(values, "log_parts"),
                script_sha256=_digest(_text(values, "script")),
                pool=_pool(values),
            )
        )
        number -= 1
    return tuple(reversed(attempts))


def _text(values: Mapping[str, Any], name: str) -> str | None:
    """The optional string *name* of *values*.

    Raises:
        TypeError: The value is not a string. Found later, it would fail the response of a listing.
    """
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is not a string")
    return value


def _pool(values: Mapping[str, Any]) -> str | None:
    """The pool of an attempt, which is part of the object keys of its files.

    Raises:
        ValueError: The pool contains a slash and could address another tenant's files.
    """
    pool = _text(values, "pool")
    if pool is not None and "/" in pool:
        raise ValueError(f"invalid pool {pool!r}: a pool name has no slash")
    return pool


def _digest(value: str | None) -> str | None:
    if value is None:
        return None
    digest = base64.b64decode(value, validate=True)
    if len(digest) != _SHA256_BYTES:
        raise ValueError("script is not a digest")
    return digest.hex()


def _count(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    """The optional integer *name* of *values*.

    Raises:
        ValueError: The value is not an integer in range, so it cannot be incremented and stored.
    """
    value = values.get(name, default)
    if not 0 <= value <= _MAX_COUNT or value % 1:
        raise ValueError(f"invalid {name} {value}: an integer from 0 to {_MAX_COUNT}")
    return int(value)


def _int(value: Any) -> int | None:
    if value is not None and not -_MAX_COUNT <= value <= _MAX_COUNT:
        raise ValueError(f"{value} is out of range: the maximum is ±{_MAX_COUNT}")
    return None if value is None else int(value)


def _from_number(value: Any) -> datetime | None:
    return None if value is None else from_ms(int(value))


def _from_text(value: str | None) -> datetime | None:
    return None if value is None else parse_instant(value)
