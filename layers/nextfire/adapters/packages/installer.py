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
import re
import shutil
import stat
import threading
import time
import tomllib
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nextfire.adapters.packages.package_index import IndexProxy, PackageIndex
from nextfire.adapters.scripts.folders import LockedFolder, run_in_background_if_slow
from nextfire.adapters.scripts.removal import remove
from nextfire.adapters.scripts.sandbox import ProgramEnd, Sandbox, ScriptLimits
from nextfire.adapters.scripts.script_streams import Capture
from nextfire.adapters.scripts.script_users import tenant_group
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
_MOST_BYTES = 4 * 1024**3
_MOST_FILES = 100_000
_PIECE = 1024 * 1024
_TARGET = "packages"
_BLOCK, _END = "# /// script", "# ///"
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")


@dataclass(frozen=True, slots=True)
class InlineMetadata:
    """Metadata that a script declares inline.

    `dependencies`: requirements (PEP 508). `locked`: lines of a requirements file with hashes,
    which are installed instead; None without a lock.
    """

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    locked: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Installation:
    """The result of an installation. `problem`: reason of a failure; None if it succeeded or was
    stopped. `permanent`: a retry would fail again.
    """

    end: ProgramEnd
    problem: str | None = None
    permanent: bool = False


def parse_inline_metadata(source: bytes) -> InlineMetadata:
    """Parse the block ``# /// script`` … ``# ///`` in *source*.

    Raises:
        ValueError: *source* has several such blocks, or the block is malformed.
    """
    lines = iter(source.decode(errors="replace").splitlines())
    begun = (_block(lines) for line in lines if line.rstrip() == _BLOCK)
    blocks = [block for block in begun if block is not None]
    if len(blocks) > 1:
        raise ValueError("it has several blocks '# /// script'. Keep only one")
    if not blocks:
        return InlineMetadata()
    try:
        metadata = tomllib.loads("\n".join(blocks[0]))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"its block '# /// script' is not valid TOML: {error}") from error
    dependencies, python = metadata.get("dependencies", []), metadata.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(d, str) for d in dependencies):
        raise ValueError("in its block '# /// script', dependencies is not a list of strings")
    if not isinstance(python, str):
        raise ValueError(  # noqa: TRY004 - the script is wrong, not the caller
            "in its block '# /// script', requires-python is not a string"
        )
    return InlineMetadata(tuple(dependencies), python, _locked(metadata))


def _locked(metadata: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The lock in the table ``[tool.nextfire]``; or None."""
    tool = metadata.get("tool", {})
    ours = tool.get("nextfire", {}) if isinstance(tool, dict) else {}
    locked = ours.get("locked") if isinstance(ours, dict) else None
    if locked is None:
        return None
    if not isinstance(locked, list) or not all(isinstance(line, str) for line in locked):
        raise ValueError(
            "in its block '# /// script', tool.nextfire.locked is not a list of strings"
        )
    return tuple(locked)


def _block(lines: Iterator[str]) -> list[str] | None:
    """The content of the block whose first line was just read; None if it is not terminated."""
    content: list[str] = []
    ended: list[str] | None = None
    for line in lines:
        if line.rstrip() == _END:
            ended = list(content)  # the last such line of the comment ends it
        if line != "#" and not line.startswith("# "):
            break
        content.append(line[2:])
    return ended


def python_satisfies(version: Sequence[int], required: str) -> bool:
    """Whether Python *version* satisfies *required*, for example ``>=3.11,<3.14``.

    Raises:
        ValueError: *required* is malformed.
    """
    for clause in filter(None, (part.strip() for part in required.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"invalid requires-python {required!r}: use, for example, '>=3.11'")
        operator, number, wildcard = match.groups()
        wanted = [int(part) for part in number.split(".")]
        prefix = list(version[: len(wanted)]) == wanted
        have = list(version) + [0] * (len(wanted) - len(version))
        want = wanted + [0] * (len(version) - len(wanted))
        good = {
            "==": prefix if wildcard else have == want,
            "!=": not prefix if wildcard else have != want,
            "~=": have >= want and have[: len(wanted) - 1] == wanted[:-1],
            ">=": have >= want,
            "<=": have <= want,
            ">": have > want,
            "<": have < want,
        }[operator]
        if not good:
            return False
    return True


class Packages:
    """Installs packages, and caches the `_MAX_SETS` most recently used package sets."""

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
        except _StoppedError as stopped:
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
            self._copy(made, fresh, tenant, _Meter(ask))
            fresh.rename(to)
        except OSError:
            if not to.exists():  # otherwise another run of the tenant was faster
                raise
        finally:
            if fresh.exists():
                run_in_background_if_slow(partial(remove, fresh))

    def _copy(self, source: Path, target: Path, tenant: str, meter: _Meter) -> None:
        """Copy folders and regular files; skip links and special files.

        The processes that wrote *source* have ended, so it does not change meanwhile.

        Raises:
            OSError: *source* or its folder was replaced by a link, or the copy is too large.
        """
        if not all(stat.S_ISDIR(path.lstat().st_mode) for path in (source.parent, source)):
            raise OSError(f"{source.name} is not a folder")
        todo = [(source, target)]
        while todo:
            here, there = todo.pop()
            there.mkdir(mode=0o700)
            with os.scandir(here) as entries:
                for entry in entries:
                    meter.count(files=1)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((Path(entry.path), there / entry.name))
                    elif entry.is_file(follow_symlinks=False):
                        self._copy_file(Path(entry.path), there / entry.name, tenant, meter)
            self._allow(there, 0o750, tenant)

    def _copy_file(self, source: Path, target: Path, tenant: str, meter: _Meter) -> None:
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
        for path in idle[: max(len(self._used_at) - _MAX_SETS, 0)]:
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


class _StoppedError(Exception):
    """The supervisor stopped the copy."""

    def __init__(self, verdict: Directive) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class _Meter:
    """Limits a copy, and polls at each file and chunk whether the run may continue."""

    def __init__(self, ask: Callable[[], Directive]) -> None:
        self._ask = ask
        self._files = self._bytes = 0

    def count(self, *, files: int = 0, size: int = 0) -> None:
        """Add *files* and *size* bytes to the copy.

        Raises:
            OSError: The copy is too large.
            _StoppedError: The run may not continue.
        """
        self._files += files
        self._bytes += size
        if self._files > _MOST_FILES or self._bytes > _MOST_BYTES:
            raise OSError(f"the packages exceed {_MOST_FILES} files or {_MOST_BYTES} bytes")
        verdict = self._ask()
        if verdict is not Directive.CONTINUE:
            raise _StoppedError(verdict)


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
