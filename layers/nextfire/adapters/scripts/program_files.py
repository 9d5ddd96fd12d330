"""Puts what a run starts into its sandbox: a script file with its packages, or an archive."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path, PurePosixPath

from nextfire.adapters.packages.inline_metadata import (
    InlineMetadata,
    parse_inline_metadata,
    python_satisfies,
)
from nextfire.adapters.packages.installer import Packages
from nextfire.adapters.scripts import unpack
from nextfire.adapters.scripts.interpreters import Interpreter
from nextfire.adapters.scripts.sandbox import Sandbox, ScriptLimits
from nextfire.adapters.scripts.sandboxes import Sandboxes
from nextfire.adapters.scripts.script_streams import Capture
from nextfire.domain.packages import PackageRefusedError
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor

_UNPACK_WITHIN = timedelta(minutes=1)
_UNPACKED_BYTES = 512 * 1024 * 1024
_UNPACKED_FILES = 20_000
_REASON_CHARS = 500
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 100
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_SCARCE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.ETOOMANYREFS,
}
"""Errors of a host that lacks disk space, open files, processes or memory. The last one: too many
descriptors are in flight.
"""


class ProgramFiles:
    """Prepares what runs with *interpreter*. *packages*: installs those that scripts declare; None
    if the pool does not. *environment*, *limits* and *grace*: of the programs that unpack and
    install.
    """

    def __init__(
        self,
        sandboxes: Sandboxes,
        interpreter: Interpreter,
        environment: Mapping[str, str],
        limits: ScriptLimits,
        *,
        packages: Packages | None,
        grace: timedelta,
    ) -> None:
        self._sandboxes = sandboxes
        self._interpreter = interpreter
        self._environment = environment
        self._limits = limits
        self._packages = packages
        self._grace = grace
        self._unpack = Path(unpack.__file__).read_text(encoding="utf-8")

    def unpacked(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        environment: Mapping[str, str],
        supervisor: Supervisor,
    ) -> Path | ScriptExit:
        """Unpack an archive. Returns the folder to run, or the result if that failed."""
        archive = sandbox.write("archive.zip", call.source)
        folder = sandbox.make_folder("script")
        bounds = [str(_UNPACKED_BYTES), str(_UNPACKED_FILES)]
        log = Capture(_REASON_CHARS)
        end = sandbox.run(
            [
                self._interpreter.path,
                "-I",
                "-S",
                "-c",
                self._unpack,
                str(archive),
                str(folder),
                *bounds,
            ],
            environment={**self._environment, "HOME": environment["HOME"]},
            timeout=min(_UNPACK_WITHIN, call.timeout),
            grace=self._grace,
            limits=self._limits,
            ask=supervisor.ask,
            stdout=log.feed,
            stderr=log.feed,
        )
        if end.stopped is not Directive.CONTINUE:
            return ScriptExit(None, "", "", stopped=end.stopped)
        if end.not_started is not None:
            return not_started(end.not_started, self._interpreter, self._sandboxes)
        if end.timed_out and call.timeout < _UNPACK_WITHIN:
            return ScriptExit(None, "", "", timed_out=True)
        if end.timed_out:
            seconds = _UNPACK_WITHIN.total_seconds()
            return _refusal(
                f"The archive {call.name} cannot be run: unpacking took longer than {seconds:.0f} "
                "s. Remove files that the script does not need.",
                permanent=False,
            )
        if end.exit_code != 0:
            reason = log.text().strip() or f"unpacking exited with {end.exit_code}"
            refused = end.exit_code == unpack.REFUSED
            return _refusal(f"The archive {call.name} cannot be run: {reason}.", permanent=refused)
        archive.unlink(missing_ok=True)
        return _unless_stopped(supervisor) or folder

    def written(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        environment: dict[str, str],
        supervisor: Supervisor,
        stack: ExitStack,
    ) -> Path | ScriptExit:
        """Prepare a script of a single file: check its inline metadata, install its dependencies
        and add them to *environment*.

        Returns:
            The file to run, or the result if that failed.
        """
        try:
            inline = parse_inline_metadata(call.source)
            suited = python_satisfies(self._interpreter.version, inline.requires_python)
        except ValueError as error:
            return _refusal(f"The script {call.name} cannot be run: {error}.", permanent=True)
        if not suited:
            return _refusal(
                f"The script requires Python {inline.requires_python}; this pool runs "
                f"{'.'.join(map(str, self._interpreter.version))}. Change requires-python, or set "
                "NEXTFIRE_INTERPRETER to another Python in this pool.",
                permanent=True,
            )
        if inline.dependencies:
            problem = self._install_dependencies(
                sandbox, call, inline, environment, supervisor, stack
            )
            if problem is not None:
                return problem
        return sandbox.write(_file_name(call.name), call.source)

    def _install_dependencies(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        inline: InlineMetadata,
        environment: dict[str, str],
        supervisor: Supervisor,
        stack: ExitStack,
    ) -> ScriptExit | None:
        """Install the dependencies of *inline*. Returns None, or the result if that failed or was
        stopped.
        """
        if self._packages is None:
            return _refusal(
                "The script declares dependencies inline, but this pool does not install packages. "
                "Use a worker pool whose packages are inline, or upload a .zip with the packages.",
                permanent=True,
            )
        try:
            self._packages.check(inline)
        except PackageRefusedError as error:
            return _refusal(f"The script {call.name} cannot be run: {error}.", permanent=True)
        place = stack.enter_context(
            self._packages.kept(call.tenant, inline, self._interpreter.version)
        )
        if not place.exists():
            problem = self._fill(place, self._packages, inline, call.tenant, supervisor)
            if problem is not None:
                return problem
        library, *others = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([library, str(place), *others])
        sandbox.readable.append(place)
        return None

    def _fill(
        self,
        place: Path,
        packages: Packages,
        inline: InlineMetadata,
        tenant: str,
        supervisor: Supervisor,
    ) -> ScriptExit | None:
        """Install the dependencies of *inline* into *place*. Returns None, or the result if that
        failed or was stopped.
        """
        # Install in another sandbox: building packages runs their code, which could leave links
        # where files of the script's sandbox are written next.
        with self._sandboxes.one(tenant) as workshop:
            workshop.open()
            made = packages.install(
                workshop,
                inline,
                tenant=tenant,
                to=place,
                interpreter=self._interpreter.path,
                # Without the job's variables: they are for the script only.
                environment={
                    **self._environment,
                    "HOME": str(workshop.folder),
                    "TMPDIR": str(workshop.temporary),
                },
                grace=self._grace,
                supervisor=supervisor,
            )
        if made.end.stopped is not Directive.CONTINUE:
            return ScriptExit(None, "", "", stopped=made.end.stopped)
        if made.problem is not None:
            return _refusal(
                f"Cannot install the script's dependencies: {made.problem}",
                permanent=made.permanent,
            )
        return _unless_stopped(supervisor)


def not_started(cause: str, interpreter: Interpreter, sandboxes: Sandboxes) -> ScriptExit:
    """The result of a script that could not be started, with its *cause* and the remedy.

    *cause* contains the text of an `OSError`, of this process or of the one that starts scripts.
    """
    number = _ERRNO.search(cause)
    scarce = number is not None and int(number[1]) in _SCARCE
    remedy = (
        "Its host has no disk space, memory, open files or processes left: see what else uses them"
        if scarce
        else f"Check that the interpreter {interpreter.path} exists and is executable, and that "
        f"{sandboxes.root} is writable"
    )
    error = f"The script could not be started: {cause}. {remedy}."
    return ScriptExit(None, "", "", error=error, unavailable=scarce)


def _unless_stopped(supervisor: Supervisor) -> ScriptExit | None:
    """The result of a script that must not start any more; None if it may start."""
    verdict = supervisor.ask()
    return None if verdict is Directive.CONTINUE else ScriptExit(None, "", "", stopped=verdict)


def _refusal(error: str, *, permanent: bool) -> ScriptExit:
    return ScriptExit(None, "", "", error=error, permanent=permanent)


def _file_name(name: str) -> str:
    stem = _NOT_IN_A_NAME.sub("_", PurePosixPath(name).name.removesuffix(".py"))
    return (stem[:_MAX_NAME].lstrip(".-") or "script") + ".py"
