"""Decides which dead processes of the emulated stack are started again, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from functions.embedded.restarts import cause_of_death, pause_before_restart
from nextfire_cli.local.processes import ProcessRecord
from nextfire_cli.local.stack_info import WORKER


@dataclass(frozen=True)
class Restart:
    """The worker is to be started again after *pause* seconds. *cause*: of its death, in words;
    *deaths*: how often it has died.
    """

    record: ProcessRecord
    pause: float
    cause: str
    deaths: int

    @property
    def pool(self) -> str:
        return self.record.name.removeprefix(WORKER).rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.record.name.rpartition("-")[2])


@dataclass
class RestartPolicy:
    """Remembers the deaths of workers."""

    deaths: dict[str, list[float]] = field(default_factory=dict)

    def restarts(
        self, dead: Sequence[tuple[ProcessRecord, int | None]], now: float
    ) -> list[Restart] | None:
        """What to start again; None if the stack cannot go on: the emulator has died, which keeps
        its data in memory, or a worker died too often.

        Args:
            dead: The processes that ended, each with its exit status as of `Popen`, if known.
            now: Seconds, of a clock that is not set.
        """
        found: list[Restart] = []
        for record, status in dead:
            if not record.name.startswith(WORKER):
                return None
            times = self.deaths.setdefault(record.name, [])
            times.append(now)
            if (pause := pause_before_restart(times)) is None:
                return None
            cause = "ended" if status is None else cause_of_death(status)
            found.append(Restart(record, pause, cause, len(times)))
        return found
