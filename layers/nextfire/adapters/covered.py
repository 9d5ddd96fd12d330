"""What scripts see of the file system, where the host allows them namespaces."""

from __future__ import annotations

import logging
import os
import pwd
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nextfire.adapters import confinement, keeper
from nextfire.adapters.confinement import View
from nextfire.adapters.kept_program import compiled, in_memory

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Covered:
    """The folders of a host with which its scripts have nothing to do, where it allows namespaces.

    `shared`: instead of these a script finds a folder of its own run. `hidden`: it finds these
    empty. What the script needs of both, it finds in its place; and the folders `visible`.
    """

    shared: tuple[Path, ...]
    hidden: tuple[Path, ...]
    visible: tuple[Path, ...] = ()

    @classmethod
    def of_host(cls, root: Path, visible: Collection[Path]) -> Self:
        """Those of this host: temporary folders, *root*, and the home of an executor's user.

        Root's home is closed to script users.
        """
        shared = {path.resolve() for path in (root, Path("/tmp"), Path("/var/tmp"))}  # noqa: S108
        hidden: set[Path] = set()
        if os.geteuid() != 0:
            with suppress(KeyError):
                hidden.add(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())
        covered = {path for path in shared | hidden if path.is_dir() and path != Path("/")}
        # What is in another one is covered with it.
        outermost = {path for path in covered if covered.isdisjoint(path.parents)}
        return cls(
            tuple(sorted(shared & outermost)),
            tuple(sorted((hidden & outermost) - shared)),
            tuple(path.resolve() for path in visible),
        )

    def view(
        self, program: str, *, instead: Path, writable: Path, readable: Collection[Path]
    ) -> dict[str, Any]:
        """What the program in the file *program* finds: a `View`.

        Args:
            program: Its absolute path.
            instead: What it finds in place of `shared`.
            writable: Its working folder.
            readable: Folders that it reads.
        """
        needed = {*readable, *_home_of(Path(program))}
        return {
            View.TEMPORARY: str(instead),
            View.SHARED: [str(path) for path in self.shared],
            View.HIDDEN: [str(path) for path in self.hidden],
            View.WRITABLE: [
                str(writable),
                *(str(path) for path in self.visible if self._covers(path)),
            ],
            View.READABLE: sorted(str(path) for path in needed if self._covers(path)),
        }

    def _covers(self, path: Path) -> bool:
        return path.is_dir() and any(each in path.parents for each in self.shared + self.hidden)


def _home_of(program: Path) -> set[Path]:
    """The folders of a program, wherever it is installed: ``bin``, and what ``bin`` is in."""
    return {folder for path in (program, program.resolve()) for folder in path.parents[:2]}


def namespaces_work(environment: Mapping[str, str]) -> bool:
    """Whether this host allows namespaces. Tried out in a process that inherits nothing of ours."""
    with ExitStack() as stack:
        code = in_memory(compiled(confinement), stack)
        command = [sys.executable, "-I", "-S", "-c", keeper.BOOT, str(code)]
        tried = subprocess.run(
            command,
            env=environment,
            pass_fds=[code],
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if tried.returncode != 0:
        _log.warning(
            "this host allows no namespaces: scripts see its processes and temporary files, see "
            "docs/operate/security.md"
        )
    return tried.returncode == 0
