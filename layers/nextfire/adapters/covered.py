"""What scripts see of the file system, where the host allows them namespaces."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nextfire.adapters.confinement import View


@dataclass(frozen=True, slots=True)
class Covered:
    """The folders of a host with which its scripts have nothing to do, where it allows namespaces.

    `shared`: instead of these a script finds a folder of its run. `hidden`: it finds these
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
