"""The launchers of an executor: one that executes programs, and for each tenant whose scripts start
often one that forks them.

A fork saves the start of an interpreter, about half of the CPU of a short script. All forks of a
launcher have its seed of string hashes and its layout of memory. So no two tenants share one, and a
launcher is replaced after `SCRIPTS`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from nextfire.adapters.scripts.forking_launcher import ForkingLauncher
from nextfire.adapters.scripts.launching import FAMILY, LauncherClient
from nextfire.dataclass import dataclass, field

_log = logging.getLogger(__name__)
_Launched = TypeVar("_Launched")

OFTEN = 4
"""A tenant gets a launcher for the last of this many scripts that start within `WINDOW`."""
WINDOW = 60.0
"""Seconds. A launcher that had no script for this long ends when another script starts."""
SCRIPTS = 500
"""Maximum number of scripts of one launcher."""
LAUNCHERS = 4
"""Maximum number of launchers that fork. Each takes about 5 MB."""
_READY_WITHIN = 5.0
"""Seconds. All starts of scripts wait for a launcher that starts."""
AGAIN_AFTER = 600.0
"""Seconds until another launcher is started if one did not start: the machine may be overloaded."""


@dataclass(slots=True)
class _Tenant:
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN))
    launcher: ForkingLauncher | None = None
    left: int = 0


class Launchers:
    """The launchers of a runner of scripts. Thread-safe."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        exposed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build, and start the launcher that executes programs.

        Args:
            environment: The variables of its interpreter.
            exposed: Whether scripts may inspect a process of the executor's user until it has made
                itself invisible. Then a launcher starts only while no script runs.
            clock: Seconds.
        """
        self.executing = LauncherClient(environment)
        """Executes programs."""
        self._exposed = exposed
        self._clock = clock
        self._lock = threading.Lock()
        self._start: Callable[[], ForkingLauncher] | None = None
        self._tenants: dict[str, _Tenant] = {}
        """In the order of their last starts."""
        self._retired: list[ForkingLauncher] = []
        self._not_before = 0.0

    def fork_with(self, interpreter: str, environment: Mapping[str, str]) -> None:
        """From now on fork the scripts of *interpreter*. *environment*: the variables that all
        scripts have.
        """
        self._start = lambda: ForkingLauncher(interpreter, environment)

    def launch(
        self, launch: Callable[[LauncherClient], _Launched], *, forked_for: str | None
    ) -> _Launched:
        """Call *launch* with a launcher, for a program that starts now.

        Args:
            launch: Launches the program.
            forked_for: The tenant if the program is a script that may be forked; otherwise None.

        Returns:
            The result of *launch*.

        Raises:
            OSError: *launch* raised it.
        """
        with self._lock:  # no launcher starts or retires meanwhile
            known = None if forked_for is None else self._noted(forked_for)
            if known is not None and known.launcher is not None:
                known.left -= 1
                try:
                    return launch(known.launcher)
                except OSError as error:
                    _log.warning("executing a script: its launcher hangs or is dead: %s", error)
                    self._retire(known)
            return launch(self.executing)

    def _noted(self, tenant: str) -> _Tenant:
        """*tenant*, one of whose scripts starts now, with the launcher to use, if any."""
        now = self._clock()
        self._forget_idle(now)
        known = self._tenants.pop(tenant) if tenant in self._tenants else _Tenant()
        self._tenants[tenant] = known
        known.starts.append(now)
        if known.left <= 0:
            self._retire(known)
            often = len(known.starts) == OFTEN and now - known.starts[0] <= WINDOW
            if often and self._may_start():
                self._give_launcher(known)
        return known

    def _may_start(self) -> bool:
        self._retired = [each for each in self._retired if each.is_alive]
        used = sum(each.launcher is not None for each in self._tenants.values())
        if len(self._retired) + used >= LAUNCHERS or self._clock() < self._not_before:
            return False
        return not (self._exposed and FAMILY.programs)

    def _give_launcher(self, known: _Tenant) -> None:
        if self._start is None:
            return
        try:
            launcher = self._start()
        except OSError as error:
            _log.warning("executing scripts: a launcher cannot be started: %s", error)
            return
        if launcher.is_ready(_READY_WITHIN):
            known.launcher, known.left = launcher, SCRIPTS
        else:
            launcher.close()
            self._not_before = self._clock() + AGAIN_AFTER
            _log.warning(
                "executing scripts: their Python does not start as a launcher within %.0f s; "
                "trying again in %.0f s",
                _READY_WITHIN,
                AGAIN_AFTER,
            )

    def _retire(self, known: _Tenant) -> None:
        if known.launcher is not None:
            known.launcher.retire()
            self._retired.append(known.launcher)
            known.launcher, known.left = None, 0

    def _forget_idle(self, now: float) -> None:
        for tenant, each in [*self._tenants.items()]:
            if now - each.starts[-1] <= WINDOW:
                break
            del self._tenants[tenant]
            self._retire(each)
