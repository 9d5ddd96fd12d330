"""How each adapter translates AWS errors, for every call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import (  # noqa: TID251 — what the SDK raises
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from nextfire.adapters.aws.errors import TRANSIENT_CODES, RefusedError
from nextfire.adapters.aws.event_bus import EventBridgeEventBus
from nextfire.adapters.aws.lean.credentials import NoCredentialsError
from nextfire.adapters.aws.lean.response import ConnectionLostError
from nextfire.adapters.aws.lean.transport import TimedOutError
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.cursors import encode_cursor
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.s3.audit_log import S3AuditLog
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.adapters.s3.script_shelf import S3ScriptShelf
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.sqs.run_queue import SqsDeadLetters, SqsDelivery, SqsInbox, SqsRunQueue
from nextfire.domain.attempt import Value
from nextfire.domain.audit_pass import Audit
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.chain import Batch
from nextfire.domain.due import BrokenEntry, Slot, StoredEntry
from nextfire.domain.endpoints import Endpoint, EndpointKey, paused
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.events import Event, EventKind
from nextfire.domain.ids import RunFolder
from nextfire.domain.masking import Masker
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.control import Lease
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire.domain.run import Run, RunState
from nextfire.domain.script import ScriptKey, ScriptSource
from tests.builders import NOON, a_fire, a_job, a_key, a_retry, run_key
from tests.fakes import Clock, InlineExecutor

SECOND = timedelta(seconds=1)
JOB = a_job()
COUNTED = replace(JOB, counted=True)
RUN = run_key()
ENDPOINT = Endpoint(EndpointKey("calls", "acme", "api.example.com:443"))
KEY = a_key()
SCRIPT = ScriptKey("acme", "default", "report.py")
MESSAGE = RunMessage(
    tenant=RUN.job.tenant, job_id=RUN.job.job_id, run_id=RUN.run_id, dispatch=1, dispatched_at=NOON
)
LEASE = Lease("holder", 1, 1)
BATCH = Batch(2, [{"id": "1", "number": 2, "hash": "0", "recordedAt": "2026-05-24T12:00:00Z"}])
SKIPPED = Run.skipped(RUN, "reason", NOON)
BROKEN = BrokenEntry(Slot("2026-05-24T12:00Z#000", "rubbish"), {}, "rubbish", None, None)
URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/default.fifo"
EVENT = Event(EventKind.EXECUTION_DEAD, {}, NOON)
NETWORK_ERRORS = [
    EndpointConnectionError(endpoint_url=URL),
    ConnectTimeoutError(endpoint_url=URL),
    ReadTimeoutError(endpoint_url=URL),
    ConnectionClosedError(endpoint_url=URL),
    ConnectionLostError("the lean client's text"),
    TimedOutError("the lean client's text"),
    NoCredentialsError("the lean client's text"),
]


class Failing:
    """An SDK client whose operations all raise *error*."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(**_: object) -> None:
            raise self.error

        return fail


class Refusing(Failing):
    """A failing client that can still put items."""

    def put_item(self, **_: object) -> None:
        pass


def refused(code: str, status: int = 400, *, kind: Any = ClientError, **more: Any) -> Any:
    answer: Any = {
        "Error": {"Code": code, "Message": "as it is"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return kind(answer, "Operation")


def putting(client: Failing) -> Refusing:
    return Refusing(client.error)


def control(client: Any) -> DynamoDbControlStore:
    return DynamoDbControlStore(client, table="control")


def due(client: Any) -> DynamoDbDueStore:
    return DynamoDbDueStore(client, table="due", shards=1, executor=InlineExecutor())


def jobs(client: Any) -> DynamoDbJobStore:
    return DynamoDbJobStore(client, table="jobs", due_table="due")


def joins(client: Any) -> DynamoDbJoinStore:
    return DynamoDbJoinStore(client, table="runs")


def runs(client: Any) -> DynamoDbRunStore:
    return DynamoDbRunStore(client, table="runs")


def a_run() -> Any:
    return (
        runs(Working())
        .claim(MESSAGE, token="t", worker="w", pool="p", job_revision=1, now=NOON, lease_until=NOON)
        .run
    )


class Working:
    """Answers an update with a run that is RUNNING."""

    def update_item(self, **_: object) -> dict[str, Any]:
        attempt = {"M": {"worker": {"S": "w"}, "started_at": {"S": "2026-05-24T12:00:00Z"}}}
        return {
            "Attributes": {
                "job": {"S": f"{RUN.job.tenant}/{RUN.job.job_id}"},
                "run_id": {"S": RUN.run_id},
                "state": {"S": "RUNNING"},
                "attempts": {"L": [attempt]},
            }
        }


def requests(client: Any) -> DynamoDbRequestStore:
    return DynamoDbRequestStore(client, table="requests")


def keys(client: Any) -> DynamoDbKeyStore:
    return DynamoDbKeyStore(client, table="keys")


def endpoints(client: Any) -> DynamoDbEndpointStore:
    return DynamoDbEndpointStore(client, table="endpoints")


def shelf(client: Any) -> S3ScriptShelf:
    return S3ScriptShelf(client, lambda: client, bucket="scripts")


def run_queue(client: Any) -> SqsRunQueue:
    return SqsRunQueue(client, queues={"default": URL}, executor=InlineExecutor())


def delivery(client: Any) -> SqsDelivery:
    return SqsDelivery(client, URL, "body", "handle", "id", "group")


def borrow(client: Any) -> None:
    role = StsJobRole(client, role_arn="role", pool="default", environment={}, clock=Clock(NOON))
    with role.lent(RUN.job, Masker()):
        pytest.fail("the role was assumed")


CALLS: dict[str, Callable[[Any], object]] = {
    "note request": lambda c: requests(c).note("request-1", "{}", NOON),
    "list audit batches": lambda c: S3AuditLog(c, bucket="audit").last(),
    "read audit events": lambda c: S3AuditLog(c, bucket="audit").ids_since(BATCH, NOON),
    "append audit events": lambda c: S3AuditLog(c, bucket="audit").append(BATCH),
    "read lease": lambda c: control(c).lease(0),
    "replace lease": lambda c: control(c).replace_lease(0, None, LEASE),
    "renew lease": lambda c: control(c).replace_lease(0, LEASE, LEASE),
    "seed cursors": lambda c: control(c).seed_cursors(1, NOON),
    "read cursors": lambda c: control(c).cursors([0]),
    "move cursor": lambda c: control(c).move_cursor(0, NOON, 1),
    "take runs": lambda c: control(c).take_runs("acme", NOON, 1, 5),
    "read taken runs": lambda c: control(c).taken_runs("acme", NOON),
    "read audit": lambda c: control(c).audit(),
    "replace audit": lambda c: control(c).replace_audit(None, Audit(NOON)),
    "add to join": lambda c: joins(c).add(RUN, 0, "a:S", NOON),
    "read join": lambda c: joins(c).read(RUN, [0]),
    "begin sequence": lambda c: joins(c).begin_sequence(RUN, 1, NOON),
    "read sequences": lambda c: joins(c).begun_sequences(RUN.job),
    "end sequences": lambda c: joins(c).end_sequences(RUN.job, [RUN.run_id]),
    "check slots": lambda c: due(c).occupied([Slot("2026-05-24T12:00Z#000", "x")]),
    "read due": lambda c: list(due(c).read(NOON, 0, before=None, consistent=True)),
    "keep broken entry": lambda c: due(c).keep(BROKEN, NOON),
    "quarantine": lambda c: due(c).quarantine(BROKEN, NOON),
    "delete broken entry": lambda c: due(putting(c)).quarantine(BROKEN, NOON),
    "create job": lambda c: jobs(c).create(JOB, a_fire(JOB, NOON), NOON),
    "update job": lambda c: jobs(c).update(JOB, None, NOON),
    "create counted job": lambda c: jobs(c).create(COUNTED, None, NOON, most=1),
    "update counted job": lambda c: jobs(c).update(COUNTED, None, NOON, counts=1, most=1),
    "complete counted job": lambda c: jobs(c).complete(COUNTED, NOON),
    "get job": lambda c: jobs(c).get(JOB.key),
    "get jobs": lambda c: jobs(c).get_many([JOB.key]),
    "list jobs": lambda c: jobs(c).list("acme", cursor=None, limit=1),
    "list job ids": lambda c: jobs(c).ids("acme", after=None, limit=1),
    "read count": lambda c: jobs(c).counted("acme"),
    "scan jobs": lambda c: jobs(c).scan(None, limit=1),
    "complete job": lambda c: jobs(c).complete(JOB, NOON),
    "remove job": lambda c: jobs(c).remove(JOB),
    "skip jobs": lambda c: jobs(c).skip(None, 1),
    "pause job": lambda c: jobs(c).pause(JOB, "410 Gone", NOON),
    "claim run": lambda c: runs(c).claim(
        MESSAGE, token="t", worker="w", pool="p", job_revision=1, now=NOON, lease_until=NOON
    ),
    "advance run": lambda c: runs(c).advance(a_run(), a_run()),
    "cancel run": lambda c: runs(c).cancel(MESSAGE, reason="r", now=NOON),
    "skip run": lambda c: runs(c).skip(SKIPPED),
    "stop pending run": lambda c: runs(c).stop(Run(RUN, RunState.PENDING), reason="r", now=NOON),
    "stop running run": lambda c: runs(c).stop(a_run(), reason="r", now=NOON),
    "read runs": lambda c: list(runs(c).between(RUN.job, "0", "9")),
    "extend lease": lambda c: runs(c).extend(a_run(), lease_until=NOON),
    "get run": lambda c: runs(c).get(RUN),
    "peek run": lambda c: runs(c).peek(RUN),
    "save checkpoint": lambda c: runs(c).save(a_run(), Value(1, "1")),
    "mark buried": lambda c: runs(c).mark_death_published(a_run()),
    "redrive run": lambda c: runs(c).redrive(a_run(), a_retry(RUN, NOON), NOON),
    "bring run forward": lambda c: runs(c).bring_forward(
        a_run(), a_run(), a_retry(RUN, NOON), NOON
    ),
    "find runs": lambda c: runs(c).find([run_key()]),
    "list dead runs": lambda c: runs(c).list_dead(
        "acme", first=NOON, last=NOON, cursor=None, limit=1
    ),
    "ask for run": lambda c: runs(c).request(a_run(), a_retry(RUN, NOON), NOON),
    "skip next": lambda c: runs(c).skip_next(SKIPPED, JOB),
    "await parents": lambda c: runs(c).await_parents(SKIPPED, SKIPPED.awaiting_parents("r")),
    "undo skip": lambda c: runs(c).unskip(RUN, JOB),
    "begin request": lambda c: requests(c).begin("acme", "k", "f", NOON),
    "refuse request": lambda c: requests(c).refuse("acme", "k", NOON),
    "finish request": lambda c: requests(c).finish("acme", "k", NOON, "a"),
    "get endpoint": lambda c: endpoints(c).get(ENDPOINT.key),
    "get flow of calls": lambda c: endpoints(c).flow(ENDPOINT.key),
    "replace flow of calls": lambda c: endpoints(c).replace_flow(
        CallFlow(ENDPOINT.key), CallFlow(ENDPOINT.key, version=1)
    ),
    "list endpoints": lambda c: endpoints(c).list("acme", "calls", cursor=None, limit=1),
    "replace endpoint": lambda c: endpoints(c).replace(
        Endpoint(ENDPOINT.key), paused(ENDPOINT, "reason", NOON)
    ),
    "create key": lambda c: keys(c).create(KEY),
    "get key": lambda c: keys(c).get("acme", KEY.key_id),
    "list keys": lambda c: keys(c).list("acme", cursor=None, limit=1),
    "revoke key": lambda c: keys(c).revoke("acme", KEY.key_id, NOON),
    "end key": lambda c: keys(c).end("acme", KEY.key_id, NOON),
    "record use of key": lambda c: keys(c).note_use("acme", KEY.key_id, NOON.date()),
    "list runs": lambda c: runs(c).list(RUN.job, cursor=None, limit=1),
    "read backlog": lambda c: run_queue(c).backlog("default"),
    "receive": lambda c: SqsInbox(c, queue_url=URL).receive(1, wait=SECOND, hidden_for=SECOND),
    "hide": lambda c: delivery(c).hide(SECOND),
    "acknowledge": lambda c: SqsInbox(c, queue_url=URL).acknowledge([delivery(c)]),
    "show": lambda c: SqsInbox(c, queue_url=URL).show([delivery(c)]),
    "dead letter": lambda c: SqsDeadLetters(c, queue_url=URL).put("b", "f", dedup="d"),
    "fetch script": lambda c: S3ScriptStore(c).fetch(
        ScriptSource("s3://scripts/acme/x.py", "acme")
    ),
    "list scripts": lambda c: shelf(c).list("acme", pool=None, cursor=None, limit=1),
    "list versions of script": lambda c: shelf(c).versions(SCRIPT, cursor=None, limit=1),
    "put run file": lambda c: S3RunFiles(c, bucket="outputs").put(
        RunFolder(RUN, "default"), "result", b"1"
    ),
    "get run file": lambda c: S3RunFiles(c, bucket="outputs").get(
        RunFolder(RUN, "default"), "result"
    ),
    "put event": lambda c: EventBridgeEventBus(c, bus="bus").put(EVENT),
    "resolve secret": lambda c: AwsSecrets(c, c, pool="default").resolve(
        "acme", SecretReference(secret="s")
    ),
    "resolve parameter": lambda c: AwsSecrets(c, c, pool="default").resolve(
        "acme", ParameterReference(parameter="p")
    ),
    "assume role": borrow,
}
MEANT = {("ValidationException", "resolve"), ("ResourceNotFoundException", "resolve")}
"""Codes with a meaning specific to the request, by the first word of the call."""
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@every_call
def test_transient_errors_are_unavailable(call: Callable[[Any], object]) -> None:
    for code in sorted(TRANSIENT_CODES):
        error = refused(code)

        with pytest.raises(UnavailableError, match=code) as raised:
            call(Failing(error))

        assert raised.value.__cause__ is error, code


@every_call
@pytest.mark.parametrize("kind", [ClientError, RefusedError])
def test_error_of_the_server_is_unavailable_whatever_its_code(
    call: Callable[[Any], object], kind: type[Exception]
) -> None:
    for status in (500, 503, 599):
        with pytest.raises(UnavailableError, match="NeverHeardOf"):
            call(Failing(refused("NeverHeardOf", status, kind=kind)))


@every_call
def test_refusal_of_the_lean_client_comes_out_as_it_is(call: Callable[[Any], object]) -> None:
    error = refused("NeverHeardOf", kind=RefusedError)

    with pytest.raises(RefusedError) as raised:
        call(Failing(error))

    assert raised.value is error


@every_call
def test_error_of_the_network_is_unavailable(
    call: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    for error in NETWORK_ERRORS:
        caplog.clear()

        with pytest.raises(UnavailableError, match=type(error).__name__) as raised:
            call(Failing(error))

        assert raised.value.__cause__ is error
        assert str(error) not in str(raised.value), (
            "users read the message, and this text names the endpoint"
        )
        assert str(error) in caplog.text


@pytest.mark.parametrize("name", CALLS)
def test_permanent_errors_are_raised_unchanged(name: str) -> None:
    for code in ("ValidationException", "ResourceNotFoundException", "NeverHeardOf", ""):
        if (code, name.split(maxsplit=1)[0]) in MEANT:
            continue
        error = refused(code)

        with pytest.raises(ClientError) as raised:
            CALLS[name](Failing(error))

        assert raised.value is error, code


@every_call
def test_defects_are_raised_unchanged(call: Callable[[Any], object]) -> None:
    with pytest.raises(ZeroDivisionError):
        call(Failing(ZeroDivisionError()))


@pytest.mark.parametrize(
    "error", [refused("ThrottlingException"), refused("ValidationException"), *NETWORK_ERRORS]
)
def test_batch_that_fails_altogether_says_that_nothing_was_done(error: Exception) -> None:
    client: Any = Failing(error)
    assert run_queue(client).send([("default", MESSAGE), ("nowhere", MESSAGE)]) == set()
    assert due(client).put([a_fire(JOB, NOON)], NOON) == set()
    due(client).delete([Slot("2026-05-24T12:00Z#000", "x")])
    due(client).mark_held([StoredEntry(Slot("2026-05-24T12:00Z#000", "x"), a_fire(JOB, NOON))])


@pytest.mark.parametrize("reason", ["TransactionConflict", "ThrottlingError", "None"])
def test_transaction_cancelled_by_another_is_unavailable(reason: str) -> None:
    error = refused(
        "TransactionCanceledException", CancellationReasons=[{"Code": reason}, {"Code": "None"}]
    )

    for name in ("create job", "create counted job", "update counted job", "complete counted job"):
        with pytest.raises(UnavailableError, match=reason):
            CALLS[name](Failing(error))


def test_record_that_refused_a_request_and_is_gone_is_unavailable() -> None:
    reasons = [{"Code": "ConditionalCheckFailed"}, {"Code": "None"}]
    error = refused("TransactionCanceledException", CancellationReasons=reasons)

    with pytest.raises(UnavailableError, match="gone"):
        CALLS["ask for run"](Failing(error))


def test_an_unknown_version_is_not_a_cursor() -> None:
    client: Any = Failing(refused("InvalidArgument"))

    with pytest.raises(InvalidInputError, match="cursor"):
        shelf(client).versions(SCRIPT, cursor=encode_cursor("version"), limit=1)
    with pytest.raises(ClientError):
        shelf(client).versions(SCRIPT, cursor=None, limit=1)


@pytest.mark.parametrize(
    "code",
    [
        "InvalidParameterValue",
        "MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight",
        "ReceiptHandleIsInvalid",
    ],
)
def test_message_that_is_no_longer_ours_needs_no_hiding(code: str) -> None:
    delivery(Failing(refused(code))).hide(SECOND)


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("NoSuchKey", NotFoundError),
        ("NoSuchBucket", NotFoundError),
        ("404", NotFoundError),
        ("AccessDenied", InvalidInputError),
        ("403", InvalidInputError),
    ],
)
def test_script_that_cannot_be_had(code: str, family: type[Exception]) -> None:
    with pytest.raises(family):
        CALLS["fetch script"](Failing(refused(code)))


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("ResourceNotFoundException", NotFoundError),
        ("ParameterNotFound", NotFoundError),
        ("InvalidRequestException", NotFoundError),
        ("AccessDeniedException", InvalidInputError),
        ("DecryptionFailure", InvalidInputError),
        ("InvalidKeyId", InvalidInputError),
        ("InvalidParameterException", InvalidInputError),
        ("ValidationException", InvalidInputError),
    ],
)
@pytest.mark.parametrize("call", ["resolve secret", "resolve parameter"])
def test_reference_that_cannot_be_resolved(call: str, code: str, family: type[Exception]) -> None:
    with pytest.raises(family, match="nextfire/pools/default/acme/"):
        CALLS[call](Failing(refused(code)))


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException"])
def test_role_that_cannot_be_assumed(code: str) -> None:
    with pytest.raises(InvalidInputError, match="sts:TagSession"):
        borrow(Failing(refused(code)))


def test_missing_run_file_is_read_as_none() -> None:
    assert CALLS["get run file"](Failing(refused("NoSuchKey"))) is None


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied"])
def test_run_file_that_cannot_be_read_is_an_error(code: str) -> None:
    with pytest.raises(ClientError):
        CALLS["get run file"](Failing(refused(code)))


def test_file_that_breaks_off_is_unavailable() -> None:
    class Body:
        def read(self) -> bytes:
            raise ResponseStreamingError(error="connection reset")

    class Client:
        def get_object(self, **_: object) -> dict[str, Any]:
            return {"ContentLength": 1, "ETag": '"e"', "Body": Body()}

    for name in ("fetch script", "get run file"):
        with pytest.raises(UnavailableError):
            CALLS[name](Client())


def test_every_call_of_an_adapter_is_walked() -> None:
    """A new method needs an entry above."""
    walked = {
        name
        for adapter in (
            DynamoDbControlStore, DynamoDbDueStore, DynamoDbJobStore, DynamoDbRunStore,
            DynamoDbKeyStore, DynamoDbRequestStore, DynamoDbEndpointStore,
            SqsRunQueue, SqsDelivery, SqsInbox, SqsDeadLetters, S3ScriptStore, S3ScriptShelf,
            S3RunFiles, AwsSecrets, EventBridgeEventBus, StsJobRole, S3AuditLog,
        )
        for name in dir(adapter)
        if not name.startswith("_") and callable(getattr(adapter, name))
    }  # fmt: skip

    assert walked == {
        *("lease", "replace_lease", "seed_cursors", "cursors", "move_cursor"),
        *("audit", "replace_audit", "take_runs", "taken_runs"),
        *("read", "occupied", "put", "mark_held", "delete", "keep", "quarantine"),
        *("create", "update", "get", "get_many", "list", "ids", "scan", "complete", "counted"),
        *("remove", "skip"),
        "pause",
        *("claim", "advance", "cancel", "extend", "skip", "stop", "between"),
        *("peek", "save", "mark_death_published", "redrive", "list_dead", "find"),
        "bring_forward",
        *("request", "skip_next", "unskip", "await_parents"),
        *("begin", "finish", "refuse", "note", "replace", "flow", "replace_flow"),
        *("last", "ids_since", "append", "read"),
        *("revoke", "end", "note_use"),
        *("send", "backlog", "hide", "acknowledge", "show", "receive", "fetch"),
        *("upload", "versions"),  # an upload makes no call: it signs a URL locally
        *("resolve", "lent"),
        *(
            "answer",
            "close",
            "credentials",
        ),  # calls of a job role to its own server; only `lent` calls AWS
    }
