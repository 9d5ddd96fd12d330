"""Request models: bodies, and parameters of paths, queries and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, TypeVar
from unicodedata import category

from aws_lambda_powertools.event_handler.openapi.params import Body, Header, Query
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from functions.api.bounds import check_bounds
from functions.api.documents import UNREADABLE
from functions.api.problems import UnfitError
from nextfire.domain.backfill import MOST, Order
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JOB_ID
from nextfire.domain.instants import isoformat
from nextfire.domain.job import (
    HANDLER,
    MAX_LABELS,
    Document,
    InstantText,
    JobDefinition,
    JobState,
    LabelKey,
    LabelValue,
    WhenDocument,
)
from nextfire.domain.key_text import KEY_ID
from nextfire.domain.keys import (
    DEFAULT_LIFE,
    DEFAULT_OVERLAP,
    MAX_LIFE,
    MAX_NAME,
    MAX_OVERLAP,
    Scope,
)
from nextfire.domain.restriction import (
    MAX_CIDRS,
    MAX_KEY_LABELS,
    Restriction,
    restriction,
)
from nextfire.domain.run import RunState
from nextfire.domain.schedule import ScheduleType, read_instant
from nextfire.domain.script import MAX_SCRIPT_BYTES, SIGNATURE
from nextfire.usecases.manage_backfills import BackfillRange

MOST_UPCOMING = 100
MOST_REDRIVEN = 100
MOST_IN_A_BATCH = 100
MAX_REASON = 256
_MOST_ON_A_PAGE = 100
_MOST_LINES = 1000
_MOST_ATTEMPTS = 999_999_999
_LAST_NIGHT = timedelta(days=1)
_TEXT = WithJsonSchema({"type": "string"})
_INSTANT = WithJsonSchema({"type": "string", "format": "date-time"})
_UTC = "ISO 8601. UTC if it has no offset."
_TAG = re.compile(r'(W/)?"[!#-~]*"')
_NUMBER = re.compile(r"[0-9]{1,9}")  # int() refuses thousands of digits


MOST_OF_A_PARAMETER = 4096
"""Characters of a parameter of the query, and of a header."""


def too_long(field: str, text: str) -> InvalidInputError:
    return InvalidInputError(
        field,
        f"{len(text)} characters",
        f"longer than {MOST_OF_A_PARAMETER} characters",
        f"Shorten it to {MOST_OF_A_PARAMETER} characters.",
    )


def _refused(kind: str, problem: str, remedy: str) -> PydanticCustomError:
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "remedy": remedy})


Model = TypeVar("Model", bound=Document)

# Bodies


def reading(model: type[Document]) -> WrapValidator:
    """A validator that reads a JSON body into *model* by camelCase names only: a snake_case name
    next to the real field would be dropped silently.
    """
    return WrapValidator(lambda body, _: read_as(model, body))


def read_as(model: type[Model], body: object) -> Model:
    """Parse *body* as *model*.

    Raises:
        ValidationError: The body is invalid.
        InvalidInputError: The body has too many entries.
    """
    check_bounds(model, body)
    return model.model_validate_json(json.dumps(body), by_alias=True, by_name=False)


def _example(value: dict[str, Any]) -> Any:  # noqa: ANN401 — the library's own type is a model
    return {"example": {"value": value}}


def _line(text: str | None) -> str | None:
    if text is None:
        return None
    if len(text) > MAX_REASON:
        problem = f"longer than {MAX_REASON} characters"
        remedy = f"Shorten it to {MAX_REASON} characters."
    elif any(category(character) == "Cc" for character in text):
        problem = "holds control characters"
        remedy = "Write it on one line, without tabs and line breaks."
    elif not text.strip():
        problem, remedy = "blank", "Say why, or leave it out."
    else:
        return text
    raise _refused("reason", problem, f"{remedy} For example `the ledger is closed`.")


Reason = Annotated[
    str | None,
    AfterValidator(_line),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_REASON}, {"type": "null"}]}
    ),
]
"""Reason of a request: one line of text."""
_REASON = _example({"reason": "the ledger is closed"})


def _id(value: object) -> object:
    if isinstance(value, str) and JOB_ID.fullmatch(value):
        return value
    remedy = "Use 1 to 64 letters, digits, hyphens and underscores."
    raise _refused("job_id", "not a job id", remedy)


_JOB_ID_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": f"^{JOB_ID.pattern}$", "examples": ["daily-invoices"]}
)
JobId = Annotated[str, BeforeValidator(_id), _JOB_ID_SCHEMA]
"""Job id: chosen by the caller, or `job_` and 16 hexadecimal digits."""


class JobRequest(JobDefinition):
    """A new job. Without `jobId`, an id is generated."""

    model_config = ConfigDict(defer_build=True)  # built on first use

    spelt: ClassVar[Mapping[str, str]] = {}
    """Field names in the short form, by field name in the long form."""

    job_id: JobId | None = None

    @property
    def definition(self) -> JobDefinition:
        # Each field has been validated.
        values = {name: getattr(self, name) for name in JobDefinition.model_fields}
        return JobDefinition.model_construct(self.model_fields_set - {"job_id"}, **values)


class ShortJob(JobRequest):
    """A new job in the short form: `taskId`, `cron` and `params` replace `jobId`, `schedule` and
    `payload`; all other fields except `type` are allowed. The handler defaults to the task id.
    """

    spelt: ClassVar[Mapping[str, str]] = {
        "jobId": "taskId",
        "schedule": "cron",
        "payload": "params",
    }


def read_job(body: object) -> JobRequest:
    """Parse a new job in the long or the short form.

    Raises:
        ValidationError, UnfitError, InvalidInputError: The body is invalid.
    """
    names = {short: long for long, short in ShortJob.spelt.items()}
    if not isinstance(body, dict) or not body.keys() & names.keys():
        return read_as(JobRequest, body)
    for name in ("type", *names.values()):
        if name in body:
            remedy = "Write the job with `type` and `schedule`, or with `taskId` and `cron`."
            raise InvalidInputError(
                name, body[name], "not allowed together with taskId, cron and params", remedy
            )
    long: dict[str, Any] = {"type": ScheduleType.CRON, "schedule": None}
    if isinstance(body.get("taskId"), str):
        long["target"] = {"handler": body["taskId"]}
    long |= {names.get(name) or name: value for name, value in body.items()}
    try:
        job = read_as(ShortJob, long)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        if "target" not in body and any(fault["loc"][0] == "jobId" for fault in faults):
            faults = [fault for fault in faults if fault["loc"][0] != "target"]
        errors = [_as_spelt(fault, "target" in body) for fault in faults]
        raise UnfitError(errors, ShortJob) from error
    if job.job_id is None:
        raise InvalidInputError("taskId", body.get("taskId"), "absent", "Add this field.")
    return job


def _as_spelt(fault: ErrorDetails, has_target: bool) -> ErrorDetails:  # noqa: FBT001
    first, *rest = fault["loc"]
    if first == "target" and not has_target:
        return {**fault, "loc": ("taskId",)}  # which is its handler
    return {**fault, "loc": (ShortJob.spelt.get(str(first), first), *rest)}


class PreviewRequest(WhenDocument):
    """The schedule fields of a job, as if the job were stored at `after` (default: now)."""

    count: Annotated[int, Field(strict=True, ge=1, le=MOST_UPCOMING)] = 10
    after: InstantText | None = None


def _in_utc(text: str, field: str) -> datetime:
    """Parse *text* as an instant, in UTC if it has no offset.

    Raises:
        InvalidInputError: *text* is not an instant.
    """
    return read_instant(text, "UTC", field, whose="UTC; in a URL a `+` is written `%2B`")


class PauseRequest(Document):
    """Pause a job until `until`, or until it is resumed if `until` is absent."""

    reason: Reason = None
    until: InstantText | None = Field(default=None, description=_UTC)

    @property
    def ends_at(self) -> datetime | None:
        """Raises:
        InvalidInputError: `until` is not an instant.
        """
        return None if self.until is None else _in_utc(self.until, "until")


class DrainRequest(Document):
    """Drain a job."""

    reason: Reason = None


class ResumeRequest(Document):
    """An empty object."""


class RunNowRequest(Document):
    """Run a job now. `payload`, if present, replaces that of the job, even if it is null."""

    payload: JsonValue = None
    reason: Reason = None


class SkipRequest(Document):
    """Skip the next occurrence."""

    reason: Reason = None


class BackfillRequest(Document):
    """Run the past occurrences at or after `from` and before `to`. The request is rejected if there
    are more than `max`.
    """

    from_: InstantText = Field(alias="from", description=_UTC)
    to: InstantText = Field(description=_UTC)
    max: Annotated[int, Field(strict=True, ge=1, le=MOST)] = MOST
    order: Order = Order.OLDEST_FIRST
    reason: Reason = None

    @property
    def wanted(self) -> BackfillRange:
        """Raises:
        InvalidInputError: `from` or `to` is not an instant.
        """
        return BackfillRange(
            _in_utc(self.from_, "from"),
            _in_utc(self.to, "to"),
            self.max,
            self.order,
            self.reason,
        )


class CancelRequest(Document):
    """Cancel an execution."""

    reason: Reason = None


class RedriveRequest(Document):
    """Redrive a dead execution."""

    reason: Reason = None


class RedrivePoolRequest(Document):
    """Redrive up to `limit` executions of a pool that became DEAD between `from` (default: 24 h
    before `to`) and `to` (default: now), starting at `cursor`.
    """

    from_: InstantText | None = Field(default=None, alias="from", description=_UTC)
    to: InstantText | None = Field(default=None, description=_UTC)
    limit: Annotated[int, Field(strict=True, ge=1, le=MOST_REDRIVEN)] = 50
    cursor: Annotated[str, Field(max_length=1024)] | None = None
    reason: Reason = None


def _key_id(value: object) -> object:
    if isinstance(value, str) and KEY_ID.fullmatch(value):
        return value
    raise _refused("key_id", "not the id of a key", "It is 16 hexadecimal digits: list the keys.")


KeyId = Annotated[
    str,
    BeforeValidator(_key_id),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{KEY_ID.pattern}$", "examples": ["3f9c0a77d1e2b456"]}
    ),
]
"""The id of an API key: the third part of its text."""
Life = Annotated[int, Field(strict=True, ge=60, le=int(MAX_LIFE.total_seconds()))]


class KeyRequest(Document):
    """A new API key of your tenant. `name`: who or what uses it. `cidrs`: networks that it may be
    used from. `labels`: labels that a job must have to be accessible. A key created with a
    restricted key has at least the same restrictions.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    expires_in_sec: Life = int(DEFAULT_LIFE.total_seconds())
    cidrs: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_CIDRS)] = (
        Field(default_factory=list)
    )
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_KEY_LABELS)] = Field(
        default_factory=dict
    )

    @property
    def restriction(self) -> Restriction:
        """The requested restriction.

        Raises:
            InvalidInputError: `cidrs` or `labels` is invalid.
        """
        return restriction(self.cidrs, self.labels)

    @property
    def life(self) -> timedelta:
        return timedelta(seconds=self.expires_in_sec)


class RotateRequest(Document):
    """Rotate a key. `expiresInSec`: lifetime of the new key (default: the lifetime of the old one).
    `overlapSec`: how long the old key remains valid.
    """

    expires_in_sec: Life | None = None
    overlap_sec: Annotated[int, Field(strict=True, ge=0, le=int(MAX_OVERLAP.total_seconds()))] = (
        int(DEFAULT_OVERLAP.total_seconds())
    )

    @property
    def life(self) -> timedelta | None:
        return None if self.expires_in_sec is None else timedelta(seconds=self.expires_in_sec)

    @property
    def overlap(self) -> timedelta:
        return timedelta(seconds=self.overlap_sec)


class BatchRequest(Document):
    """New jobs, in the long or the short form."""

    jobs: Annotated[
        list[Any],
        Field(min_length=1, max_length=MOST_IN_A_BATCH),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_IN_A_BATCH,
                "items": {
                    "anyOf": [
                        {"$ref": f"#/components/schemas/{form}"}
                        for form in ("JobRequest", "ShortJob")
                    ]
                },
            }
        ),
    ]


def _some(labels: dict[str, str]) -> dict[str, str]:
    if not labels:
        remedy = 'Name at least one. For example `{"team": "billing"}`.'
        raise _refused("labels", "names no label", remedy)
    return labels


class LabelledRequest(Document):
    """Selects the jobs that have all `labels`. `progressToken`: from the previous call."""

    labels: Annotated[
        dict[LabelKey, LabelValue],
        Field(max_length=MAX_LABELS, json_schema_extra={"minProperties": 1}),
        AfterValidator(_some),
    ]
    progress_token: Annotated[str, Field(max_length=1024)] | None = None


class PauseManyRequest(LabelledRequest):
    """Pause the jobs until `until`, or until they are resumed if `until` is absent."""

    reason: Reason = None
    until: InstantText | None = Field(default=None, description=_UTC)

    @property
    def ends_at(self) -> datetime | None:
        """Raises:
        InvalidInputError: `until` is not an instant.
        """
        return None if self.until is None else _in_utc(self.until, "until")


class ResumeManyRequest(LabelledRequest):
    """Resume the jobs that have all `labels`."""


class CancelManyRequest(LabelledRequest):
    """Delete the jobs that have all `labels`."""


def _handler(value: object) -> object:
    if isinstance(value, str) and HANDLER.fullmatch(value):
        return value
    remedy = (
        "At most 128 letters, digits, `_`, `.` and `-`, beginning with a letter or a digit. For"
        " example `report`, or `report.zip`."
    )
    raise _refused("handler", "not the name of a script of the pool", remedy)


HandlerName = Annotated[
    str,
    BeforeValidator(_handler),
    WithJsonSchema({"type": "string", "pattern": f"^{HANDLER.pattern}$", "examples": ["report"]}),
]
"""Name that jobs use for a script."""


class UploadRequest(Document):
    """A script to upload. `handler`: the name that jobs use (with `.zip` for an archive). `size`:
    in bytes. `sha256`: digest in hexadecimal digits. `signature`: ed25519 in base64, stored with
    the script for pools that trust signers.
    """

    pool: Annotated[str, Field(min_length=1, max_length=64)] = "default"
    handler: HandlerName
    size: Annotated[int, Field(strict=True, ge=1, le=MAX_SCRIPT_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=rf"^{SIGNATURE.pattern}$")] | None = None


_CRON_JOB = {
    "jobId": "daily-invoices",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "timezone": "America/Los_Angeles",
    "target": {"handler": "generate_invoices"},
    "payload": {"customer": "acme"},
}
_SHORT_JOB = {"taskId": "daily-report", "cron": "*/5 * * * *", "params": {"region": "eu"}}
_reading_job = WrapValidator(lambda body, _: read_job(body))
JobBody = Annotated[
    JobRequest,
    Body(openapi_examples=_example(_CRON_JOB) | {"short": {"value": _SHORT_JOB}}),
    _reading_job,
]
JobPutBody = Annotated[
    JobRequest,
    Body(openapi_examples=_example({k: v for k, v in _CRON_JOB.items() if k != "jobId"})),
    _reading_job,
]
BatchBody = Annotated[
    BatchRequest,
    Body(openapi_examples=_example({"jobs": [_CRON_JOB, _SHORT_JOB]})),
    reading(BatchRequest),
]
_LABELS = {"labels": {"team": "billing"}}
PauseManyBody = Annotated[
    PauseManyRequest,
    Body(openapi_examples=_example({**_LABELS, "reason": "the ledger is closed"})),
    reading(PauseManyRequest),
]
ResumeManyBody = Annotated[
    ResumeManyRequest, Body(openapi_examples=_example(_LABELS)), reading(ResumeManyRequest)
]
CancelManyBody = Annotated[
    CancelManyRequest, Body(openapi_examples=_example(_LABELS)), reading(CancelManyRequest)
]
UploadBody = Annotated[
    UploadRequest,
    Body(
        openapi_examples=_example(
            {
                "handler": "report",
                "size": 12,
                "sha256": "a8075bf0eccd3da8fc9ac4ee86c5ae7a7ad7d1f93ded0dbdb3d20ee94f5e1f35",
            }
        )
    ),
    reading(UploadRequest),
]
JobPatchBody = Annotated[
    dict[str, Any],
    Body(openapi_examples=_example({"schedule": "0 4 * * *", "labels": {"team": "billing"}})),
    WithJsonSchema({"type": "object", "title": "JobPatch"}),
]
"""A JSON merge patch (RFC 7396) of a job."""
PreviewBody = Annotated[
    PreviewRequest,
    Body(openapi_examples=_example({"type": "CRON", "schedule": "0 9 * * MON-FRI", "count": 3})),
    reading(PreviewRequest),
]
PauseBody = Annotated[PauseRequest, Body(openapi_examples=_REASON), reading(PauseRequest)]
DrainBody = Annotated[DrainRequest, Body(openapi_examples=_REASON), reading(DrainRequest)]
ResumeBody = Annotated[ResumeRequest, Body(), reading(ResumeRequest)]
RunNowBody = Annotated[
    RunNowRequest,
    Body(openapi_examples=_example({"payload": {"customer": "acme"}, "reason": "it was wrong"})),
    reading(RunNowRequest),
]
SkipBody = Annotated[SkipRequest, Body(openapi_examples=_REASON), reading(SkipRequest)]
BackfillBody = Annotated[
    BackfillRequest,
    Body(
        openapi_examples=_example(
            {"from": "2026-05-01T00:00:00Z", "to": "2026-05-03T00:00:00Z", "reason": "a new job"}
        )
    ),
    reading(BackfillRequest),
]
CancelBody = Annotated[CancelRequest, Body(openapi_examples=_REASON), reading(CancelRequest)]
RedriveBody = Annotated[RedriveRequest, Body(openapi_examples=_REASON), reading(RedriveRequest)]
RedrivePoolBody = Annotated[
    RedrivePoolRequest,
    Body(openapi_examples=_example({"limit": 50})),
    reading(RedrivePoolRequest),
]
KeyBody = Annotated[
    KeyRequest,
    Body(openapi_examples=_example({"name": "ci", "scopes": ["write"], "expiresInSec": 7_776_000})),
    reading(KeyRequest),
]
RotateBody = Annotated[
    RotateRequest, Body(openapi_examples=_example({"overlapSec": 3600})), reading(RotateRequest)
]


# Parameters


_JOB_STATES = [*JobState, UNREADABLE]


def _known_state(states: list[str], whose: str) -> Callable[[str | None], str | None]:
    def known(text: str | None) -> str | None:
        if text is None or text in states:
            return text
        raise _refused("state", f"not a state of {whose}", f"Available: {', '.join(states)}.")

    return known


def _id_or_none(value: str | None) -> str | None:
    return None if value is None else str(_id(value))


def _number(most: int, example: int) -> tuple[BeforeValidator, WithJsonSchema]:
    def read(text: object) -> int:
        if isinstance(text, int):
            return text
        if isinstance(text, str) and _NUMBER.fullmatch(text) and 1 <= int(text) <= most:
            return int(text)
        raise _refused("number", f"not a number from 1 to {most}", f"For example `{example}`.")

    return BeforeValidator(read), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": most})


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="Only if the job still has this `ETag`; `*`: only if the job exists.",
    ),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\*|{_TAG.pattern}(, ?{_TAG.pattern})*)$",
            "examples": ['"k3x9m2abk3x9m2ab-1"'],
        }
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only if the job does not exist."),
    WithJsonSchema({"const": "*"}),
]


def versions(if_match: str | None) -> frozenset[str] | None:
    """The versions in an If-Match header; None if it is `*` or absent.

    Raises:
        InvalidInputError: The header is invalid.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    if len(if_match) > MOST_OF_A_PARAMETER:
        raise too_long("If-Match", if_match)
    tags = [tag.strip() for tag in if_match.split(",")]
    if not all(map(_TAG.fullmatch, tags)):
        raise InvalidInputError(
            "If-Match",
            if_match,
            "not an entity tag",
            "Send an ETag verbatim, including its quotes.",
        )
    # A weak tag never matches.
    return frozenset(tag.strip('"') for tag in tags if tag.startswith('"'))


def is_any(if_none_match: str | None) -> bool:
    """Whether the job must not exist (`If-None-Match: *`).

    Raises:
        InvalidInputError: The header is not `*`.
    """
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidInputError("If-None-Match", if_none_match, "not `*`", "Send `*`.")
    return if_none_match is not None


def is_there(if_match: str | None) -> bool:
    """Whether the job must exist in any version (`If-Match: *`)."""
    return if_match is not None and if_match.strip() == "*"


ExecutionId = Annotated[
    str,
    WithJsonSchema({"type": "string", "examples": ["daily-invoices.20260524T100000000Z-k3x9m2ab"]}),
]
Limit = Annotated[
    int, Query(description="Maximum number of items on a page."), *_number(_MOST_ON_A_PAGE, 50)
]
Lines = Annotated[
    int, Query(description="Maximum number of lines on a page."), *_number(_MOST_LINES, 200)
]
Count = Annotated[
    int, Query(description="Maximum number of occurrences."), *_number(MOST_UPCOMING, 10)
]
AttemptNumber = Annotated[
    int | None,
    Query(description="Only lines of this attempt. Default: all attempts."),
    *_number(_MOST_ATTEMPTS, 1),
]
Cursor = Annotated[
    str | None,
    Query(description="`cursor` of the previous page.", max_length=MOST_OF_A_PARAMETER),
]
JobStateFilter = Annotated[
    str | None,
    Query(description="Only this state. UNREADABLE: stored items that cannot be decoded."),
    AfterValidator(_known_state(_JOB_STATES, "a job")),
    WithJsonSchema({"enum": _JOB_STATES}),
]
Labels = Annotated[
    list[str] | None,
    Query(
        alias="label",
        description="`key:value`: only jobs with this label. Repeat the parameter or separate"
        " labels by commas to require all of them. Keys with a colon and labels with a comma"
        " cannot be queried.",
    ),
]
NamePrefix = Annotated[
    str | None, Query(description="Only jobs whose name starts with this prefix."), _TEXT
]


def labels(texts: list[str] | None) -> dict[str, str]:
    """Parse the labels of the query.

    Raises:
        InvalidInputError: A label is invalid, there are too many, or a key has two values.
    """
    found: dict[str, str] = {}
    if len(texts or []) > MAX_LABELS:
        raise InvalidInputError(
            "label",
            f"{len(texts or [])} labels",
            f"more than {MAX_LABELS}, which no job has",
            f"Name at most {MAX_LABELS}. For example `team:billing`.",
        )
    for text in texts or []:
        key, colon, value = text.partition(":")
        if not key or not colon:
            raise InvalidInputError("label", text, "not `key:value`", "For example `team:billing`.")
        if found.setdefault(key, value) != value:
            raise InvalidInputError(
                "label", text, f"another value of {key!r} than before", "A label has one value."
            )
    return found


PoolName = Annotated[str, WithJsonSchema({"type": "string", "examples": ["default"]})]
PoolFilter = Annotated[str | None, Query(description="Only this pool."), _TEXT]
ExecutionState = Annotated[
    str | None,
    Query(description="Only this state. UNREADABLE: stored items that cannot be decoded."),
    AfterValidator(_known_state([*RunState, UNREADABLE], "an execution")),
    WithJsonSchema({"enum": [*RunState, UNREADABLE]}),
]
OfJob = Annotated[
    str | None,
    Query(alias="jobId", description="Only executions of this job."),
    AfterValidator(_id_or_none),
    WithJsonSchema(_JOB_ID_SCHEMA.json_schema),
]
From = Annotated[
    str | None,
    Query(alias="from", description=f"Start. Default: 24 h before `to`. {_UTC}"),
    _INSTANT,
]
To = Annotated[str | None, Query(description=f"End. Default: now. {_UTC}"), _INSTANT]


def span(first: str | None, last: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Parse *first* and *last*. Defaults: 24 h before the end, and *now*.

    Raises:
        InvalidInputError: One is not an instant, or *first* is later than *last*.
    """
    to = now if last is None else _in_utc(last, "to")
    since = to - _LAST_NIGHT if first is None else _in_utc(first, "from")
    if since > to:
        raise InvalidInputError(
            "from",
            isoformat(since),
            f"later than `to`, which is {isoformat(to)}",
            "Exchange them, or leave one out: `to` is now by default, `from` 24 h before `to`.",
        )
    return since, to
