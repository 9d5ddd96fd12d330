"""A job and its backfill."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from rich.console import RenderableType

from nextfire.domain.policies import RETRIED
from nextfire.domain.run import RunState
from nextfire.domain.schedule import UNTIMED
from nextfire_cli.documents import Document
from nextfire_cli.job_fields import JOB_FIELDS, JobField
from nextfire_cli.render.job_lists import schedule, target
from nextfire_cli.render.tables import fields
from nextfire_cli.render.text import next_to, span, state, suffixed


@dataclass(frozen=True)
class Row:
    """A row of a job. `show`: its text; None or empty: no row. `paths`: the fields in the text."""

    label: str
    show: Callable[[Document], object]
    paths: tuple[str, ...] = ()


def job(document: Document) -> RenderableType:
    rows = (*_STATE, *_DEFINITION, *_OTHER_FIELDS, *_HISTORY)
    return fields(*((row.label, row.show(document)) for row in rows))


def backfill(document: Document) -> RenderableType:
    return fields(
        ("Backfill", document["backfillId"]),
        ("Job", document["jobId"]),
        ("Occurrences", document["count"]),
        ("First", document["first"]),
        ("Last", document["last"]),
        ("Order", document["order"]),
        ("Reason", document.get("reason")),
    )


def _value(document: Document, path: str) -> object:
    value: object = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_is(label: str, path: str, suffix: str = "") -> Row:
    return Row(label, lambda job: suffixed(_value(job, path), suffix), (path,))


def _next(job: Document) -> str | None:
    """The next run, or why a job has no next run."""
    if "nextFireAt" in job:
        return str(job["nextFireAt"])
    if job.get("state") == "ACTIVE" and job.get("type") not in UNTIMED:
        last = "is to be skipped" if job.get("skips") else "was due already"
        return f"none later; the last one {last}"
    return "none: no occurrence is left" if job.get("state") == "COMPLETED" else None


def _then(job: Document) -> str:
    """The instants of the runs after the next one, without those to be skipped."""
    runs = [str(each["at"]) for each in job.get("upcoming", ()) if not each.get("skipped")]
    return ", ".join(runs[1:])


def _last(job: Document) -> str | None:
    """``SUCCEEDED  EXECUTION_ID``, and why it did not succeed."""
    run = job.get("lastRun")
    if not run:
        return None
    reason = "" if run["state"] == RunState.SUCCEEDED else run.get("reason")
    text = f"{run['state']}  {run['executionId']}"
    return f"{text}  ({reason})" if reason else text


def _backfill(job: Document) -> str | None:
    found = job.get("backfill")
    return found and f"{found['count']} occurrences, {found['first']} to {found['last']}"


def _variables(job: Document) -> str:
    """Names with values or references."""

    def shown(value: object) -> str:
        if not isinstance(value, dict):
            return str(value)
        if "parameter" in value:
            return f"(parameter {value['parameter']})"
        key = f"#{value['key']}" if value.get("key") else ""
        return f"(secret {value.get('secret')}{key})"

    variables = job.get("target", {}).get("env", {})
    return ", ".join(f"{name}={shown(value)}" for name, value in variables.items())


def _payload(job: Document) -> str | None:
    payload = job.get("payload", {})
    return None if payload == {} else json.dumps(payload, ensure_ascii=False)


def _attempts(job: Document) -> str | None:
    """``3 at most, EXPONENTIAL after 10.00 s, up to 1 h 00 m``."""
    policy = job.get("retryPolicy", {})
    if "maxAttempts" not in policy:
        return None
    text = f"{policy['maxAttempts']} at most"
    if policy["maxAttempts"] > 1 and "backoff" in policy:
        first, longest = (
            span(timedelta(milliseconds=policy.get(field, 0)))
            for field in ("initialDelayMs", "maxDelayMs")
        )
        text += f", {policy['backoff']} after {first}"
        text += "" if policy["backoff"] == "FIXED" else f", up to {longest}"
        text += ", with jitter" if policy.get("jitter") == "FULL" else ""
    chosen = policy.get("retryOn", {})
    states, codes = chosen.get("states", []), chosen.get("exitCodes")
    if len(states) < len(RETRIED) and "retryOn" in policy:
        text += f"; only after {', '.join(states) or 'nothing'}"
    return text + (f"; exit codes {', '.join(map(str, codes))}" if codes else "")


def _parents(job: Document) -> str:
    return ", ".join(
        str(edge["job"])
        + (" (setup)" if edge.get("setup") else "")
        + (f" + {edge['delaySec']} s" if edge.get("delaySec") else "")
        for edge in job.get("after", ())
    )


def _window(job: Document) -> str | None:
    window = _value(job, "misfire.relevancyWindowSec")
    return f"more than {window} s late" if window else None


_STATE = (
    _as_is("Job", "jobId"),
    _as_is("Name", "name"),
    Row("State", lambda job: state(job.get("state"))),
    Row("Draining", lambda job: "earlier runs have not ended" if job.get("draining") else None),
    Row("Paused", lambda job: next_to(job, "pausedAt", job.get("pauseReason", ""))),
    _as_is("Paused by", "pausedBy"),
    _as_is("Resumes", "resumesAt"),
    Row("Backfill", _backfill),
    Row("Next run", _next),
    Row("Then", _then),
    Row("Last run", _last),
    Row("To be skipped", lambda job: ", ".join(job.get("skips", ()))),
)
_DEFINITION = (
    Row("Schedule", schedule, ("type", "schedule", "timezone")),
    Row("After", _parents, ("after",)),
    Row(
        "Target",
        target,
        ("target.pool", "target.handler", "target.script", "target.http", "target.aws"),
    ),
    Row("Variables", _variables, ("target.env",)),
    Row("Payload", _payload, ("payload",)),
    Row(
        "Labels",
        lambda job: ", ".join(f"{name}={text}" for name, text in job.get("labels", {}).items()),
        ("labels",),
    ),
    _as_is("Timeout", "timeoutSec", " s"),
    Row(
        "Attempts", _attempts, tuple(path for path in JOB_FIELDS if path.startswith("retryPolicy."))
    ),
    _as_is("Priority", "priority"),
    _as_is("Missed", "misfire.policy"),
    Row("Skipped if", _window, ("misfire.relevancyWindowSec",)),
    _as_is("Overlap", "overlap"),
)
_HISTORY = (
    _as_is("Revision", "revision"),
    _as_is("Created", "createdAt"),
    _as_is("Updated", "updatedAt"),
)


def _unless_default(field: JobField) -> Row:
    """``Max runs  5``: the row of a field without a row in `_DEFINITION`."""
    name, unit = field.path.rpartition(".")[2], ""
    for ending, written in (("Sec", " s"), ("Ms", " ms")):
        if name.endswith(ending):
            name, unit = name.removesuffix(ending), written
    label = re.sub(r"(?=[A-Z])", " ", name).capitalize()

    def show(job: Document) -> str | None:
        value = _value(job, field.path)
        if value == field.default:
            return None
        return ", ".join(map(str, value)) if isinstance(value, list) else suffixed(value, unit)

    return Row(label, show, (field.path,))


_SHOWN = {path for row in (*_STATE, *_DEFINITION) for path in row.paths}
_OTHER_FIELDS = [_unless_default(field) for path, field in JOB_FIELDS.items() if path not in _SHOWN]
