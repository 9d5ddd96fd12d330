"""The resolver of all routes, their services, and the mapping of errors to responses."""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any, cast, get_args

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.middlewares.openapi_validation import (
    OpenAPIRequestValidationMiddleware,
)
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from functions.api.access import AccessibleJobs, AccessibleRuns, check_code, set_access
from functions.api.body import read_body
from functions.api.current_request import changed_by
from functions.api.identity import Identity, identify
from functions.api.operation import BY_LABEL, OPEN, SCOPE
from functions.api.problems import (
    MalformedError,
    MissingScopeError,
    from_validation,
    problem,
    problem_of,
    unreadable,
)
from functions.api.request_record import RecordingKeyStore, RequestThreadPool
from functions.api.requests import MAX_PARAMETER_CHARS, too_long
from functions.api.resolver_parts import check_requests_with, routes_of
from functions.api.target_checks import target_check
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import (
    InvalidInputError,
    NextfireError,
    NotFoundError,
    UndecodableError,
    shorten,
)
from nextfire.domain.instants import floor_minute
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.pages import Unreadable
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import RunFiles
from nextfire.domain.quotas import Quota, too_many_requests
from nextfire.domain.remedies import nearest
from nextfire.domain.restriction import RestrictedError
from nextfire.responses.base import one_line
from nextfire.settings import ApiSettings
from nextfire.usecases.cancel_sequence import CancelSequence
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.limit_requests import LimitRequests
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_keys import ManageKeys
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.manage_scripts import ManageScripts
from nextfire.usecases.many_jobs import BulkJobs
from nextfire.usecases.read_logs import ReadLogs
from nextfire.usecases.read_quotas import ReadQuotas
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakeWatchers, WakingJobs, WakingRuns
from nextfire.wiring.api import ApiPorts, api_ports
from nextfire.wiring.telemetry import Telemetry

_SIDE_BY_SIDE = 10

telemetry = Telemetry("api")
clock = SystemClock()
app = APIGatewayHttpResolver(
    strip_prefixes=["/api"], enable_validation=True, json_body_deserializer=read_body
)


class Services:
    """The use cases and stores of the routes, built on the first request of a process. *ports*,
    *given_clock*: by default the adapters and the clock of this process.
    """

    def __init__(
        self, settings: ApiSettings, ports: ApiPorts | None = None, given_clock: Clock | None = None
    ) -> None:
        self.clock = given_clock or clock
        ports = ports or api_ports(settings, changed_by)
        # The wrappers pass on what they do not define, which no type says.
        jobs, runs = _waking(ports, settings, self.clock)
        self.job_store = cast("JobStore", AccessibleJobs(jobs))
        self.runs = cast("RunStore", AccessibleRuns(runs, self.job_store))
        self.files: RunFiles = ports.files
        self.pools = sorted(settings.pools)
        limits = Limits(
            {name: pool.max_timeout for name, pool in settings.pools.items()},
            settings.scripts_bucket,
            settings.quotas,
            target_check(settings.pools),
        )
        unsent = FindUnsent(ports.due, ports.control, read_shards=settings.read_shards)
        self.jobs = ManageJobs(self.job_store, limits, unsent, check=check_code)
        self.backfills = ManageBackfills(self.job_store, unsent)
        side_by_side = RequestThreadPool(_SIDE_BY_SIDE)
        self.many_jobs = BulkJobs(
            self.jobs, self.job_store, clock=self.clock, executor=side_by_side
        )
        self.find_run = FindRun(
            self.job_store,
            self.runs,
            retention=settings.run_retention.shortest,
            clock=self.clock,
            joins=ports.joins,
        )
        self.executions = ManageRuns(
            self.job_store,
            self.runs,
            self.find_run,
            pools=self.pools,
            clock=self.clock,
            executor=side_by_side,
        )
        self.sequences = RedriveSequence(
            self.job_store, self.runs, pools=self.pools, clock=clock, executor=side_by_side
        )
        self.cancel_sequence = CancelSequence(
            self.job_store, self.runs, self.find_run, clock=clock, executor=side_by_side
        )
        self.request_runs = RequestRuns(
            self.job_store,
            self.runs,
            self.find_run,
            pools=self.pools,
            clock=self.clock,
            quotas=settings.quotas,
        )
        self.skips = SkipNext(self.job_store, self.runs, clock=self.clock)
        self.quotas = ReadQuotas(
            self.job_store, ports.control, settings.quotas, settings.tenant_weights
        )
        self.logs = ReadLogs(self.find_run, self.files)
        self.scripts = ManageScripts(ports.shelf, self.pools)
        self.scripts_bucket = settings.scripts_bucket
        self.endpoints = ManageEndpoints(ports.endpoints, self.pools)
        self.overview = ports.overview
        self.requests = ports.requests
        self.note_change = ports.note_change
        self.tenant_quotas = settings.quotas
        self.limit_requests = LimitRequests(ports.buckets, _report_uncounted)
        self.auth = settings.auth
        self.tenant_claim = settings.tenant_claim
        self.iam_rules = settings.iam_rules
        self.keys = ManageKeys(cast("KeyStore", RecordingKeyStore(ports.keys)))
        # Before the first due entry is written there is a cursor at or before its bucket, so the
        # watcher finds it however late it first comes.
        ports.control.seed_cursors(settings.read_shards, floor_minute(self.clock.now()))

    def pool(self, name: str) -> str:
        """Return *name* if the pool exists.

        Raises:
            NotFoundError: The pool does not exist.
        """
        if name not in self.pools:
            raise NotFoundError("pool", name, self.pools_there_are())
        return name

    def pools_there_are(self) -> str:
        return f"Available: {', '.join(self.pools)}."


def _waking(ports: ApiPorts, settings: ApiSettings, clock: Clock) -> tuple[JobStore, RunStore]:
    """The stores of *ports*. If watchers sleep, writes of entries that are due soon wake them."""
    if ports.waker is None:
        return ports.jobs, ports.runs
    wake = WakeWatchers(
        ports.control,
        ports.waker,
        clock,
        telemetry,
        shards=settings.write_shards,
        groups=settings.groups,
    )
    waking = WakingJobs(ports.jobs, wake), WakingRuns(ports.runs, wake)
    return cast("tuple[JobStore, RunStore]", waking)


_given: ContextVar[Services | None] = ContextVar("given", default=None)


@cache
def own_services() -> Services:
    """The services of this process, by its environment."""
    return Services(ApiSettings.read())


def services() -> Services:
    """The services of the current request."""
    return _given.get() or own_services()


@contextmanager
def serving(given: Services) -> Iterator[None]:
    """Serve the requests of this context by *given*: `nextfire.testing` has several stacks in one
    process.
    """
    before = _given.set(given)
    try:
        yield
    finally:
        _given.reset(before)


def now() -> datetime:
    given = _given.get()
    return (clock if given is None else given.clock).now()


def caller() -> Identity:
    """The identity of the caller of the current request.

    Raises:
        PermissionError: The request has no identity, which is a bug.
    """
    return identify_event(app.current_event.raw_event)


def identify_event(event: Mapping[str, Any]) -> Identity:
    """The identity of the caller of *event*; see `caller`."""
    known = services()
    return identify(
        event["requestContext"].get("authorizer"),
        tenant_claim=known.tenant_claim,
        iam_rules=known.iam_rules,
    )


def tenant() -> str:
    """The tenant of the caller. It comes from the identity, never from the request."""
    return caller().tenant


def header(name: str) -> str | None:
    """The value of the header *name*, case-insensitive."""
    wanted = name.lower()
    for given, value in app.current_event.headers.items():
        if given.lower() == wanted:
            return value
    return None


def log_unreadable(found: Iterable[Unreadable]) -> None:
    path = app.current_event.path
    for each in found:
        telemetry.logger.error(
            "stored item does not decode", path=path, item=each.identity, problem=each.problem
        )


class _Checks(OpenAPIRequestValidationMiddleware):
    """What Powertools checks of a request, and before it: who asks, whether they may, and whether
    all that the query names is known.
    """

    def handler(self, app: Any, next_middleware: NextMiddleware) -> Response[Any]:  # noqa: ANN401 — as the library has it
        route = app.context["_route"]
        # The answer to unknown paths has no extensions, and everyone who is let in gets it.
        extensions = route.openapi_extensions or {}
        if extensions.get(SCOPE) != OPEN:
            _check_caller(extensions.get(SCOPE), extensions.get(BY_LABEL))
        if route.openapi_extensions is not None:
            _check_query([field.alias for field in route.dependant.query_params])
        return super().handler(app, next_middleware)

    def _get_body(self, app: Any) -> dict[str, Any]:  # noqa: ANN401
        # Whatever its content type says: curl calls all that it sends a form.
        [field] = app.context["_route"].dependant.body_params
        event = app.current_event
        try:
            body = event.json_body
            return read_body("") if body is None and field.required else body
        except (binascii.Error, UnicodeDecodeError) as error:
            raise MalformedError("The body is not UTF-8 text.") from error
        except MalformedError as error:
            if field.required:
                raise
            raise MalformedError(f"{error} {_what_may_be_sent(field.field_info)}") from error


def _check_caller(needed: str | None, by_label: str | None) -> None:
    """Check the source address, request rate, scope and label restriction of the caller.

    The address is the one that the gateway recorded, never a header. The authorizer cannot check
    it, because the gateway caches its result across addresses.
    """
    who = caller()
    who.check_address(app.current_event.request_context.http.source_ip)
    _check_rate(who)
    if needed is not None and needed not in who.scopes:
        raise MissingScopeError(needed)
    if by_label is not None and who.restriction.labels:
        raise RestrictedError(f"Your key is restricted to jobs by label, and {by_label}")
    set_access(who)


def _check_rate(who: Identity) -> None:
    """Check the request limits of the key and the tenant, before the body is read. Once a limit is
    used up, most requests are rejected without a call to a store.
    """
    quotas, limit = services().tenant_quotas.of(who.tenant), services().limit_requests
    key, tenant = f"key#{who.tenant}#{who.counted_as}", f"tenant#{who.tenant}"
    at, of_key, of_tenant = now(), quotas.key_request_limit, quotas.request_limit
    if of_key and (wait := limit.admit(key, of_key, at)) is not None:
        raise too_many_requests(Quota.KEY_REQUESTS_PER_SECOND, of_key, wait)
    if of_tenant and (wait := limit.admit(tenant, of_tenant, at)) is not None:
        if of_key:
            limit.give_back(key)
        raise too_many_requests(Quota.REQUESTS_PER_SECOND, of_tenant, wait)


def _report_uncounted(error: Exception) -> None:
    telemetry.logger.warning(
        "requests are counted by each process alone", problem=f"{type(error).__name__}: {error}"
    )


def _check_query(known: list[str]) -> None:
    for name, value in app.current_event.query_string_parameters.items():
        if name not in known:
            remedy = nearest(name, known) or (
                f"Available: {', '.join(known)}." if known else "Omit it: none exist."
            )
            field = name if name.isprintable() and name else shorten(name)
            raise InvalidInputError(field, value, "not a query parameter of this route", remedy)
        if len(value) > MAX_PARAMETER_CHARS:
            raise too_long(name, value)


def _what_may_be_sent(body: Body) -> str:
    for example in (body.openapi_examples or {}).values():
        return f"A body is optional; for example `{json.dumps(dict(example)['value'])}`."
    return "A body is optional and has no fields; leave it out."


# The library has no other hook that runs before its own validation.
check_requests_with(app, _Checks())  # type: ignore[no-untyped-call]


@app.not_found
def route_not_found(error: RouteNotFoundError) -> Response[str]:  # noqa: ARG001
    event = app.current_event
    path = app.context["_path"]
    allowed = sorted(route.method for route in routes_of(app) if route.rule.match(path))
    asked = f"{event.http_method} {event.path}"
    if allowed:
        return problem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"{asked} is not allowed. Allowed methods: {', '.join(allowed)}.",
            headers={"Allow": ", ".join(allowed)},
        )
    return problem(
        HTTPStatus.NOT_FOUND,
        f"The route {asked} does not exist. GET /v1/openapi.json lists the routes.",
    )


@app.exception_handler(UndecodableError)  # type: ignore[untyped-decorator]
def undecodable(error: UndecodableError) -> Response[str]:
    path = app.current_event.path
    telemetry.logger.error("stored item does not decode", path=path, problem=str(error))
    return unreadable(one_line(str(error)))


@app.exception_handler(NextfireError)  # type: ignore[untyped-decorator]
def expected(error: NextfireError) -> Response[str]:
    return problem_of(error)


@app.exception_handler(RequestValidationError)  # type: ignore[untyped-decorator]
def invalid_request(error: RequestValidationError) -> Response[str]:
    faults: Any = [fault | {"loc": _as_written(*fault["loc"])} for fault in error.errors()]
    bodies = app.context["_route"].dependant.body_params
    model = get_args(bodies[0].field_info.annotation)[0] if bodies else None
    return from_validation(faults, model)


def _as_written(where: str, *loc: int | str) -> tuple[int | str, ...]:
    """*loc* as the caller knows it; *where* is the part of the request."""
    return tuple(to_camel(str(part)) for part in loc) if where == "path" else loc


@app.exception_handler(ValidationError)  # type: ignore[untyped-decorator]
def invalid_change(error: ValidationError) -> Response[str]:
    return from_validation(error.errors(include_url=False), JobDefinition)


@app.exception_handler(Exception)  # type: ignore[untyped-decorator]
def unexpected(error: Exception) -> Response[str]:
    telemetry.logger.error("request failed", exc_info=error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. It has been logged.")
