"""Lists of runs and of dead letters."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped
from nextfire_cli.render.job_lists import paused
from nextfire_cli.render.run_details import coverage, why
from nextfire_cli.render.tables import TableWithReasons
from nextfire_cli.render.text import between, late, minute, state


def executions(
    items: Sequence[Document],
    job: Document | None = None,
    *,
    wide: bool = False,
    narrowed: bool = False,
) -> RenderableType:
    """Runs. *job*: their owner; if it has no runs, its state explains why. *wide*: with where and
    when they ran. *narrowed*: only those that match options.
    """
    if not items and narrowed:
        return Text("No run matches.")
    if not items:
        return Text(f"No runs on record. {why_none(job or {})}".rstrip())
    return TableWithReasons(
        ("EXECUTION", "STATE", "LATE", "TOOK", "TRY", *(_WIDE if wide else ())),
        [
            (
                (
                    run["executionId"],
                    state(run["state"]),
                    late(run, "startedAt"),
                    between(run, "startedAt", "finishedAt"),
                    run.get("attempt", ""),
                    *(_more(run) if wide else ()),
                ),
                (coverage(run), why(run)),
            )
            for run in items
        ],
    )


def backfilled(items: Sequence[Document]) -> RenderableType:
    """The runs of a backfill that has ended."""
    if items:
        return executions(items)
    return Text("Nothing ran: the occurrences have records already, or the backfill was stopped.")


_WIDE = ("EXIT", "POOL", "WORKER", "STARTED (UTC)", "FINISHED (UTC)")


def _more(run: Document) -> tuple[str, ...]:
    return (
        str(run.get("exitCode", "")),
        run.get("pool", ""),
        run.get("worker", ""),
        minute(run.get("startedAt")),
        minute(run.get("finishedAt")),
    )


def why_none(job: Document) -> str:
    """Why a job has no runs on record, and when it will have one."""
    due = "its record comes when an executor takes it"
    if "http" in job.get("target", {}):
        due += " and its destination is not paused or down (nextfire endpoints list)"
    if "nextFireAt" in job:
        return (
            f"The next one is due at {escaped(job['nextFireAt'])}; --follow waits for it. "
            f"For a run that was due before, {due}."
        )
    match job.get("state"):
        case "PAUSED":
            until = f" It resumes at {escaped(job['resumesAt'])}." if "resumesAt" in job else ""
            resume = f"Resume it: nextfire jobs resume {job['jobId']}"
            return f"The job is {paused(job)}.{until or f' {resume}'}"
        case "CANCELLED":
            return "The job is cancelled: it never runs again."
        case "ACTIVE" if job.get("type") == "MANUAL":
            return "A MANUAL job has no schedule."
        case "ACTIVE" if job.get("type") == "AFTER":
            return "It runs when the runs of its parents end."
        case "ACTIVE":
            return f"The last one was due already; {due}. --follow waits for it."
        case "COMPLETED":
            return (
                f"No occurrence is left. For a run just dispatched, {due}; old records are removed."
            )
    return ""


def dead(items: Sequence[Document]) -> RenderableType:
    """Runs of any job that died."""
    if not items:
        return Text("No runs died in that time.")
    return TableWithReasons(
        ("EXECUTION", "POOL", "DIED (UTC)", "TRY"),
        [
            (
                (
                    run["executionId"],
                    run.get("pool", ""),
                    minute(run.get("finishedAt")),
                    run.get("attempt", ""),
                ),
                (run.get("reason"),),
            )
            for run in items
        ],
    )


def letters(items: Sequence[Document]) -> RenderableType:
    """Messages of a dead-letter queue."""
    if not items:
        return Text("The dead-letter queue is empty.")
    return TableWithReasons(
        ("EXECUTION", "TENANT", "SINCE (UTC)", "MESSAGE"),
        [
            (
                (
                    each.get("executionId", "UNREADABLE"),
                    each.get("tenant", ""),
                    minute(each["sentAt"]),
                    each["messageId"],
                ),
                (each.get("failure"),),
            )
            for each in items
        ],
    )
