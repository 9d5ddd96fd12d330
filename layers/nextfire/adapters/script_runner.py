"""Runs scripts, each in a `sandbox`: what a script finds there, and what is made of its end."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

import nextfire_job
from nextfire.adapters import unpack
from nextfire.adapters.package_index import PackageIndex
from nextfire.adapters.packages import Inline, Packages, inline_metadata, suits
from nextfire.adapters.sandbox import Ending, Sandbox, Sandboxes, ScriptLimits
from nextfire.adapters.script_channel import Channel
from nextfire.adapters.script_network import network_for
from nextfire.adapters.script_streams import Capture
from nextfire.domain.egress import OPEN, Egress, EgressMode
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.packages import PackagePolicy, PackageRefusedError
from nextfire.domain.ports import ScriptCall, ScriptExit, Supervisor, Verdict

__all__ = ["ProcessScriptRunner", "ScriptLimits"]

_log = logging.getLogger(__name__)

_ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
    }
)
_OLDEST = (3, 11)
_PROBE = "import sys; print(*sys.version_info[:3])"
_PROBE_WITHIN = timedelta(seconds=30)
_OTHER_INTERPRETERS = ("/usr/local/bin/python3", "/usr/bin/python3")
_UNPACK_WITHIN = timedelta(minutes=1)
_UNPACKED_BYTES = 512 * 1024 * 1024
_UNPACKED_FILES = 20_000
_REASON_CHARS = 500
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 100


class ProcessScriptRunner:
    """Runs scripts in child processes; any number at a time, each in a thread of its own.

    As root it gives each run a user of its own. As another user it runs scripts as that user, who
    then can do to it whatever it could do to itself, save look into it.
    """

    def __init__(
        self,
        *,
        interpreter: str | None = None,
        output_cap: int = 16 * 1024,
        grace: timedelta = timedelta(seconds=5),
        environment: Mapping[str, str] = MappingProxyType({}),
        limits: ScriptLimits = ScriptLimits(),  # noqa: B008 - it does not change
        packages: Literal["inline", "none"] = "none",
        package_index: PackageIndex | None = None,
        package_policy: PackagePolicy | None = None,
        temp_root: Path | None = None,
        base_uid: int = 60_000,
        egress: Egress = OPEN,
        visible: Collection[Path] = (),
        credentials: Collection[Path] = (),
    ) -> None:
        """Build a runner, and try it.

        Args:
            interpreter: The Python (3.11 or later) that runs the scripts. None: the one that this
                process's own was made from; where root's script users cannot reach that, python3
                in /usr/local/bin or /usr/bin.
            output_cap: Bytes (≥ 2) kept of each stream: the first half and the last half. In
                UTF-8 the text is no longer, save for the notice.
            grace: How long a script has between SIGTERM and SIGKILL.
            environment: What every script finds in its environment beside LANG, TZ, HOME and
                TMPDIR; nothing is inherited. For example a PATH, and LD_LIBRARY_PATH where the
                interpreter needs it (Lambda).
            limits: What a script may use.
            packages: Whether packages that a script names inline (PEP 723) are installed for it.
            package_index: Where they come from, instead of the public index.
            package_policy: Which of them are installed; None: any that has a wheel.
            temp_root: Where the working folders are made; if None, where temporary files go.
            base_uid: The first number of the users that root gives to runs. That and the 999 after
                it are for nobody else; executors share them.
            egress: What scripts may reach on the network. Installations of packages, which come
                before, reach what the executor reaches.
            visible: Folders of the host, in temporary folders or in the home of the executor's
                user, which scripts see all the same, with the rights that their user has there.
            credentials: Files that hold the executor's credentials. Where the host allows
                namespaces, scripts of the executor's user do not see their folders.

        Raises:
            ValueError: The cap is too small; or scripts cannot be run here, and what to do.
        """
        smallest = 2
        if output_cap < smallest:
            raise ValueError(f"output_cap is {output_cap}; give at least {smallest} bytes")
        self._output_cap = output_cap
        self._grace = grace
        self._environment = {**_ENVIRONMENT, **environment}
        self._limits = limits
        self._job_module = Path(nextfire_job.__file__).read_bytes()
        launch = {n: v for n, v in environment.items() if n == "LD_LIBRARY_PATH"}
        self._sandboxes = Sandboxes(
            root=temp_root,
            first_user=base_uid,
            tenant_groups=packages == "inline",
            launch_environment=launch,
            visible=visible,
            credentials=credentials,
        )
        self._egress = egress
        if egress.mode is EgressMode.LISTED and not self._sandboxes.network_namespaces:
            raise ValueError(
                f"egress is {egress}, and listed hosts take network namespaces, which this host "
                "does not allow. Run the worker as root with the capability CAP_SYS_ADMIN; or give "
                'the pool the egress "none"; or "open", with a firewall around its network.'
            )
        if egress.mode is EgressMode.LISTED:
            try:
                with network_for(egress, {}):
                    pass
            except OSError as error:
                raise ValueError(
                    f"egress is {egress}, and a network namespace cannot be made here: {error}. "
                    "Give the worker the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN."
                ) from error
        if egress.mode is EgressMode.NONE and not self._sandboxes.filters:
            raise ValueError(
                'egress is "none", which takes a seccomp filter, and this host allows none, or is '
                "neither x86-64 nor AArch64. Serve the pool from another host."
            )
        self._version: tuple[int, ...] = sys.version_info[:3]
        self._interpreter = self._choose(interpreter)
        self._packages = None
        if packages == "inline":
            self._packages = Packages(
                root=self._sandboxes.root,
                separate=self._sandboxes.separate,
                index=package_index or PackageIndex(),
                policy=package_policy or PackagePolicy(),
            )
        self._unpack = Path(unpack.__file__).read_text(encoding="utf-8")

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        """See `ScriptRunner.run`.

        While *supervisor* works no output is read and no timeout noticed. The first cause to end
        the script is the one that is told; while the script has its grace only LEASE_LOST
        (SIGKILL, at once) counts.
        """
        with ExitStack() as stack:
            try:
                sandbox = stack.enter_context(self._sandboxes.one(call.tenant))
            except OSError as error:
                return self._not_started(str(error))
            return self._run_in(sandbox, call, supervisor)

    def _run_in(self, sandbox: Sandbox, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        out = _Output("stdout", self._output_cap, call.masker, supervisor)
        err = _Output("stderr", self._output_cap, call.masker, supervisor)
        with ExitStack() as stack:
            try:
                environment = self._furnish(sandbox, call)
                timeout = call.timeout
                if call.name.endswith(".zip"):
                    began = time.monotonic()
                    program = self._unpacked(sandbox, call, environment, supervisor)
                    # Were it on top, an archive that takes long to unpack could have more time in
                    # all than its host lives, and would be handed back again and again.
                    timeout -= timedelta(seconds=time.monotonic() - began)
                else:
                    program = self._single(sandbox, call, environment, supervisor, stack)
                if isinstance(program, ScriptExit):
                    return program
                if timeout <= timedelta(0):
                    return ScriptExit(None, "", "", timed_out=True)
                near, far = socket.socketpair()
            except (OSError, ValueError) as error:
                return self._not_started(str(error))
            stack.enter_context(near)
            stack.enter_context(far)
            try:
                network = stack.enter_context(network_for(self._egress, environment))
            except OSError as error:
                return self._not_started(f"no network: {error}")
            channel = Channel(near, supervisor, call.masker)

            def ask() -> Verdict:
                while network.notices:
                    err.feed(network.notices.popleft().encode())
                return supervisor.ask()

            end = sandbox.run(
                # -P: its folder is not on its path, or email.py would be everybody's `email`. An
                # archive's is all the same.
                [self._interpreter, "-u", "-P", str(program)],
                environment={**network.environment, **environment},
                timeout=timeout,
                grace=self._grace,
                limits=self._limits,
                ask=ask,
                stdout=out.feed,
                stderr=err.feed,
                stdin=call.payload.encode(),
                handed=far,
                sources=[channel],
                network=network,
            )
            while network.notices:
                err.feed(network.notices.popleft().encode())
        return self._exit(end, out.end(), err.end(), channel.result)

    def _furnish(self, sandbox: Sandbox, call: ScriptCall) -> dict[str, str]:
        """Put into the sandbox what every script finds there. Returns its environment."""
        library = sandbox.make_folder("lib")
        sandbox.write("lib/nextfire_job.py", self._job_module)
        sandbox.open()
        theirs = call.environment.get("PYTHONPATH", "")
        return {
            **self._environment,
            **call.environment,
            "HOME": str(sandbox.folder),
            "TMPDIR": str(sandbox.temporary),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(library), theirs])),
        }

    def _unpacked(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        environment: Mapping[str, str],
        supervisor: Supervisor,
    ) -> Path | ScriptExit:
        """Unpack an archive. Returns the folder to run, or how that ended."""
        archive = sandbox.write("archive.zip", call.source)
        folder = sandbox.make_folder("script")
        bounds = [str(_UNPACKED_BYTES), str(_UNPACKED_FILES)]
        log = Capture(_REASON_CHARS)
        end = sandbox.run(
            [self._interpreter, "-I", "-S", "-c", self._unpack, str(archive), str(folder), *bounds],
            environment={**self._environment, "HOME": environment["HOME"]},
            timeout=min(_UNPACK_WITHIN, call.timeout),
            grace=self._grace,
            limits=self._limits,
            ask=supervisor.ask,
            stdout=log.feed,
            stderr=log.feed,
        )
        if end.stopped is not Verdict.GO_ON:
            return ScriptExit(None, "", "", stopped=end.stopped)
        if end.not_started is not None:
            return self._not_started(end.not_started)
        if end.timed_out and call.timeout < _UNPACK_WITHIN:
            return ScriptExit(None, "", "", timed_out=True)
        if end.timed_out:
            seconds = _UNPACK_WITHIN.total_seconds()
            return _refusal(
                f"The archive {call.name} cannot be run: unpacking took longer than {seconds:.0f} "
                "s. Leave out what the script does not need.",
                permanent=False,
            )
        if end.exit_code != 0:
            why = log.text().strip() or f"unpacking ended with {end.exit_code}"
            refused = end.exit_code == unpack.REFUSED
            return _refusal(f"The archive {call.name} cannot be run: {why}.", permanent=refused)
        archive.unlink(missing_ok=True)
        return _unless_stopped(supervisor) or folder

    def _single(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        environment: dict[str, str],
        supervisor: Supervisor,
        stack: ExitStack,
    ) -> Path | ScriptExit:
        """See to what a single file says of itself; what it needs is in *environment* then.

        Returns:
            The file to run, or how that ended.
        """
        try:
            inline = inline_metadata(call.source)
            suited = suits(self._version, inline.requires_python)
        except ValueError as error:
            return _refusal(f"The script {call.name} cannot be run: {error}.", permanent=True)
        if not suited:
            return _refusal(
                f"The script asks for Python {inline.requires_python}; it would be run by "
                f"{'.'.join(map(str, self._version))}. Ask for that one, or set "
                "NEXTFIRE_INTERPRETER to another in this pool.",
                permanent=True,
            )
        if inline.dependencies:
            problem = self._provide(sandbox, call, inline, environment, supervisor, stack)
            if problem is not None:
                return problem
        return sandbox.write(_file_name(call.name), call.source)

    def _provide(
        self,
        sandbox: Sandbox,
        call: ScriptCall,
        inline: Inline,
        environment: dict[str, str],
        supervisor: Supervisor,
        stack: ExitStack,
    ) -> ScriptExit | None:
        """See to the packages that *inline* names. Returns how that failed, or ended early."""
        if self._packages is None:
            return _refusal(
                "The script names dependencies inline, and this pool installs none. Send it to a "
                "worker pool whose packages are inline, or upload it as a .zip with its packages.",
                permanent=True,
            )
        try:
            self._packages.check(inline)
        except PackageRefusedError as error:
            return _refusal(f"The script {call.name} cannot be run: {error}.", permanent=True)
        place = stack.enter_context(self._packages.kept(call.tenant, inline, self._version))
        if not place.exists():
            # In another sandbox: where packages are built, their code runs, and could leave links
            # where this one's files are written next.
            with self._sandboxes.one(call.tenant) as workshop:
                workshop.open()
                made = self._packages.install(
                    workshop,
                    inline,
                    tenant=call.tenant,
                    to=place,
                    interpreter=self._interpreter,
                    # Not what the job sets: its own are for the script.
                    environment={
                        **self._environment,
                        "HOME": str(workshop.folder),
                        "TMPDIR": str(workshop.temporary),
                    },
                    grace=self._grace,
                    supervisor=supervisor,
                )
            if made.end.stopped is not Verdict.GO_ON:
                return ScriptExit(None, "", "", stopped=made.end.stopped)
            if made.problem is not None:
                return _refusal(
                    f"The script's dependencies could not be installed: {made.problem}",
                    permanent=made.permanent,
                )
            ended = _unless_stopped(supervisor)
            if ended is not None:
                return ended
        library, *others = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([library, str(place), *others])
        sandbox.readable.append(place)
        return None

    def _exit(self, end: Ending, out: str, err: str, result: bytes | None) -> ScriptExit:
        if end.not_started is not None and end.stopped is Verdict.GO_ON:
            return self._not_started(f"{end.not_started} {err[-_REASON_CHARS:]}".strip())
        error = None
        if end.exit_code is None and end.stopped is Verdict.GO_ON and not end.timed_out:
            error = (
                "The script's exit code was lost: the process that kept it was killed, by the "
                "script itself or because the machine ran out of memory."
            )
        return ScriptExit(end.exit_code, out, err, end.timed_out, end.stopped, result, error)

    def _not_started(self, cause: str) -> ScriptExit:
        error = (
            f"The script could not be started: {cause}. Check that the interpreter "
            f"{self._interpreter} is there and may be executed, and that {self._sandboxes.root} "
            "can be written."
        )
        return ScriptExit(None, "", "", error=error)

    def _choose(self, interpreter: str | None) -> str:
        """The interpreter to use.

        Raises:
            ValueError: There is none that works.
        """
        if interpreter is not None:
            found = shutil.which(interpreter) or interpreter
            problem = self._try(str(Path(found).absolute()))
            if problem is not None:
                raise ValueError(self._remedy(interpreter, problem))
            return str(Path(found).absolute())
        own = str(getattr(sys, "_base_executable", "") or sys.executable)
        if not self._sandboxes.separate:
            return own  # it runs us, so it runs scripts
        problem = self._try(own)
        if problem is None:
            return own
        for other in _OTHER_INTERPRETERS:
            if self._try(other) is None:
                _log.warning(
                    "scripts are run by %s: their users cannot run %s (%s)", other, own, problem
                )
                return other
        raise ValueError(self._remedy(own, problem))

    def _try(self, interpreter: str) -> str | None:
        """Run *interpreter* as a script's user would. Returns why it does not do."""
        out, err = Capture(_REASON_CHARS), Capture(_REASON_CHARS)
        try:
            with self._sandboxes.one("") as sandbox:
                sandbox.open()
                end = sandbox.run(
                    [interpreter, "-I", "-c", _PROBE],
                    environment=self._environment,
                    timeout=_PROBE_WITHIN,
                    grace=timedelta(0),
                    limits=self._limits,
                    ask=lambda: Verdict.GO_ON,
                    stdout=out.feed,
                    stderr=err.feed,
                )
        except (OSError, ValueError) as error:
            return str(error)
        if end.not_started is not None:
            return end.not_started
        if end.exit_code != 0:
            return f"it ended with {end.exit_code}: {err.text().strip() or 'without a word'}"
        version = out.text().split()
        numbers = tuple(int(n) for n in version if n.isdigit())
        if numbers < _OLDEST:
            return f"it is no Python of version 3.11 or later, but {' '.join(version) or 'mute'}"
        self._version = numbers
        return None

    def _remedy(self, interpreter: str, problem: str) -> str:
        if not self._sandboxes.separate:
            return (
                f"Scripts cannot be run by {interpreter}: {problem}. Set NEXTFIRE_INTERPRETER to a "
                "Python of version 3.11 or later."
            )
        return (
            f"Scripts cannot be run by {interpreter} as users of their own, which they are where "
            f"the executor is root: {problem}. Set NEXTFIRE_INTERPRETER to a Python of version "
            "3.11 or later that every user of this machine can run, for example /usr/bin/python3; "
            f"let {self._sandboxes.root} be entered by every user; leave the executor the "
            "capabilities CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL; or run it as a user "
            "other than root. Scripts are never run as root."
        )


class _Output:
    """A stream of a script, masked before anything is cut off: half a secret is not found."""

    def __init__(self, name: Stream, cap: int, masker: Masker, supervisor: Supervisor) -> None:
        self._name: Stream = name
        self._capture = Capture(cap)
        self._masked = masker.stream()
        self._supervisor = supervisor

    def feed(self, data: bytes) -> None:
        self._pass_on(self._masked.feed(data))

    def end(self) -> str:
        """Take what was held back. Returns what is kept of the stream."""
        self._pass_on(self._masked.rest())
        return self._capture.text()

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._capture.feed(data)
            self._supervisor.output(self._name, data)


def _unless_stopped(supervisor: Supervisor) -> ScriptExit | None:
    """How a script ends that was to be started now, and may not any more."""
    verdict = supervisor.ask()
    return None if verdict is Verdict.GO_ON else ScriptExit(None, "", "", stopped=verdict)


def _refusal(error: str, *, permanent: bool) -> ScriptExit:
    return ScriptExit(None, "", "", error=error, permanent=permanent)


def _file_name(name: str) -> str:
    stem = _NOT_IN_A_NAME.sub("_", PurePosixPath(name).name.removesuffix(".py"))
    return (stem[:_MAX_NAME].lstrip(".-") or "script") + ".py"
