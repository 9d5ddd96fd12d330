"""Documents of the API as people read them: UTC instants, and spans beside them.

Values are put into `Text`, never into markup: a job may be called ``[bold]``. What comes
from the API goes through `escaped` first: it may also be called what clears a terminal.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nextfire.domain.job import RETRIED
from nextfire.domain.quotas import Quota
from nextfire_cli.documents import Document

_STYLES = {
    "ACTIVE": "green",
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "PENDING": "yellow",
    "PAUSED": "yellow",
    "DRAINING": "cyan",
    "UNREADABLE": "bold red",
    "DEAD": "bold red",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "WORKER_LOST": "red",
}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, ends a line, turns the direction of writing, or is no character at all."""
_LEAST_FOLDED = 12
"""Columns of the terminal that what may wrap has at least."""
_EXECUTION_ID = re.compile(r"[A-Za-z0-9_-]+\.[0-9]{8}T[0-9]{9}Z-[a-z0-9]+")
_OFTEN = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def escaped(value: object, *, keep: str = "") -> str:
    """*value* as text that does nothing to a terminal: control characters, but those to *keep*, as
    Python writes them in a literal.
    """

    def told(found: re.Match[str]) -> str:
        return found[0] if found[0] in keep else found[0].encode("unicode_escape").decode()

    return _CONTROLS.sub(told, str(value))


def output(text: str) -> Text:
    """What a script printed: with its lines and tabs."""
    return Text(escaped(text.rstrip("\n"), keep="\n\t"))


def span(length: timedelta) -> str:
    """``31 ms``, ``1.25 s``, ``2 m 05 s``, ``3 h 10 m``, ``2 d 04 h``; with a sign if negative."""
    if length < timedelta():
        return f"-{span(-length)}"
    second, minute, hour, day = _OFTEN
    if length < second:
        return f"{length // timedelta(milliseconds=1)} ms"
    if length < minute:
        return f"{length / second:.2f} s"
    if length < hour:
        return f"{length // minute} m {length % minute // second:02} s"
    if length < day:
        return f"{length // hour} h {length % hour // minute:02} m"
    return f"{length // day} d {length % day // hour:02} h"


def between(document: Document, start: str, end: str) -> str:
    """How long after its *start* its *end* was; empty where one is not there yet."""
    if start not in document or end not in document:
        return ""
    return span(_instant(document[end]) - _instant(document[start]))


def late(run: Document, field: str) -> str:
    """How long after its scheduled instant *field* was, e.g. ``+31 ms``; empty for a retry."""
    if run.get("dispatch", 1) > 1 or run.get("attempt", 1) > 1:
        return ""
    text = between(run, "scheduledAt", field)
    return text if text.startswith("-") else text and f"+{text}"


def clock(document: Document, field: str) -> str:
    """The time of day of *field*, to the millisecond; empty where it is not there yet."""
    if field not in document:
        return ""
    return _instant(document[field]).time().isoformat(timespec="milliseconds")


def jobs(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No jobs. Make one: nextfire jobs create --in 5s --handler hello"
    return table(
        ("JOB", "NAME", "STATE", "SCHEDULE", "TARGET", "NEXT (UTC)"),
        (
            (
                _with_reason(job["jobId"], job.get("pauseReason") or job.get("reason")),
                job.get("name", ""),
                state(job.get("state")),
                _schedule(job),
                _target(job),
                _minute(job.get("nextFireAt")),
            )
            for job in items
        ),
        folding=(1, 3, 4),
    )


def job(document: Document) -> RenderableType:
    policy, misfire = document.get("retryPolicy", {}), document.get("misfire", {})
    window = misfire.get("relevancyWindowSec")
    payload = document.get("payload")
    return _fields(
        ("Job", document["jobId"]),
        ("Name", document.get("name")),
        ("State", state(document.get("state"))),
        ("Paused", _beside(document, "pausedAt", document.get("pauseReason", ""))),
        ("Resumes", document.get("resumesAt")),
        ("Backfill", _backfill(document.get("backfill"))),
        ("Next run", _next(document)),
        ("To be skipped", ", ".join(document.get("skips", ()))),
        ("Schedule", _schedule(document)),
        ("Target", _target(document)),
        ("Variables", _variables(document.get("target", {}))),
        ("Payload", json.dumps(payload, ensure_ascii=False) if payload else None),
        ("Labels", ", ".join(f"{k}={v}" for k, v in document.get("labels", {}).items())),
        ("Timeout", _suffixed(document.get("timeoutSec"), " s")),
        ("Attempts", _retries(policy)),
        ("Priority", document.get("priority")),
        ("Missed", misfire.get("policy")),
        ("Skipped if", window and f"more than {window} s late"),
        ("Overlap", document.get("overlap")),
        ("Revision", document.get("revision")),
        ("Created", document.get("createdAt")),
        ("Updated", document.get("updatedAt")),
    )


def backfill(document: Document) -> RenderableType:
    return _fields(
        ("Backfill", document["backfillId"]),
        ("Job", document["jobId"]),
        ("Occurrences", document["count"]),
        ("First", document["first"]),
        ("Last", document["last"]),
        ("Order", document["order"]),
        ("Reason", document.get("reason")),
    )


def upcoming(items: Sequence[Document]) -> RenderableType:
    """Where they have execution ids, these need the width: the notes stand under them, and a local
    time that is UTC is left out.
    """
    if not items:
        return "Nothing is to come."
    jittered = any("dueAt" in each for each in items)
    of_a_job = any("executionId" in each for each in items)
    zoned = not of_a_job or any(each["offset"] != "+00:00" for each in items)
    headers = ("AT (UTC)", *(["LOCAL", "OFFSET"] * zoned), *(["DUE (UTC)"] * jittered))
    return table(
        (*headers, "EXECUTION" if of_a_job else "NOTE"),
        (
            (
                each["at"],
                *([each["local"], each["offset"]] * zoned),
                *([each.get("dueAt", "")] * jittered),
                _with_reason(each.get("executionId", ""), _noted(each))
                if of_a_job
                else each.get("note", ""),
            )
            for each in items
        ),
        folding=() if of_a_job else (len(headers),),
    )


def _noted(each: Document) -> str | None:
    told = ["to be skipped" if each.get("skipped") else "", each.get("note", "")]
    return "; ".join(filter(None, told)) or None


def executions(items: Sequence[Document], job: Document | None = None) -> RenderableType:
    """*job*: whose runs they are; where there are none it is told why."""
    if not items:
        return Text(f"No runs on record. {_why_none(job or {})}".rstrip())
    return table(
        ("EXECUTION", "STATE", "LATE", "TOOK", "TRY"),
        (
            (
                _with_reason(run["executionId"], _range(run), _why(run)),
                state(run["state"]),
                late(run, "startedAt"),
                between(run, "startedAt", "finishedAt"),
                run.get("attempt", ""),
            )
            for run in items
        ),
    )


def created(results: Sequence[Document]) -> RenderableType:
    """What became of each job of a batch."""
    return table(
        ("#", "STATUS", "JOB"),
        (
            (
                str(number),
                str(result["status"]),
                result["job"]["jobId"] if "job" in result else result["problem"]["detail"],
            )
            for number, result in enumerate(results)
        ),
    )


def changed(done: Document) -> RenderableType:
    """What was done to all jobs with some labels."""
    text = Text(f"{done['matched']} jobs have these labels; {done['changed']} were changed.")
    for each in done["failed"]:
        text.append(
            f"\nNot changed: {escaped(each['jobId'])}: {escaped(each['problem']['detail'])}"
        )
    return text


def dead(items: Sequence[Document]) -> RenderableType:
    """Runs of any job that died."""
    if not items:
        return Text("No runs died in that time.")
    return table(
        ("EXECUTION", "POOL", "DIED (UTC)", "TRY"),
        (
            (
                _with_reason(run["executionId"], run.get("reason")),
                run.get("pool", ""),
                _minute(run.get("finishedAt")),
                run.get("attempt", ""),
            )
            for run in items
        ),
    )


def letters(items: Sequence[Document]) -> RenderableType:
    """Messages of a dead-letter queue."""
    if not items:
        return Text("The dead-letter queue is empty.")
    return table(
        ("EXECUTION", "SINCE (UTC)", "MESSAGE"),
        (
            (
                _with_reason(each.get("executionId", "UNREADABLE"), each.get("failure")),
                _minute(each["sentAt"]),
                each["messageId"],
            )
            for each in items
        ),
    )


def log_line(line: Document, *, timestamps: bool) -> Text:
    """A line that a script printed; of stderr in another colour."""
    text = Text()
    if timestamps:
        text.append(f"{escaped(line.get('at', '-')):<24}  ", "dim")
    style = "yellow" if line["stream"] == "stderr" else ""
    return text.append(escaped(line["text"], keep="\t"), style)


def execution_line(run: Document) -> Text:
    """One line about a run as it stands now."""
    line = Text.assemble(escaped(run["executionId"]), "  ", state(run["state"]))
    for text in (
        f"attempt {run['attempt']}" if run.get("attempt", 0) > 1 else "",
        _prefixed("late ", late(run, "startedAt")),
        _prefixed("took ", between(run, "startedAt", "finishedAt")),
        _range(run),
        _why(run),
        _prefixed("again at ", run.get("retryAt") if run["state"] == "PENDING" else None),
        "to be cancelled" if run.get("cancelRequested") else "",
    ):
        if text:
            line.append(f"  {escaped(text)}")
    return line


def paused(document: Document) -> str:
    """That a job is paused, since when and why; without a full stop."""
    since = escaped(f"paused since {document.get('pausedAt', 'now')}")
    reason = document.get("pauseReason")
    return f"{since} ({escaped(reason)})" if reason else since


def execution(document: Document) -> RenderableType:
    parts: list[RenderableType] = [
        _fields(
            ("Execution", document["executionId"]),
            ("Job", document["jobId"]),
            ("State", state(document["state"])),
            ("Reason", document.get("reason")),
            ("Scheduled", document.get("scheduledAt")),
            ("Stands for", _range(document)),
            ("Dispatched", _beside(document, "dispatchedAt", late(document, "dispatchedAt"))),
            ("Because", document.get("dispatchReason")),
            ("Started", _beside(document, "startedAt", late(document, "startedAt"))),
            (
                "Finished",
                _beside(
                    document,
                    "finishedAt",
                    _prefixed("took ", between(document, "startedAt", "finishedAt")),
                ),
            ),
            ("Again at", document.get("retryAt") if document["state"] == "PENDING" else None),
            ("Cancel", _cancel(document)),
            ("Attempt", document.get("attempt")),
            ("Worker", document.get("worker")),
            ("Exit code", document.get("exitCode")),
            ("Checkpoint", _suffixed(document.get("checkpointBytes"), " bytes")),
            ("Result", _result(document)),
            ("Logs", _logs(document)),
        )
    ]
    attempts = document.get("attempts", [])
    if len(attempts) > 1:
        parts += ["", _attempts(attempts)]
    for stream in ("stdout", "stderr"):
        if document.get(stream):
            parts += ["", Text(stream, "bold"), output(document[stream])]
    return Group(*parts)


def versions(items: Sequence[Document]) -> RenderableType:
    """Versions of a script."""
    return table(
        ("VERSION", "SINCE (UTC)", "BYTES"),
        (
            (each["versionId"], _minute(each["modifiedAt"]), each.get("size", "deleted"))
            for each in items
        ),
    )


def scripts(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No scripts. Push one: nextfire scripts push examples/hello.py"
    return table(
        ("POOL", "HANDLER", "BYTES", "MODIFIED (UTC)"),
        (
            (item["pool"], item["handler"], item["size"], _minute(item["modifiedAt"]))
            for item in items
        ),
    )


def keys(items: Sequence[Document]) -> RenderableType:
    if not items:
        return "No API keys."
    return table(
        ("KEY", "NAME", "SCOPES", "STATE", "EXPIRES (UTC)", "LAST USED", "ONLY"),
        (
            (
                item["keyId"],
                item.get("name", item.get("reason")),
                ",".join(item.get("scopes", [])),
                state(item["state"]),
                _minute(item.get("expiresAt")),
                item.get("lastUsedOn", ""),
                _only(item),
            )
            for item in items
        ),
    )


def _only(key: Document) -> str:
    """What an API key is restricted to."""
    labels = [f"{name}={value}" for name, value in key.get("labels", {}).items()]
    return ", ".join([*key.get("cidrs", []), *labels])


def key(document: Document) -> RenderableType:
    """An API key, without its text."""
    return _fields(
        ("Key", document["keyId"]),
        ("Name", document["name"]),
        ("Tenant", document.get("tenant")),
        ("Scopes", ", ".join(document["scopes"])),
        ("State", state(document["state"])),
        ("Created", document["createdAt"]),
        ("Expires", document["expiresAt"]),
        ("Revoked", document.get("revokedAt")),
        ("Last used", document.get("lastUsedOn")),
        ("Only", _only(document)),
    )


def quotas(document: Document) -> RenderableType:
    """A tenant's quotas, those that it has not included, and what is used of them."""
    limits, used = document["quotas"], document["used"]
    # One that an API knows that is newer than this command is shown, too.
    names = dict.fromkeys([*map(str, Quota), *limits])
    return Group(
        table(
            ("QUOTA", "AT MOST", "USED"),
            ((name, limits.get(name, "none"), used.get(name, "")) for name in names),
        ),
        "",
        _fields(("Minute ends", document["minuteEndsAt"]), ("Weight", document["weight"])),
    )


def health(document: Document) -> RenderableType:
    """The API's health, with what is known of the local stack."""
    return _fields(
        ("Status", document["status"]),
        ("Endpoint", document["endpoint"]),
        ("Its time", document["time"]),
        ("Scripts", _prefixed("s3://", document.get("scripts_bucket"))),
        ("AWS", document.get("aws_endpoint")),
        *(
            (f"Pool {name}", f"served by {pool['executor']}")
            for name, pool in document.get("pools", {}).items()
        ),
        *((each["name"], f"pid {each['pid']}") for each in document.get("processes", [])),
    )


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], folding: Sequence[int] = ()
) -> Table:
    """Plain columns, to be read and to be cut up by a shell; only the *folding* ones may wrap."""
    plain = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    for number, header in enumerate(headers):
        wraps = number in folding
        lines = [header, *(line for row in cells for line in row[number].plain.split("\n"))]
        width = max(map(cell_len, lines))
        plain.add_column(
            header,
            no_wrap=not wraps,
            overflow="fold",
            min_width=min(width, _LEAST_FOLDED) if wraps else width,
        )
    for row in cells:
        plain.add_row(*row)
    return plain


def _attempts(attempts: Sequence[Document]) -> Table:
    return table(
        ("TRY", "OUTCOME", "STARTED", "TOOK", "EXIT", "WORKER", "REASON"),
        (
            (
                each["number"],
                state(each.get("outcome", "RUNNING")),
                each.get("startedAt", ""),
                between(each, "startedAt", "finishedAt"),
                each.get("exitCode", ""),
                each.get("worker", ""),
                each.get("reason", ""),
            )
            for each in attempts
        ),
        folding=(5, 6),
    )


def _with_reason(identity: str, *reasons: str | None) -> Text:
    """The id, and under it, no wider, why it is as it is."""
    text = Text(escaped(identity))
    for reason in map(escaped, filter(None, reasons)):
        # Another execution's id is to be copied, too.
        ids = map(len, _EXECUTION_ID.findall(reason))
        width = max(len(identity) - 2, 38, *ids)
        lines = textwrap.wrap(reason, width=width, break_on_hyphens=False)
        text.append("".join(f"\n  {line}" for line in lines), "dim")
    return text


def _why(run: Document) -> str | None:
    """Why it did not succeed."""
    return None if run["state"] == "SUCCEEDED" else run.get("reason")


def _cancel(run: Document) -> str | None:
    if not run.get("cancelRequested"):
        return None
    return f"requested ({run['cancelReason']})" if run.get("cancelReason") else "requested"


def _result(run: Document) -> str | None:
    if "result" in run:
        return json.dumps(run["result"], ensure_ascii=False)
    return _suffixed(run.get("resultBytes"), " bytes")


def _logs(run: Document) -> str | None:
    if any("logs" in attempt for attempt in run.get("attempts", [])):
        return f"nextfire runs logs {run['executionId']}"
    return None


def _retries(policy: Document) -> str | None:
    """``3 at most, EXPONENTIAL from 10.00 s to 1 h 00 m``."""
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


def _variables(target: Document) -> str:
    """Names and values; of references where they lead."""

    def told(value: object) -> str:
        if not isinstance(value, dict):
            return str(value)
        if "parameter" in value:
            return f"(parameter {value['parameter']})"
        key = f"#{value['key']}" if value.get("key") else ""
        return f"(secret {value.get('secret')}{key})"

    return ", ".join(f"{name}={told(value)}" for name, value in target.get("env", {}).items())


def _next(job: Document) -> str | None:
    """When it runs next; of a job that is due at no later time, what became of its last run."""
    if "nextFireAt" in job:
        return str(job["nextFireAt"])
    if job.get("state") == "ACTIVE" and job.get("type") != "MANUAL":
        return "none later; the last one is due and about to be dispatched"
    return "none: no occurrence is left" if job.get("state") == "COMPLETED" else None


def _backfill(document: Document | None) -> str | None:
    if not document:
        return None
    return f"{document['count']} occurrences, {document['first']} to {document['last']}"


def _why_none(job: Document) -> str:
    """Why a job has no runs on record, and when it will."""
    due = "its record comes when an executor takes it"
    if "nextFireAt" in job:
        return (
            f"The next one is due at {escaped(job['nextFireAt'])}; --follow waits for it. "
            f"Of one that was due before, {due}."
        )
    match job.get("state"):
        case "PAUSED" | "DRAINING":
            return f"The job is {paused(job)}. Resume it: nextfire jobs resume {job['jobId']}"
        case "CANCELLED":
            return "The job is cancelled: it never runs again."
        case "ACTIVE" if job.get("type") == "MANUAL":
            return "A MANUAL job has no schedule."
        case "ACTIVE":
            return f"The last one is due and about to be dispatched; {due}. --follow waits for it."
        case "COMPLETED":
            return (
                f"No occurrence is left. Of a run just dispatched, {due}; old records are removed."
            )
    return ""


def _range(run: Document) -> str | None:
    """What it stands for, if that is more than one occurrence."""
    covered = run.get("range")
    return covered and f"{covered['count']} occurrences, to {covered['to']}"


def _fields(*pairs: tuple[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None and value != "":
            grid.add_row(escaped(label), _cell(value))
    return grid


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(escaped(value))


def state(name: str | None) -> Text:
    """A state or outcome in its colour."""
    return Text(escaped(name or ""), _STYLES.get(name or "", "dim"))


def _schedule(document: Document) -> str:
    when = document.get("schedule", "")
    if isinstance(when, list):
        when = when[0] if len(when) == 1 else f"{when[0]} and {len(when) - 1} more"
    text = f"{document.get('type', '')} {when}".strip()
    zone = document.get("timezone", "UTC")
    return text if zone == "UTC" else f"{text} {zone}"


def _target(document: Document) -> str:
    target = document.get("target", {})
    what = target.get("handler") or target.get("script") or ""
    pool = target.get("pool", "default")
    return what if pool == "default" else f"{what} on {pool}"


def _beside(document: Document, field: str, text: str) -> str | None:
    if field not in document:
        return None
    return f"{document[field]}  ({text})" if text else str(document[field])


def _suffixed(value: object | None, suffix: str) -> str | None:
    return None if value is None else f"{value}{suffix}"


def _prefixed(prefix: str, value: str | None) -> str:
    return f"{prefix}{value}" if value else ""


def _minute(at: str | None) -> str:
    return f"{_instant(at):%Y-%m-%d %H:%M:%S}" if at else ""


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
