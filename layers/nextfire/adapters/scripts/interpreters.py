"""Finds the Python that runs the scripts of an executor."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from nextfire.adapters.scripts.sandbox import ScriptLimits
from nextfire.adapters.scripts.sandboxes import Sandboxes
from nextfire.adapters.scripts.script_streams import Capture
from nextfire.domain.ports.scripts import Directive

_log = logging.getLogger(__name__)

_OLDEST = (3, 11)
_PROBE = "import sys; print(*sys.version_info[:3])"
_PROBE_WITHIN = timedelta(seconds=30)
_OTHERS = ("/usr/local/bin/python3", "/usr/bin/python3")
_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter: its path, and its version such as ``(3, 11, 7)``."""

    path: str
    version: tuple[int, ...]


class _UnusableError(Exception):
    """Scripts cannot run with an interpreter; the message says why."""


@dataclass(frozen=True, slots=True)
class Interpreters:
    """The interpreters of this machine. They are tried in one of *sandboxes*, as a script would
    run, with *environment* and *limits*.
    """

    sandboxes: Sandboxes
    environment: Mapping[str, str]
    limits: ScriptLimits

    def choose(self, wanted: str | None) -> Interpreter:
        """Return the interpreter to use: *wanted*, or if None the first that works.

        Raises:
            ValueError: No interpreter works. The message holds the remedy.
        """
        if wanted is not None:
            try:
                return self._tried(str(Path(shutil.which(wanted) or wanted).absolute()))
            except _UnusableError as error:
                raise ValueError(self._remedy(wanted, str(error))) from error
        own = str(getattr(sys, "_base_executable", "") or sys.executable)
        if not self.sandboxes.separate:
            # It runs this process, so it can run scripts.
            return Interpreter(own, sys.version_info[:3])
        try:
            return self._tried(own)
        except _UnusableError as error:
            problem = str(error)
        for other in _OTHERS:
            try:
                found = self._tried(other)
            except _UnusableError:
                continue
            _log.warning(
                "scripts run with %s: script users cannot run %s (%s)", other, own, problem
            )
            return found
        raise ValueError(self._remedy(own, problem))

    def _tried(self, path: str) -> Interpreter:
        """Run the interpreter at *path* as a script user.

        Raises:
            _UnusableError: It cannot run scripts.
        """
        out, err = Capture(_REASON_CHARS), Capture(_REASON_CHARS)
        try:
            with self.sandboxes.one("") as sandbox:
                sandbox.open()
                end = sandbox.run(
                    [path, "-I", "-c", _PROBE],
                    environment=self.environment,
                    timeout=_PROBE_WITHIN,
                    grace=timedelta(0),
                    limits=self.limits,
                    ask=lambda: Directive.CONTINUE,
                    stdout=out.feed,
                    stderr=err.feed,
                )
        except (OSError, ValueError) as error:
            raise _UnusableError(str(error)) from error
        if end.not_started is not None:
            raise _UnusableError(end.not_started)
        if end.exit_code != 0:
            problem = err.text().strip() or "no error output"
            raise _UnusableError(f"it exited with {end.exit_code}: {problem}")
        version = out.text().split()
        numbers = tuple(int(n) for n in version if n.isdigit())
        if numbers < _OLDEST:
            found = " ".join(version) or "no output"
            raise _UnusableError(f"it is not Python 3.11 or later (its version: {found})")
        return Interpreter(path, numbers)

    def _remedy(self, interpreter: str, problem: str) -> str:
        if not self.sandboxes.separate:
            return (
                f"{interpreter} cannot run scripts: {problem}. Set NEXTFIRE_INTERPRETER to Python "
                "3.11 or later."
            )
        return (
            f"{interpreter} cannot run scripts as script users, which an executor that is root "
            f"uses: {problem}. Set NEXTFIRE_INTERPRETER to Python 3.11 or later that all users of "
            "this machine can run, for example /usr/bin/python3; let all users enter "
            f"{self.sandboxes.root}; give the executor the capabilities CAP_SETUID, CAP_SETGID, "
            "CAP_CHOWN and CAP_KILL; or run it as a user other than root. Scripts never run as "
            "root."
        )
