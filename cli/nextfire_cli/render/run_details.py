"""A run: in full, in a line, and its log."""

import json
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nextfire_cli.documents import Document
from nextfire_cli.escaping import escaped
from nextfire_cli.render.tables import fields, table
from nextfire_cli.render.text import between, late, next_to, output, prefixed, state, suffixed


def execution(document: Document) -> RenderableType:
    parts: list[RenderableType] = [
        fields(
            ("Execution", document["executionId"]),
            ("Job", document["jobId"]),
            ("State", state(document["state"])),
            ("Reason", document.get("reason")),
            ("Scheduled", document.get("scheduledAt")),
            ("Stands for", coverage(document)),
            ("Dispatched", next_to(document, "dispatchedAt", late(document, "dispatchedAt"))),
            ("Because", document.get("dispatchReason")),
            ("Requested", _requested(document)),
            ("Started", next_to(document, "startedAt", late(document, "startedAt"))),
            (
                "Finished",
                next_to(
                    document,
                    "finishedAt",
                    prefixed("took ", between(document, "startedAt", "finishedAt")),
                ),
            ),
            ("Again at", document.get("retryAt") if document["state"] == "PENDING" else None),
            ("Cancel", _cancel(document)),
            ("Attempt", document.get("attempt")),
            ("Worker", document.get("worker")),
            ("Exit code", document.get("exitCode")),
            ("Call", _call(document)),
            ("Checkpoint", suffixed(document.get("checkpointBytes"), " bytes")),
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


def execution_line(run: Document) -> Text:
    """One line about a run as it stands now."""
    line = Text.assemble(escaped(run["executionId"]), "  ", state(run["state"]))
    for text in (
        f"attempt {run['attempt']}" if run.get("attempt", 0) > 1 else "",
        prefixed("late ", late(run, "startedAt")),
        prefixed("took ", between(run, "startedAt", "finishedAt")),
        coverage(run),
        why(run),
        prefixed("again at ", run.get("retryAt") if run["state"] == "PENDING" else None),
        "to be cancelled" if run.get("cancelRequested") else "",
    ):
        if text:
            line.append(f"  {escaped(text)}")
    return line


def log_line(line: Document, *, timestamps: bool) -> Text:
    """A line that a script printed; of stderr in another colour."""
    text = Text()
    if timestamps:
        text.append(f"{escaped(line.get('at', '-')):<24}  ", "dim")
    style = "yellow" if line["stream"] == "stderr" else ""
    return text.append(escaped(line["text"], keep="\t"), style)


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


def why(run: Document) -> str | None:
    """Why the run did not succeed."""
    return None if run["state"] == "SUCCEEDED" else run.get("reason")


def _requested(run: Document) -> str | None:
    """The reason that was given for a run on request, unless it is the reason of its state."""
    given: str | None = run.get("requestReason")
    return None if given == run.get("reason") else given


def _cancel(run: Document) -> str | None:
    if not run.get("cancelRequested"):
        return None
    return f"requested ({run['cancelReason']})" if run.get("cancelReason") else "requested"


def _result(run: Document) -> str | None:
    if "result" in run:
        return json.dumps(run["result"], ensure_ascii=False)
    return suffixed(run.get("resultBytes"), " bytes")


def _call(run: Document) -> str | None:
    """What the latest attempt called, and how it responded."""
    call = next(
        (each["call"] for each in reversed(run.get("attempts", [])) if "call" in each), None
    )
    if call is None:
        return None
    took = call.get("timingsMs", {}).get("total", call.get("durationMs"))
    parts = (
        f"{call['method']} {call['url']}"
        if "url" in call
        else f"{call['service']}:{call['action']}",
        suffixed(call.get("status"), ""),
        prefixed("at ", call.get("address")),
        prefixed("took ", suffixed(took, " ms")),
    )
    return ", ".join(filter(None, parts))


def tested(run: Document) -> RenderableType:
    """What the receiver of a callback got, and how it responded."""
    attempt: Document = next(iter(run.get("attempts", [])), {})
    call = attempt.get("call", {})
    request = call.get("request", {})
    parts: list[RenderableType] = []
    if call:
        line = f"{call.get('method')} {call.get('url')}"
        parts += [Text("Request", "bold"), *_message(line, request), ""]
    if "status" in call:
        line = f"{call['status']} from {call.get('address')}"
        parts += [Text("Response", "bold"), *_message(line, call), ""]
    times = ", ".join(f"{name} {value}" for name, value in call.get("timingsMs", {}).items())
    parts.append(
        fields(
            ("Outcome", state(attempt.get("outcome", run["state"]))),
            ("Reason", attempt.get("reason", run.get("reason"))),
            ("Times (ms)", times),
            ("Cut", "the record has at most 2 KiB" if call.get("cut") else None),
            ("Execution", run["executionId"]),
        )
    )
    return Group(*parts)


def _message(line: str, message: Document) -> list[RenderableType]:
    """The first line, headers and body of a request or response."""
    headers = [f"{name}: {value}" for name, value in message.get("headers", {}).items()]
    body = ["", message["body"]] if message.get("body") else []
    return [Text("  " + escaped(each)) for each in [line, *headers, *body]]


def _logs(run: Document) -> str | None:
    if any("logs" in attempt for attempt in run.get("attempts", [])):
        return f"nextfire runs logs {run['executionId']}"
    return None


def coverage(run: Document) -> str | None:
    """The occurrences that the run covers, if there are several."""
    covered = run.get("range")
    return covered and f"{covered['count']} occurrences, to {covered['to']}"
