"""Decides which folders scripts see, on hosts that allow namespaces."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

from nextfire.adapters.scripts.confinement import View
from nextfire.dataclass import dataclass

_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/run/lock"))  # noqa: S108 - the host's
_RUN = Path("/run")
_TOP_LEVEL = 2
"""Number of parts of a top-level path such as ``/etc``, which must stay visible to scripts."""


@dataclass(frozen=True, slots=True)
class CoveredFolders:
    """The folders of a host that are replaced for its scripts.

    `shared`: replaced by a folder of the run. `hidden`: appear empty. Folders inside them that the
    script needs stay visible under their own paths, and so do the folders `visible`.
    """

    shared: tuple[Path, ...]
    hidden: tuple[Path, ...]
    visible: tuple[Path, ...] = ()

    @classmethod
    def of_host(
        cls, root: Path, *, visible: Collection[Path], credentials: Collection[Path]
    ) -> Self:
        """The folders of this host: temporary folders, *root*, those of the files *credentials*,
        the home of an executor's user, and the secrets that Kubernetes and Docker mount, unless
        their folder is among *visible*.

        Root's home is not covered: script users cannot read it anyway.
        """
        shared = {path.resolve() for path in (root, *_TEMPORARY)}
        private = {file.parent for file in credentials}
        if os.geteuid() != 0:
            private |= _homes()
        found = {path.resolve() for path in private}
        mounted = {_RUN / "user", _RUN / "secrets"} - {path.resolve() for path in visible}
        hidden = mounted | {path for path in found if len(path.parts) > _TOP_LEVEL}
        covered = {path for path in shared | hidden if path.is_dir() and path != Path("/")}
        # A folder inside a covered folder is covered with it.
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
        """The `View` for a program.

        Args:
            program: Absolute path of the program.
            instead: The folder that replaces `shared`.
            writable: The program's working folder.
            readable: Folders that the program reads.
            offline: Whether to hide sockets of host services in /run as well.
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


def _homes() -> set[Path]:
    """The home folders of the executor's user: the one in its environment and the one of its
    account, which may differ.
    """
    found = set()
    if home := os.environ.get("HOME"):
        found.add(Path(home))
    with suppress(KeyError):  # The user has no account, as in many containers.
        found.add(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    return found


@cache
def _home_of(program: Path) -> set[Path]:
    """The folders that a program needs: its own, and the installation or virtual environment.

    If *program* is a symbolic link, as in ``~/.local/bin``, the folder of the link is added without
    its parent, and the folders of its target.
    """
    real = program.resolve()
    environment = program.parent.parent
    found = {program.parent, real.parent}
    if real.parent.name == "bin" and real.name.startswith("python"):
        found.add(real.parent.parent)
    if (environment / "pyvenv.cfg").is_file():
        found.add(environment)
    return found
