"""What a soak test needs of a stack, whichever it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Protocol

from nextfire import Client
from nextfire_cli.local.processes import interrupts_raised
from tests.places import host_folder

ROOT = Path(__file__).resolve().parents[2]
LEASE = timedelta(seconds=20)
WORKERS = 3


def now() -> datetime:
    """The machine's clock, which the whole stack uses."""
    return datetime.now(UTC)  # noqa: TID251 — not nextfire's code


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL. `what`: a key of `Target.victims`; `pid`: for a worker, that of its supervisor;
    `worker`: the worker's name in the records.
    """

    at: datetime
    what: str
    pid: int
    worker: str | None = None


@dataclass(slots=True)
class Log:
    """What was done to the processes. `stops`: when the whole stack was stopped, and when it was
    back. `died`: stacks that ended without a kill, which is a failure.
    """

    kills: list[Kill] = field(default_factory=list)
    stops: list[tuple[datetime, datetime]] = field(default_factory=list)
    died: list[str] = field(default_factory=list)


class Target(Protocol):
    """A running stack.

    Attributes:
        log: What was done to its processes.
        marks: Folder of the marks of scripts, with a folder for each tenant.
        tenants: Two tenants.
        victims: What can be killed, with weights.
        slots: Number of concurrent runs by pool.
        on_lambda: Share of the jobs that Lambda executors run.
    """

    log: Log
    marks: Path
    victims: Mapping[str, int]
    slots: Mapping[str, int]
    on_lambda: float

    def start(self) -> None:
        """Start the stack with its previous data."""

    def stop(self) -> None:
        """End all processes and keep the data."""

    @property
    def tenants(self) -> Sequence[str]: ...

    def apis(self) -> list[Client]:
        """A client of the API for each tenant; valid until the next restart."""

    def supervise(self) -> None:
        """Start again what has ended and is not started again by the stack."""

    def kill(self, what: str, random: Random) -> Kill | None:
        """SIGKILL a process that is *what*. Returns None if none is running."""

    def restart(self, away: Callable[[], None]) -> None:
        """Take the whole stack down, call *away*, and start it."""

    def unfinished(self) -> str | None:
        """What is due, queued or running; None if nothing is."""

    def audit(self) -> dict[str, Any]:
        """Run a full audit. Returns the fields of its report.

        Raises:
            RuntimeError: The auditor was killed meanwhile.
        """


@contextmanager
def running(
    make: Callable[[Path, Callable[[str], None]], Target],
    report: Callable[[str], None],
    *,
    keep: bool,
) -> Generator[Target]:
    """Run the stack that *make* returns for a temporary folder, and always end it. *keep*: keep the
    folder for its logs.
    """
    folder = host_folder("nextfire-soak-")
    folder.chmod(0o711)
    stack = make(folder, report)
    with interrupts_raised():
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()
            if keep:
                report(f"logs and marks are in {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
