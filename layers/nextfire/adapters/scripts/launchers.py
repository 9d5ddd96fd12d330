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
from dataclasses import dataclass, field
from typing import TypeVar

from nextfire.adapters.scripts.launching import Family, LauncherClient

_log = logging.getLogger(__name__)
_Launched = TypeVar("_Launched")

OFTEN = 4
"""A tenant gets a launcher for the last of this many scripts that start within `WINDOW`."""
WINDOW = 60.0
"""Seconds. A launcher that had no script for this long ends when another script starts."""
SCRIPTS = 500
"""Maximum number of scripts of one launcher."""
TENANTS = 4
"""Maximum number of tenants with a launcher. Each launcher takes about 5 MB."""


@dataclass(slots=True)
class _Tenant:
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=OFTEN))
    launcher: LauncherClient | None = None
    left: int = 0


class Launchers:
    """The launchers of this process. Thread-safe."""

    def __init__(
        self, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Build, and start the launcher that executes programs.

        Args:
            environment: The variables of its interpreter.
            clock: Seconds.
        """
        self._clock = clock
        self._family = Family()
        self.executing = LauncherClient(environment, self._family)
        """Executes programs."""
        self._interpreter: tuple[str, Mapping[str, str]] | None = None
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}
        """In the order of their last starts."""

    def fork_with(self, interpreter: str, environment: Mapping[str, str]) -> None:
        """From now on fork the scripts of *interpreter*.

        *environment*: the variables that all scripts have, which the interpreter reads at its
        start.
        """
        self._interpreter = (interpreter, environment)

    def fork(self, tenant: str, launch: Callable[[LauncherClient], _Launched]) -> _Launched | None:
        """Call *launch* with the launcher of *tenant*, for a script that starts now.

        Returns:
            Its result; None if the tenant has no launcher, so the script must be executed.

        Raises:
            OSError: *launch* raised it.
        """
        if self._interpreter is None:
            return None
        with self._lock:  # no launcher retires meanwhile
            now = self._clock()
            self._forget_idle(now)
            known = self._tenants.pop(tenant) if tenant in self._tenants else _Tenant()
            self._tenants[tenant] = known
            known.starts.append(now)
            if known.left <= 0:
                self._replace(known, *self._interpreter)
            if known.launcher is None:
                return None
            known.left -= 1
            return launch(known.launcher)

    def _replace(self, known: _Tenant, interpreter: str, environment: Mapping[str, str]) -> None:
        """Retire the launcher of *known*; start another one if its scripts start often."""
        if known.launcher is not None:
            known.launcher.retire()
            known.launcher = None
        often = len(known.starts) == OFTEN and known.starts[-1] - known.starts[0] <= WINDOW
        launchers = sum(each.launcher is not None for each in self._tenants.values())
        if often and launchers < TENANTS:
            try:
                known.launcher = LauncherClient(
                    # With a HOME, Python does not look for the user's folder.
                    {**environment, "HOME": "/nonexistent"},
                    self._family,
                    interpreter,
                )
                known.left = SCRIPTS
            except OSError as error:
                _log.warning("executing scripts: a launcher cannot be started: %s", error)

    def _forget_idle(self, now: float) -> None:
        for tenant, each in [*self._tenants.items()]:
            if now - each.starts[-1] <= WINDOW:
                break
            del self._tenants[tenant]
            if each.launcher is not None:
                each.launcher.retire()
