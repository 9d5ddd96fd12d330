"""Makes AWS calls, with the job role of the pool and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Protocol

from nextfire.domain.attempt import (
    MAX_CALL_BYTES,
    MAX_VALUE_BYTES,
    AttemptOutcome,
    Result,
    too_large,
)
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.masking import Masker
from nextfire.domain.message import recordable
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import AttemptResult, RunControl
from nextfire.domain.run import Run
from nextfire.targets import json_values
from nextfire.targets.aws.document import AwsCall
from nextfire.targets.template import TemplateError, context_of, render

_ASK_EVERY = 0.2  # seconds
_MAX_STREAM = 64 * 1024
_MAX_MESSAGE = 300
_NO_CONNECTION = frozenset(
    {"ConnectTimeoutError", "EndpointConnectionError", "ProxyConnectionError"}
)
"""Names of botocore's exceptions that mean: nothing was sent."""


class Clients(Protocol):
    """Makes SDK clients with the job role of the pool."""

    def client(
        self, job: JobKey, masker: Masker, service: str, region: str | None, timeout: float
    ) -> Any:  # noqa: ANN401 - boto3 types clients by literal name only
        """Return a client whose requests are made once and take at most *timeout* seconds.

        Raises:
            InvalidInputError: The pool has no job role, or the executor may not assume it.
            UnavailableError: AWS did not answer.
        """


class AwsTarget:
    """`TargetRunner` of AWS calls. *allowed*: patterns of actions, see `check_allowed`."""

    def __init__(self, clients: Clients, allowed: Sequence[str]) -> None:
        self._clients, self._allowed = clients, allowed

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> None:
        """AWS calls always start."""

    def release(self, job: Job, run: RunKey) -> None:
        """AWS calls take nothing."""

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        masker = Masker()
        timeout = min(job.definition.timeout, longest).total_seconds()
        try:
            attempted = self._call(job, run, supervisor, masker, timeout)
        except (InvalidInputError, NotFoundError, TemplateError) as error:
            attempted = AttemptResult.failed(str(error), permanent=True)
        except UnavailableError as error:  # not the job's failure
            attempted = AttemptResult.failed(str(error), unavailable=True)
        except Exception as error:  # noqa: BLE001 — it is recorded; the executor continues
            attempted = AttemptResult.failed(f"could not be made: {type(error).__name__}: {error}")
        reason = recordable(masker.text(attempted.result.reason))
        return replace(attempted, result=replace(attempted.result, reason=reason))

    def _call(
        self, job: Job, run: Run, supervisor: RunControl, masker: Masker, timeout: float
    ) -> AttemptResult:
        # Imports the SDK, which script executors do not need here.
        from nextfire.targets.aws.model import (  # noqa: PLC0415
            check_allowed,
            operation_of,
            parameters_of,
            with_tokens,
        )

        call = job.definition.target.aws
        assert call is not None  # noqa: S101 - this runner gets no other targets
        check_allowed(call, self._allowed)
        operation = operation_of(call)
        rendered = render(dict(call.input), context_of(job, run))
        assert isinstance(rendered, dict)  # noqa: S101 - as its template
        token = hashlib.sha256(run.key.execution_id.encode()).hexdigest()
        parameters = with_tokens(call, operation, parameters_of(call, operation, rendered), token)
        client = self._clients.client(job.key, masker, call.service, call.region, timeout)
        # Assuming the role may have taken as long as the lease.
        if (verdict := supervisor.ask()) is not Directive.CONTINUE:
            return _stopped(verdict, supervisor, None)
        try:
            exchange = _Exchange(client, call, parameters)
        except RuntimeError as error:
            raise UnavailableError("the executor has no thread for the call") from error
        verdict = self._wait(exchange, supervisor, timeout)
        return _result_of(exchange, call, verdict, supervisor, masker, timeout)

    def _wait(self, exchange: _Exchange, supervisor: RunControl, timeout: float) -> Directive:
        until = time.monotonic() + timeout
        while not exchange.done.wait(_ASK_EVERY):
            if (verdict := supervisor.ask()) is not Directive.CONTINUE:
                return verdict
            if time.monotonic() >= until:
                break
        return Directive.CONTINUE


class _Exchange:
    """One request, in its own thread, because the SDK blocks. If it is abandoned, the client's
    timeouts end it.
    """

    def __init__(self, client: Any, call: AwsCall, parameters: dict[str, Any]) -> None:  # noqa: ANN401
        self.done = threading.Event()
        self.response: dict[str, Any] | None = None
        self.error: Exception | None = None
        self.began = time.monotonic()
        self.seconds = 0.0
        self._client, self._call, self._parameters = client, call, parameters
        threading.Thread(target=self._make, name="aws-call", daemon=True).start()

    def _make(self) -> None:
        try:
            # The SDK's own names of methods, such as `send_message`.
            response = self._client._make_api_call(self._call.action, self._parameters)  # noqa: SLF001
            self.response = _plain(response)
        except Exception as error:  # noqa: BLE001 - judged in the caller's thread
            self.error = error
        finally:
            self.seconds = time.monotonic() - self.began
            self.done.set()


def _result_of(
    exchange: _Exchange,
    call: AwsCall,
    verdict: Directive,
    supervisor: RunControl,
    masker: Masker,
    timeout: float,
) -> AttemptResult:
    record = _record(exchange, call)
    if verdict is not Directive.CONTINUE:
        return _stopped(verdict, supervisor, record)
    if not exchange.done.is_set():
        reason = f"no response within {timeout:g} s; the call may have taken effect"
        return AttemptResult(Result(AttemptOutcome.TIMED_OUT, reason, call=record))
    if exchange.error is not None:
        if _has_started(call, exchange.error):
            reason = f"{call.service}:{call.action}: an earlier attempt has started it"
            return AttemptResult(Result(AttemptOutcome.SUCCEEDED, reason, call=record))
        return AttemptResult(_failure(exchange.error, record, masker))
    response = exchange.response or {}
    if call.service == "lambda" and "FunctionError" in response:
        reason = f"function error {response['FunctionError']}: {response.get('Payload')}"
        return AttemptResult(Result(AttemptOutcome.FAILED, reason, call=record))
    shown = {name: value for name, value in response.items() if name != "ResponseMetadata"}
    given = masker.json(json.dumps(shown, ensure_ascii=False).encode(errors="replace"))
    if len(given) > MAX_VALUE_BYTES:
        reason = f"{call.service}:{call.action}; {too_large('response', given)}"
        return AttemptResult(Result(AttemptOutcome.SUCCEEDED, reason, call=record))
    reason = f"{call.service}:{call.action}"
    return AttemptResult(Result(AttemptOutcome.SUCCEEDED, reason, call=record), given=given)


def _stopped(verdict: Directive, supervisor: RunControl, record: str | None) -> AttemptResult:
    outcome, reason = AttemptOutcome.HANDED_BACK, "its worker shut down"
    if verdict is Directive.CANCEL:
        outcome, reason = AttemptOutcome.CANCELLED, supervisor.cancel_reason
    return AttemptResult(Result(outcome, reason, call=record), verdict)


def _has_started(call: AwsCall, error: Exception) -> bool:
    """Whether an earlier attempt started the execution. While it runs, AWS accepts the same request
    again; afterwards the name, which no other run has, exists already.
    """
    code = (getattr(error, "response", None) or {}).get("Error", {}).get("Code")
    starts = (call.service, call.action) == ("stepfunctions", "StartExecution")
    return starts and "name" not in call.input and code == "ExecutionAlreadyExists"


def _failure(error: Exception, record: str, masker: Masker) -> Result:
    """The result of a call that raised *error*. Its text is masked before it is cut: a part of a
    credential would not be recognized.
    """
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        text = masker.text(f"{type(error).__name__}: {error}")[:_MAX_MESSAGE]
        name = type(error).__name__
        permanent = name in {"ParamValidationError", "UnknownServiceError"}
        unavailable = name in _NO_CONNECTION  # as for HTTP callbacks: not the job's failure
        return Result(
            AttemptOutcome.FAILED, text, call=record, permanent=permanent, unavailable=unavailable
        )
    fault = response.get("Error", {})
    message = masker.text(str(fault.get("Message", "")))[:_MAX_MESSAGE]
    text = f"{fault.get('Code', 'Error')}: {message}"
    return Result(AttemptOutcome.FAILED, text, call=record)


def _record(exchange: _Exchange, call: AwsCall) -> str:
    response = exchange.response or getattr(exchange.error, "response", None) or {}
    metadata = response.get("ResponseMetadata", {})
    record = {
        "service": call.service,
        "action": call.action,
        "region": call.region,
        "status": metadata.get("HTTPStatusCode"),
        "requestId": metadata.get("RequestId"),
        "error": response.get("Error", {}).get("Code"),
        "durationMs": round(exchange.seconds * 1000, 1) if exchange.done.is_set() else None,
    }
    text = json.dumps({name: value for name, value in record.items() if value is not None})
    return text if len(text) <= MAX_CALL_BYTES else json.dumps({"action": call.action})


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any type
    """*value* of the SDK as JSON: instants as ISO 8601, bytes as text or base64, streams cut,
    numbers that JSON does not have as null.
    """
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "read"):
        value = value.read(_MAX_STREAM)
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
        try:
            return json_values.read(text)
        except (ValueError, RecursionError):
            return text
    return str(value)
