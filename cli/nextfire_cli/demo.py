"""`nextfire demo`: three jobs on the local stack, followed until each has run."""

import contextlib
import secrets
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from nextfire import Client
from nextfire.domain.instants import isoformat
from nextfire_cli import render
from nextfire_cli.documents import Document
from nextfire_cli.errors import CliError

HANDLER = "hello"
PATIENCE = timedelta(seconds=150)
_POLL = 0.25
_RECURRING = "demo-cron"
_FAILED = frozenset({"DEAD", "CANCELLED", "SKIPPED"})


def definitions(now: datetime) -> list[Document]:
    """The three jobs, one of each type, as of *now*."""
    once = isoformat(now.replace(microsecond=0) + timedelta(seconds=5))
    return [
        {
            "name": name,
            "type": type_,
            "schedule": schedule,
            "target": {"pool": "default", "handler": HANDLER},
            "payload": {"name": name},
        }
        for name, type_, schedule in (
            ("demo-once", "ONCE", once),
            ("demo-delay", "DELAY", "PT8S"),
            (_RECURRING, "CRON", "* * * * *"),
        )
    ]


def script() -> bytes:
    """The source of the script: an example, which is part of an installation too."""
    package = Path(__file__).parent
    installed = package / f"{HANDLER}_example.py"
    in_checkout = package.parents[1] / "examples" / f"{HANDLER}.py"
    return (installed if installed.exists() else in_checkout).read_bytes()


class Display:
    """Progress: spinners on a terminal, otherwise one line per change."""

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._monotonic = monotonic
        self._begin = monotonic()
        self._shown_texts: dict[str, str] = {}
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn(
                "{task.fields[title]}",
                style="bold",
                markup=False,
                table_column=Column(min_width=11, no_wrap=True),
            ),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    @contextlib.contextmanager
    def shown(self) -> Generator[None]:
        with self._progress:
            yield

    def tell(self, title: str, text: str, *, done: bool = False) -> None:
        """Set the text next to *title*."""
        text = render.escaped(text)
        if title not in self._tasks:
            self._tasks[title] = self._progress.add_task(text, total=1, title=title)
        self._progress.update(self._tasks[title], description=text, completed=int(done))
        if self._shown_texts.get(title) != text and not self._console.is_terminal:
            seconds = self._monotonic() - self._begin
            self._console.print(Text(f"{seconds:6.1f} s  {title:<11}  {text}"))
        self._shown_texts[title] = text


@dataclass
class Demo:
    """Creates the jobs, follows them, and cancels what would otherwise go on."""

    client: Client
    display: Display
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _active: dict[str, str] = field(default_factory=dict)
    """The ids of the jobs that have runs to come, by name."""

    def play(self) -> list[Document]:
        """The three runs, each SUCCEEDED, each with the name of its job under ``job``.

        Raises:
            CliError: A run ended otherwise, or did not end in time.
        """
        # The first request that carries a key starts what checks keys: seconds, on a busy machine,
        # in which the instant of the first job would pass.
        self.client.list_jobs(limit=1)
        try:
            # By the service's clock, so that it does not matter if ours is wrong.
            now = self.client.get_health().time
            for definition in definitions(now):
                name = definition["name"]
                # An id of our choice, noted first: an interrupt loses no job.
                self._active[name] = f"{name}-{secrets.token_hex(4)}"
                job = self.client.create_job({"jobId": self._active[name], **definition}).document
                due = job.get("nextFireAt", "now")
                self.display.tell(name, f"{definition['type']}, due {due}")
            return list(self._followed())
        finally:
            for job_id in self._active.values():
                # A job that was not created, or a stack that is gone, has nothing to cancel.
                with contextlib.suppress(CliError):
                    self.client.delete_job(job_id)

    def _followed(self) -> Iterator[Document]:
        deadline = self.monotonic() + PATIENCE.total_seconds()
        waiting = dict(self._active)
        while waiting:
            for name, job_id in list(waiting.items()):
                run = self._last_run(name, job_id)
                if run is not None:
                    del waiting[name]
                    if name != _RECURRING:
                        del self._active[name]
                    yield {"job": name, **run}
            if waiting and self.monotonic() > deadline:
                raise CliError(
                    f"{', '.join(waiting)}: no run succeeded within {PATIENCE.seconds} s."
                )
            if waiting:
                self.sleep(_POLL)

    def _last_run(self, name: str, job_id: str) -> Document | None:
        """The newest run of a job, if it has succeeded."""
        runs = self.client.list_executions(job_id, limit=1).items
        for run in (each.document for each in runs):
            if run["state"] in _FAILED:
                self.display.tell(name, run["state"])
                said = [run.get("reason", ""), run.get("stderr", "")]
                raise CliError(
                    f"{name}: its run {run['executionId']} is {run['state']}.",
                    "\n".join(text.strip() for text in said if text),
                )
            if run["state"] == "SUCCEEDED":
                late = render.late(run, "startedAt")
                self.display.tell(name, f"SUCCEEDED, started {late}", done=True)
                return self.client.get_execution(run["executionId"]).document
            why = f": {run['reason']}" if "reason" in run else ""
            self.display.tell(name, f"{run['state']}{why}")
        return None


def report(runs: list[Document]) -> RenderableType:
    """The runs, and the output of their scripts."""
    parts: list[RenderableType] = [
        render.table(
            ("JOB", "SCHEDULED", "DISPATCHED", "STARTED", "FINISHED", "LATE", "STATE"),
            (
                (
                    run["job"],
                    render.clock(run, "scheduledAt"),
                    render.clock(run, "dispatchedAt"),
                    render.clock(run, "startedAt"),
                    render.clock(run, "finishedAt"),
                    render.late(run, "startedAt"),
                    render.state(run["state"]),
                )
                for run in runs
            ),
        ),
        Text("Times are UTC. LATE: from when a run was due to when a worker took it.", "dim"),
    ]
    for run in runs:
        parts += ["", Text(f"{run['job']} printed", "bold"), render.output(run.get("stdout", ""))]
    return Group(*parts)
