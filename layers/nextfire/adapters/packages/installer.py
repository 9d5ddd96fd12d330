"""Installs packages that scripts declare inline (PEP 723), and caches them per tenant.

uv installs the packages in the sandbox as the script's user. The executor then copies them to a
folder that scripts cannot write and that only the tenant's scripts can read. So no script can
change the packages that another one imports. The pool's package policy is checked before uv starts
(`domain.packages`) and again for each package that uv requests from the index (`package_index`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from nextfire.adapters.packages.copy_meter import CopyMeter, StoppedError, lacks_room
from nextfire.adapters.packages.inline_metadata import InlineMetadata
from nextfire.adapters.packages.package_index import IndexProxy, PackageIndex
from nextfire.adapters.scripts.folders import LockedFolder, run_in_background_if_slow
from nextfire.adapters.scripts.removal import remove
from nextfire.adapters.scripts.sandbox import ProgramEnd, Sandbox, ScriptLimits
from nextfire.adapters.scripts.script_streams import Capture
from nextfire.adapters.scripts.script_users import tenant_group
from nextfire.dataclass import dataclass, replace
from nextfire.domain.packages import (
    Lock,
    PackagePolicy,
    PackageRefusedError,
    check_requirements,
    not_allowed,
    read_lock,
)
from nextfire.domain.ports.scripts import Directive, Supervisor

INSTALL_WITHIN = timedelta(minutes=5)
_INSTALL_LIMITS = ScriptLimits(4 * 1024**3, 512, 4 * 1024**3)
_REASON_CHARS = 1500
_PRINTED_BYTES = 64 * 1024
_MAX_SETS = 50
_PIECE = 1024 * 1024
_TARGET = "packages"


@dataclass(frozen=True, slots=True)
class Installation:
    """The result of an installation. `problem`: reason of a failure; None if it succeeded or was
    stopped. `permanent`: a retry would fail again.
    """

    end: ProgramEnd
    problem: str | None = None
    permanent: bool = False


class Packages:
    """Installs packages, and caches the most recently used package sets: `_MAX_SETS`, or fewer if
    the disk gets full.
    """

    def __init__(
        self, *, root: Path, separate: bool, index: PackageIndex, policy: PackagePolicy
    ) -> None:
        """Build.

        Args:
            root: Parent of this process's cache folder.
            separate: Whether each script runs as a separate user.
            index: The package index.
            policy: The packages that may be installed.

        Raises:
            ValueError: uv is not installed, or the cache folder cannot be created.
        """
        self._root = root
        self._found_uv = find_uv()
        self._separate = separate
        self._index = index
        self._policy = policy
        try:
            self._open()
        except OSError as error:
            raise ValueError(f"Cannot store packages in {root}: {error}.") from error
        self._lock = threading.Lock()
        self._users: dict[Path, int] = {}
        self._used_at: dict[Path, float] = {}

    def check(self, inline: InlineMetadata) -> None:
        """Check that the pool's policy allows the dependencies of *inline*.

        Raises:
            PackageRefusedError: It does not. The message gives the reason.
        """
        self._checked_requirements(inline)

    def _checked_requirements(self, inline: InlineMetadata) -> list[str] | Lock:
        """The requirements or the lock to install, checked against the policy."""
        if inline.locked is not None:
            return read_lock(inline.locked, inline.dependencies, self._policy)
        if self._policy.require_hashes:
            raise PackageRefusedError(
                "this pool requires hashes, and the script has no lock. Add one with: "
                "nextfire scripts lock FILE"
            )
        return check_requirements(inline.dependencies, self._policy)

    @contextmanager
    def kept(self, tenant: str, inline: InlineMetadata, version: Sequence[int]) -> Iterator[Path]:
        """The path of *tenant*'s cached package set for *inline*, whether it exists yet or not.

        The set is not evicted inside the `with` block.
        """
        wanted = [sorted(inline.dependencies), sorted(inline.locked or []), list(version)]
        name = json.dumps([*wanted, inline.locked is None])
        path = self._part(tenant) / hashlib.sha256(name.encode()).hexdigest()[:32]
        with self._lock:
            self._users[path] = self._users.get(path, 0) + 1
        try:
            yield path
        finally:
            with self._lock:
                self._users[path] -= 1
                self._used_at[path] = time.monotonic()
                evicted = self._evict()
            for each in evicted:
                run_in_background_if_slow(partial(remove, each))

    def install(
        self,
        sandbox: Sandbox,
        inline: InlineMetadata,
        *,
        tenant: str,
        to: Path,
        interpreter: str,
        environment: Mapping[str, str],
        grace: timedelta,
        supervisor: Supervisor,
    ) -> Installation:
        """Install the dependencies of *inline* in *sandbox*, and copy them to *to*.

        Raises:
            OSError: The packages could not be copied.
            PackageRefusedError: The pool's policy does not allow them.
            UnavailableError, NotFoundError, InvalidInputError: The index's secret is not readable.
        """
        wanted = self._checked_requirements(inline)
        proxy = IndexProxy(self._index, self._served(wanted))
        log = Capture(_PRINTED_BYTES)
        cache = sandbox.folder / "tmp" / "uv"
        target = sandbox.folder / _TARGET
        variables = {
            "UV_CACHE_DIR": str(cache),
            "UV_PYTHON_DOWNLOADS": "never",
            # Not an argument: all users of the machine can read arguments.
            "UV_DEFAULT_INDEX": proxy.url,
        }
        place = ["--target", str(target), "--python", interpreter]
        what, stdin = _uv_arguments(wanted)
        with proxy.serving():
            end = sandbox.run(
                [str(self._uv), "pip", "install", *self._options(), *place, *what],
                environment={**environment, **variables},
                timeout=INSTALL_WITHIN,
                grace=grace,
                limits=_INSTALL_LIMITS,
                ask=supervisor.ask,
                stdout=log.feed,
                stderr=log.feed,
                stdin=stdin,
            )
        if end.timed_out:
            return Installation(end, f"it took longer than {INSTALL_WITHIN.total_seconds():.0f} s")
        if end.not_started is not None:
            return Installation(end, end.not_started)
        if end.exit_code != 0:
            return _failed(end, log.text(), proxy)
        if end.stopped is not Directive.CONTINUE:
            return Installation(end)
        try:
            self._keep(target, to, tenant, supervisor.ask)
        except StoppedError as stopped:
            end = replace(end, stopped=stopped.verdict)
        return Installation(end)

    def _served(self, wanted: list[str] | Lock) -> frozenset[str] | None:
        """Names of the packages that the proxy serves; None for all."""
        return wanted.names if isinstance(wanted, Lock) else self._policy.allowed

    def _options(self) -> list[str]:
        options = ["--compile-bytecode", "--link-mode", "copy", "--no-config", "--no-progress"]
        options += ["--color", "never", "--system-certs"]
        return options if self._policy.builds else [*options, "--only-binary", ":all:"]

    def _open(self) -> None:
        """Create the cache folder.

        Raises:
            OSError: The folder cannot be created.
        """
        folder = LockedFolder(self._root, _TARGET)
        weakref.finalize(self, folder.remove)
        self._folder, self._uv = folder.path, self._found_uv
        if self._separate:
            # A tenant's group can enter the tenant's part; other names cannot be listed.
            self._folder.chmod(0o711)
            # Script users may lack access to the folder of uv.
            self._uv = shutil.copyfile(self._uv, self._folder / "uv")
            self._uv.chmod(0o755)

    def _part(self, tenant: str) -> Path:
        part = self._folder / hashlib.sha256(tenant.encode()).hexdigest()[:32]
        if not part.exists():
            with self._lock:
                if not self._folder.exists():
                    # The folder was deleted, maybe by a script that runs as the same user.
                    self._open()
                    part = self._folder / part.name
                part.mkdir(mode=0o700, exist_ok=True)
                self._allow(part, 0o750, tenant)
        return part

    def _keep(self, made: Path, to: Path, tenant: str, ask: Callable[[], Directive]) -> None:
        fresh = _aside(to)
        try:
            self._copy(made, fresh, tenant, CopyMeter(ask))
            fresh.rename(to)
        except OSError:
            if not to.exists():  # otherwise another run of the tenant was faster
                raise
        finally:
            if fresh.exists():
                run_in_background_if_slow(partial(remove, fresh))

    def _copy(self, source: Path, target: Path, tenant: str, meter: CopyMeter) -> None:
        """Copy folders and regular files; skip links and special files.

        The processes that wrote *source* have ended, so it does not change meanwhile.

        Raises:
            OSError: *source* or its folder was replaced by a link, or the copy is too large.
        """
        if not all(stat.S_ISDIR(path.lstat().st_mode) for path in (source.parent, source)):
            raise OSError(f"{source.name} is not a folder")
        todo = [(source, target)]
        while todo:
            original, copy = todo.pop()
            copy.mkdir(mode=0o700)
            with os.scandir(original) as entries:
                for entry in entries:
                    meter.count(files=1)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((Path(entry.path), copy / entry.name))
                    elif entry.is_file(follow_symlinks=False):
                        self._copy_file(Path(entry.path), copy / entry.name, tenant, meter)
            self._allow(copy, 0o750, tenant)

    def _copy_file(self, source: Path, target: Path, tenant: str, meter: CopyMeter) -> None:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as reader, target.open("xb") as writer:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return
            while piece := reader.read(_PIECE):
                meter.count(size=len(piece))
                writer.write(piece)
        # Compiled files (.pyc) record the modification time of their source.
        os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
        self._allow(target, 0o750 if found.st_mode & stat.S_IXUSR else 0o640, tenant)

    def _allow(self, path: Path, mode: int, tenant: str) -> None:
        if self._separate:
            os.chown(path, 0, tenant_group(tenant))
        path.chmod(mode)

    def _evict(self) -> list[Path]:
        """Rename the least recently used sets. Call with the lock held. Returns the paths to remove
        after it is released.
        """
        evicted = []
        idle = [path for path in self._used_at if not self._users.get(path)]
        idle.sort(key=self._used_at.__getitem__)
        for path in idle[: max(len(self._used_at) - _MAX_SETS, int(lacks_room(self._root)))]:
            del self._used_at[path]
            self._users.pop(path, None)
            aside = _aside(path)
            with suppress(FileNotFoundError):  # the installation had failed
                path.rename(aside)
                evicted.append(aside)
        return evicted


def _uv_arguments(wanted: list[str] | Lock) -> tuple[list[str], bytes]:
    """Arguments of uv that select the packages, and its standard input."""
    if isinstance(wanted, Lock):
        # Install exactly the locked packages: do not resolve dependencies.
        listed = "".join(f"{line}\n" for line in wanted.lines)
        return ["--require-hashes", "--no-deps", "--requirements", "-"], listed.encode()
    return ["--", *wanted], b""


def _failed(end: ProgramEnd, printed: str, proxy: IndexProxy) -> Installation:
    if end.stopped is Directive.CONTINUE and proxy.refused and proxy.problem is None:
        return Installation(end, not_allowed(proxy.refused), permanent=True)
    # Redact before truncating: half a URL is not recognized as a URL.
    problem = proxy.redacted(printed).strip()[:_REASON_CHARS] or f"uv exited with {end.exit_code}"
    if proxy.problem is not None:
        problem = f"the package index: {proxy.problem}. {problem}"
    return Installation(end, problem)


def _aside(path: Path) -> Path:
    """A new name in the folder of *path*. It contains a dot, so it is never the name of a set."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}")


def find_uv() -> Path:
    """The path of the uv executable.

    Raises:
        ValueError: uv is not installed.
    """
    found = shutil.which("uv")
    if find_spec("uv") is not None:
        from uv import find_uv_bin  # noqa: PLC0415 - optional dependency

        with suppress(FileNotFoundError):
            found = find_uv_bin()
    if found is None:
        raise ValueError(
            "NEXTFIRE_PACKAGES is inline, but uv is not installed. Install uv, for example with: "
            "pip install uv"
        )
    return Path(found)
