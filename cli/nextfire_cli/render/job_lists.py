"""Lists of jobs and occurrences."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped
from nextfire_cli.remedies import in_words_of_the_command
from nextfire_cli.render.tables import table
from nextfire_cli.render.text import minute, state, with_reason


def jobs(
    items: Sequence[Document], *, wide: bool = False, narrowed: bool = False
) -> RenderableType:
    """Jobs; *wide*: with more of their definition; *narrowed*: only those that match options."""
    if not items and narrowed:
        return "No job matches."
    if not items:
        return "No jobs. Make one: nextfire jobs create --in 5s --handler hello"
    named = wide or any(job.get("name") for job in items)
    headers = ("JOB", *(["NAME"] * named), "STATE", "SCHEDULE", "TARGET", "NEXT (UTC)")
    return table(
        (*headers, *(_WIDE if wide else ())),
        (
            (
                with_reason(job["jobId"], job.get("pauseReason") or job.get("reason")),
                *([job.get("name", "")] * named),
                state(job.get("state")),
                schedule(job),
                target(job),
                minute(job.get("nextFireAt")),
                *(_more(job) if wide else ()),
            )
            for job in items
        ),
        folding=[headers.index(each) for each in headers if each in _FOLDING],
    )


_FOLDING = {"NAME", "SCHEDULE", "TARGET"}
_WIDE = ("OVERLAP", "MISSED", "PRIORITY", "ATTEMPTS", "LABELS", "UPDATED (UTC)")


def _more(job: Document) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in job.get("labels", {}).items())
    return (
        job.get("overlap", ""),
        job.get("misfire", {}).get("policy", ""),
        job.get("priority", ""),
        str(job.get("retryPolicy", {}).get("maxAttempts", "")),
        labels,
        minute(job.get("updatedAt")),
    )


def created(results: Sequence[Document | None]) -> RenderableType:
    """The result of each job of a batch; those without a result are omitted."""
    return table(
        ("#", "STATUS", "JOB"),
        (
            (
                str(number),
                str(result["status"]),
                result["job"]["jobId"] if "job" in result else _problem(result),
            )
            for number, result in enumerate(results)
            if result is not None
        ),
    )


def changed(done: Document, *, every: bool = False) -> RenderableType:
    """The result of a change of all jobs with some labels, or of *every* job."""
    which = "Jobs" if every else "Jobs with these labels"
    text = Text(f"{which}: {done['matched']}. Changed: {done['changed']}.")
    for each in done["failed"]:
        text.append(f"\nNot changed: {escaped(each['jobId'])}: {escaped(_problem(each))}")
    return text


def _problem(result: Document) -> str:
    return in_words_of_the_command(result["problem"]["detail"])


def upcoming(items: Sequence[Document]) -> RenderableType:
    """Upcoming occurrences. Execution ids need the width: notes are below them, and a local time in
    UTC is omitted.
    """
    if not items:
        return "No upcoming occurrences."
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
                with_reason(each.get("executionId", ""), _note(each))
                if of_a_job
                else each.get("note", ""),
            )
            for each in items
        ),
        folding=() if of_a_job else (len(headers),),
    )


def upcoming_of_all(items: Sequence[Document]) -> RenderableType:
    """Upcoming occurrences of several jobs, with notes below the ids of the jobs."""
    if not items:
        return "No upcoming occurrences."
    jittered = any("dueAt" in each for each in items)
    named = any(each.get("name") for each in items)
    headers = ("AT (UTC)", *(["DUE (UTC)"] * jittered), "JOB", *(["NAME"] * named), "TARGET")
    return table(
        headers,
        (
            (
                minute(each["at"]),
                *([minute(each.get("dueAt"))] * jittered),
                with_reason(each["jobId"], _note(each)),
                *([each.get("name", "")] * named),
                target(each),
            )
            for each in items
        ),
        folding=[headers.index(each) for each in headers if each in _FOLDING],
    )


def _note(each: Document) -> str | None:
    notes = ["to be skipped" if each.get("skipped") else "", each.get("note", "")]
    notes += [f"after {_awaited(parent)}" for parent in each.get("parents", [])]
    return "; ".join(filter(None, notes)) or None


def _awaited(parent: Document) -> str:
    """``extract: 24 runs, 2026-05-24T01:00:00Z to 2026-05-25T00:00:00Z``."""
    if "succeededSince" in parent:
        return f"a success of {parent['job']} since {parent['succeededSince']}"
    times = parent["scheduledAt"]
    if parent["which"] == "same":
        return str(parent["job"])
    if len(times) < 2:  # noqa: PLR2004 — a pair
        return f"{parent['job']}: {', '.join(times) or 'no runs'}"
    return f"{parent['job']}: {len(times)} runs, {times[0]} to {times[-1]}"


def paused(document: Document) -> str:
    """``paused since INSTANT (REASON)``."""
    since = escaped(f"paused since {document.get('pausedAt', 'now')}")
    reason = document.get("pauseReason")
    return f"{since} ({escaped(reason)})" if reason else since


def schedule(document: Document) -> str:
    when = document.get("schedule", "")
    if isinstance(when, list):
        when = when[0] if len(when) == 1 else f"{when[0]} and {len(when) - 1} more"
    text = f"{document.get('type', '')} {when}".strip()
    zone = document.get("timezone", "UTC")
    return text if zone == "UTC" else f"{text} {zone}"


def _call(target: Document) -> str:
    if http := target.get("http"):
        return f"{http.get('method', 'POST')} {http.get('url', '')}"
    aws = target.get("aws")
    return f"{aws.get('service')}:{aws.get('action')}" if aws else ""


def target(document: Document) -> str:
    found = document.get("target", {})
    what = found.get("handler") or found.get("script") or _call(found)
    pool = found.get("pool", "default")
    return what if pool == "default" else f"{what} on {pool}"
