"""Creates sandboxes for scripts: their folders, users and groups. Linux 5.3 or later."""

from __future__ import annotations

import logging
import os
import resource
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from nextfire.adapters.scripts import confinement
from nextfire.adapters.scripts.covered import CoveredFolders
from nextfire.adapters.scripts.folders import (
    LockedFolder,
    run_in_background_if_slow,
    sweep,
    sweep_user,
)
from nextfire.adapters.scripts.host_abilities import probe_host
from nextfire.adapters.scripts.launchers import Launchers
from nextfire.adapters.scripts.sandbox import Sandbox
from nextfire.adapters.scripts.script_users import FIRST_UID, ScriptUser, ScriptUsers, tenant_group
from nextfire.adapters.scripts.syscalls import script_filter

_log = logging.getLogger(__name__)


def _usual_root(*, anybody: bool) -> Path:
    """The folder for temporary files; for *anybody*: the first one that all users may enter."""
    usual = Path(tempfile.gettempdir())
    if not anybody:
        return usual
    for place in (usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 — names in it are unique
        with suppress(OSError):
            path = place.resolve(strict=True)
            if all(each.stat().st_mode & stat.S_IXOTH for each in (path, *path.parents)):
                return path
    return usual  # the probe of the interpreter reports the problem


def _check_visible(root: Path) -> None:
    """Check that scripts in namespaces see *root*.

    Raises:
        ValueError: They get an empty folder in its place, or in that of one above it.
    """
    for path in confinement.REPLACED:
        if Path(path) in (root, *root.parents):
            raise ValueError(
                f"scripts cannot run in {root}: each gets its own {path}, which is empty. Set "
                "TMPDIR to another folder, for example TMPDIR=/var/tmp."
            )


class Sandboxes:
    """Creates sandboxes. Thread-safe."""

    def __init__(
        self,
        *,
        root: Path | None,
        tenant_groups: bool,
        launch_environment: Mapping[str, str],
        visible: Collection[Path] = (),
        credentials: Collection[Path] = (),
    ) -> None:
        """Build, and remove folders that killed executors left on this machine.

        Args:
            root: Parent of the run folders. None for the folder for temporary files or, if script
                users may not enter that, /tmp or /var/tmp.
            tenant_groups: Whether script users belong to a group of their tenant.
            launch_environment: Environment variables that the executor's interpreter needs.
            visible: Folders that scripts see although they are covered (see `CoveredFolders`).
            credentials: Files with the executor's credentials, in addition to those in its home.

        Raises:
            ValueError: The locks of the script users cannot be stored, or scripts cannot see
                *root*.
        """
        own = os.geteuid()
        self.root = (root or _usual_root(anybody=own == 0)).resolve()
        self._users = ScriptUsers(FIRST_UID) if own == 0 else None
        self._tenant_groups = tenant_groups
        self._abilities = probe_host(launch_environment)
        self.launchers = Launchers(
            launch_environment, exposed=own != 0 and not self._abilities.namespaces
        )
        self._covered = None
        if self._abilities.namespaces:
            _check_visible(self.root)
            self._covered = CoveredFolders.of_host(
                self.root, visible=visible, credentials=credentials
            )
        elif own == 0:
            _warn_of_readable(credentials)
        users = self._users
        sweep(self.root, lambda owner: owner == own or bool(users and users.owns(owner)))
        if users is None:
            _hide()
            _allow_open_files()
        with suppress(OSError):  # adopt what a killed keeper leaves
            confinement.prctl(confinement.PR_SET_CHILD_SUBREAPER, 1)

    @property
    def separate(self) -> bool:
        """Whether each sandbox has a dedicated user."""
        return self._users is not None

    @property
    def filters(self) -> bool:
        """Whether system calls, such as those that open internet sockets, can be filtered."""
        return self._abilities.filters and script_filter(internet=True, ipc=True) is not None

    @property
    def network_namespaces(self) -> bool:
        """Whether each sandbox can have a separate network."""
        return self.separate and self._covered is not None

    @contextmanager
    def one(self, tenant: str) -> Iterator[Sandbox]:
        """A sandbox for *tenant*, which exists inside the `with` block.

        A slow removal continues in the background; until it ends, the user is not reused.

        Raises:
            OSError: The sandbox cannot be created.
        """
        user = None if self._users is None else self._users.take()
        try:
            folder = LockedFolder(self.root, "run")
        except OSError:
            self._give_back(user, alone=True)
            raise
        sandbox: Sandbox | None = None
        try:
            groups = [tenant_group(tenant)] if self._tenant_groups else []
            sandbox = Sandbox(
                folder,
                user,
                groups,
                self.launchers,
                tenant,
                self._covered,
                filters=self._abilities.filters,
            )
            yield sandbox
        finally:
            alone = sandbox is None or sandbox.alone
            run_in_background_if_slow(partial(self._clear, folder, user, alone=alone))

    def _clear(self, folder: LockedFolder, user: ScriptUser | None, *, alone: bool) -> None:
        try:
            folder.remove()
            if user is not None and self._covered is None:
                sweep_user(user.number, self.root)  # with namespaces, nothing is left
        finally:
            self._give_back(user, alone=alone)

    def _give_back(self, user: ScriptUser | None, *, alone: bool) -> None:
        if self._users is not None and user is not None:
            self._users.give_back(user, alone=alone)


def _warn_of_readable(credentials: Collection[Path]) -> None:
    for path in credentials:
        with suppress(OSError):
            if path.stat().st_mode & stat.S_IROTH:
                _log.warning(
                    "scripts may read the executor's credentials in %s: let only root read it, in "
                    "Kubernetes with runAsUser: 0; or allow the executor namespaces",
                    path,
                )


def _hide() -> None:
    """Hide this process's environment and memory in /proc from scripts of the same user.

    If a process is not dumpable, its files in /proc belong to root, who may read them anyway.
    """
    try:
        confinement.prctl(confinement.PR_SET_DUMPABLE, 0)
    except OSError as error:
        _log.warning("scripts may read the executor's environment: %s", error)


def _allow_open_files() -> None:
    """Let this process open as many files as it may.

    A process cannot send a descriptor while its user has more of them in flight than the process
    may open files. Scripts of the same user can send as many as their own, lower limit.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
