"""What scripts see of the file system, where the host allows them namespaces."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from nextfire.adapters.confinement import View

_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 - of the host
_RUN = Path("/run")
_TOP_LEVEL = 2
"""Parts of a path such as ``/etc``, which a script needs."""


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
    def of_host(
        cls, root: Path, *, visible: Collection[Path], credentials: Collection[Path]
    ) -> Self:
        """Those of this host: temporary folders, *root*, and the home of an executor's user.

        Root's home is closed to script users.
        """
        shared = {path.resolve() for path in (root, *_TEMPORARY)}
        hidden = {_RUN / "user"}
        if os.geteuid() != 0:
            hidden |= {path.resolve() for path in _private_folders(credentials)}
        covered = {path for path in shared | hidden if path.is_dir() and path != Path("/")}
        # What is in another one is covered with it.
        outermost = {path for path in covered if covered.isdisjoint(path.parents)}
        return cls(
            tuple(sorted(shared & outermost)),
            tuple(sorted((hidden & outermost) - shared)),
            tuple(path.resolve() for path in visible),
        )

    def view(
        self,
        program: str,
        *,
        instead: Path,
        writable: Path,
        readable: Collection[Path],
        offline: bool,
    ) -> dict[str, Any]:
        """What the program in the file *program* finds: a `View`.

        Args:
            program: Its absolute path.
            instead: What it finds in place of `shared`.
            writable: Its working folder.
            readable: Folders that it reads.
            offline: Whether it is to reach no service of the host either, by sockets in /run.
        """
        shared, hidden = [*self.shared], [*self.hidden]
        if offline:
            shared = [path for path in shared if _RUN not in path.parents]
            hidden = [_RUN, *(path for path in hidden if _RUN not in path.parents)]
        needed = {*readable, *_home_of(Path(program))}
        return {
            View.TEMPORARY: str(instead),
            View.SHARED: [str(path) for path in shared],
            View.HIDDEN: [str(path) for path in hidden],
            View.WRITABLE: [
                str(writable),
                *(str(path) for path in self.visible if self._covers(path)),
            ],
            View.READABLE: sorted(str(path) for path in needed if self._covers(path)),
        }

    def _covers(self, path: Path) -> bool:
        return path.is_dir() and any(each in path.parents for each in self.shared + self.hidden)


def _private_folders(credentials: Collection[Path]) -> set[Path]:
    """The homes of the executor's user, if it has any, and the folders of its files *credentials*.

    Both the home of its environment and that of its account, which need not be the same.
    """
    found = {file.parent for file in credentials}
    if home := os.environ.get("HOME"):
        found.add(Path(home))
    with suppress(KeyError):  # A user without an account, as in many containers.
        found.add(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    return {path for path in found if len(path.parts) > _TOP_LEVEL}


@cache
def _home_of(program: Path) -> set[Path]:
    """The folders of a program: where it is, and if it is in a ``bin``, what that is part of.

    A link to it, as in ``~/.local/bin``, shows its own folder only.
    """
    real = program.resolve()
    environment = program.parent.parent
    found = {program.parent, real.parent}
    if real.parent.name == "bin" and real.name.startswith("python"):
        found.add(real.parent.parent)
    if (environment / "pyvenv.cfg").is_file():
        found.add(environment)
    return found
