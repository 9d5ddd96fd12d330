"""Finds the Python that runs the scripts of an executor."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from nextfire.adapters.scripts.sandbox import ScriptLimits
from nextfire.adapters.scripts.sandboxes import Sandboxes
from nextfire.adapters.scripts.script_streams import Capture
from nextfire.dataclass import dataclass
from nextfire.domain.ports.scripts import Directive

_log = logging.getLogger(__name__)

_OLDEST = (3, 11)
_PROBE = "import sys; print(*sys.version_info[:3]); print(*sys.path, sep=chr(10))"
_PROBE_WITHIN = timedelta(seconds=30)
_OTHERS = ("/usr/local/bin/python3", "/usr/bin/python3")
_REASON_CHARS = 500
_PROBE_CHARS = 64 * 1024
_LAST_SYSTEM_GROUP = 999


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter: its path, its version such as ``(3, 11, 7)``, and the folders of
    modules that it finds at its start.
    """

    path: str
    version: tuple[int, ...]
    folders: tuple[str, ...] = ()

    def belongs_to_root(self) -> bool:
        """Whether only root can change what it executes at its start: itself, and modules and
        ``.pth`` files in its folders.
        """
        folders = [Path(each) for each in self.folders if Path(each).is_dir()]
        files = [file for folder in folders for file in folder.glob("*.pth")]
        found = [Path(self.path).resolve(), *(each.resolve() for each in (*folders, *files))]
        return all(_only_root_changes(each) for each in found)


def _only_root_changes(path: Path) -> bool:
    """Whether *path* and the folders above it belong to root, and others cannot replace them.
    System groups such as Debian's `staff` may.
    """
    try:
        states = [each.stat() for each in (path, *path.parents)]
    except OSError:
        return False
    own, *above = (each.st_mode & (_others(each) | stat.S_ISVTX) for each in states)
    return (
        all(each.st_uid == 0 for each in states)
        and not own & ~stat.S_ISVTX
        and all(not mode & ~stat.S_ISVTX or mode & stat.S_ISVTX for mode in above)
    )


def _others(state: os.stat_result) -> int:
    """The permissions of users other than root to write."""
    return stat.S_IWOTH | (stat.S_IWGRP if state.st_gid > _LAST_SYSTEM_GROUP else 0)


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
        out, err = Capture(_PROBE_CHARS), Capture(_REASON_CHARS)
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
        first, *folders = out.text().splitlines() or [""]
        version = first.split()
        numbers = tuple(int(n) for n in version if n.isdigit())
        if numbers < _OLDEST:
            found = " ".join(version) or "no output"
            raise _UnusableError(f"it is not Python 3.11 or later (its version: {found})")
        return Interpreter(path, numbers, tuple(folders))

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
