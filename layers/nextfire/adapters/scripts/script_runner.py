"""Runs each script in a `sandbox`: prepares its environment and translates its end."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import nextfire_job
from nextfire.adapters.packages.installer import Packages
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.scripts.interpreters import Interpreters
from nextfire.adapters.scripts.program_files import ProgramFiles, not_started
from nextfire.adapters.scripts.sandbox import ProgramEnd, Sandbox, ScriptLimits
from nextfire.adapters.scripts.sandboxes import Sandboxes
from nextfire.adapters.scripts.script_channel import Channel
from nextfire.adapters.scripts.script_network import network_for
from nextfire.adapters.scripts.script_output import MaskedOutput
from nextfire.domain.egress import OPEN, Egress, EgressMode
from nextfire.domain.packages import PackagePolicy
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor

_log = logging.getLogger(__name__)

__all__ = ["ProcessScriptRunner", "ScriptLimits"]

_ENVIRONMENT = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
    }
)
_READ_AT_START = re.compile("PYTHON|LD_|LC_|LANG|LANGUAGE$|TZ|MALLOC_|GLIBC_|GCONV_|LOCPATH$")
"""Names of variables that Python, the C library or its loader read when a process starts."""
_REASON_CHARS = 500


class ProcessScriptRunner:
    """Runs scripts in child processes. Thread-safe; each call blocks its thread.

    As root it runs each script as a dedicated user. Otherwise it runs scripts as its own user: then
    a script may do to the runner what the runner could do to itself, except inspect it.
    """

    def __init__(
        self,
        *,
        interpreter: str | None = None,
        forks: bool = True,
        output_cap: int = 16 * 1024,
        grace: timedelta = timedelta(seconds=5),
        environment: Mapping[str, str] = MappingProxyType({}),
        limits: ScriptLimits = ScriptLimits(),  # noqa: B008 - immutable
        packages: Literal["inline", "none"] = "none",
        package_index: PackageIndex | None = None,
        package_policy: PackagePolicy | None = None,
        temp_root: Path | None = None,
        egress: Egress = OPEN,
        visible: Collection[Path] = (),
        credentials: Collection[Path] = (),
    ) -> None:
        """Build a runner, and probe whether it can run scripts.

        Args:
            interpreter: The Python (3.11 or later) that runs the scripts. None for the base
                interpreter of this process or, if root's script users cannot run that, python3 in
                /usr/local/bin or /usr/bin.
            forks: Whether scripts that start often are forked (see `launchers`).
            output_cap: Maximum bytes (≥ 2) kept of each stream: the first half and the last half.
                The text in UTF-8 has at most that many bytes, plus a notice.
            grace: Time between SIGTERM and SIGKILL.
            environment: Environment variables of all scripts, in addition to LANG, TZ, HOME and
                TMPDIR. Scripts inherit nothing else. Examples: PATH, and LD_LIBRARY_PATH if the
                interpreter needs it (Lambda).
            limits: Resource limits of a script.
            packages: "inline" to install the packages that scripts declare inline (PEP 723).
            package_index: The package index; None for the public index.
            package_policy: The packages that may be installed; None for all that have a wheel.
            temp_root: Parent of the working folders; None for the folder for temporary files.
            egress: The hosts that scripts may reach. Installations of packages, which run before
                the script, may reach all that the executor reaches.
            visible: Folders in temporary folders or in the home of the executor's user that
                scripts may see, with the permissions of the script's user.
            credentials: Files with the executor's credentials. If the host allows namespaces, the
                folders of these files are hidden from scripts.

        Raises:
            ValueError: *output_cap* is too small, or this host cannot run scripts. The message
                holds the remedy.
        """
        smallest = 2
        if output_cap < smallest:
            raise ValueError(f"invalid output_cap {output_cap}: at least {smallest} bytes")
        self._output_cap = output_cap
        self._grace = grace
        self._environment = {**_ENVIRONMENT, **environment}
        self._limits = limits
        self._job_module = Path(nextfire_job.__file__).read_bytes()
        launch = {n: v for n, v in environment.items() if n == "LD_LIBRARY_PATH"}
        self._sandboxes = Sandboxes(
            root=temp_root,
            tenant_groups=packages == "inline",
            launch_environment=launch,
            visible=visible,
            credentials=credentials,
        )
        self._egress = egress
        _check_egress(egress, self._sandboxes)
        self._interpreter = Interpreters(self._sandboxes, self._environment, limits).choose(
            interpreter
        )
        if forks and self._may_be_launcher():
            self._sandboxes.launchers.fork_with(self._interpreter.path, self._environment)
        installed = None
        if packages == "inline":
            installed = Packages(
                root=self._sandboxes.root,
                separate=self._sandboxes.separate,
                index=package_index or PackageIndex(),
                policy=package_policy or PackagePolicy(),
            )
        self._files = ProgramFiles(
            self._sandboxes,
            self._interpreter,
            self._environment,
            limits,
            packages=installed,
            grace=grace,
        )

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        """See `ScriptRunner.run`.

        While a call of *supervisor* runs, no output is read and no timeout is detected. The result
        holds the first cause of the script's end. During the grace period only LEASE_LOST has an
        effect: SIGKILL immediately.
        """
        with ExitStack() as stack:
            try:
                sandbox = stack.enter_context(self._sandboxes.one(call.tenant))
            except OSError as error:
                return self._not_started(str(error))
            return self._run_in(sandbox, call, supervisor)

    def _run_in(self, sandbox: Sandbox, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        out = MaskedOutput("stdout", self._output_cap, call.masker, supervisor)
        err = MaskedOutput("stderr", self._output_cap, call.masker, supervisor)
        with ExitStack() as stack:
            try:
                environment = self._prepare(sandbox, call)
                timeout = call.timeout
                if call.name.endswith(".zip"):
                    began = time.monotonic()
                    program = self._files.unpacked(sandbox, call, environment, supervisor)
                    # Unpacking counts toward the timeout. Otherwise a slow archive could need more
                    # time than its host lives, and would be handed back again and again.
                    timeout -= timedelta(seconds=time.monotonic() - began)
                else:
                    program = self._files.written(sandbox, call, environment, supervisor, stack)
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
                return self._not_started(f"cannot create its network: {error}")
            channel = Channel(near, supervisor, call.masker, call.upstream)

            def ask() -> Directive:
                while network.notices:
                    err.feed(network.notices.popleft().encode())
                return supervisor.ask()

            end = sandbox.run(
                # -P: keep the script's folder off sys.path, or a script named email.py would
                # shadow the module `email`. The folder of an archive is on sys.path anyway.
                [self._interpreter.path, "-u", "-P", str(program)],
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
                may_fork=self._may_fork(call, environment),
            )
            while network.notices:
                err.feed(network.notices.popleft().encode())
        ended = self._exit(end, out.end(), err.end(), channel.result)
        return replace(ended, last_lines=err.last_lines())

    def _prepare(self, sandbox: Sandbox, call: ScriptCall) -> dict[str, str]:
        """Add the files that all scripts get to the sandbox. Returns the script's environment."""
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

    def _may_be_launcher(self) -> bool:
        """Whether the interpreter may start with the rights of this process, outside a sandbox."""
        if not self._sandboxes.separate or self._interpreter.belongs_to_root():
            return True
        _log.warning(
            "executing all scripts, which takes more CPU than forking them: others than root may "
            "change %s or its packages. Set NEXTFIRE_INTERPRETER to a Python that only root can "
            "change.",
            self._interpreter.path,
        )
        return False

    def _may_fork(self, call: ScriptCall, environment: Mapping[str, str]) -> bool:
        """Whether a fork of an interpreter that started with the runner's variables may run *call*:
        a single file without packages, whose own variables do not matter when Python starts.
        """
        return (
            not call.name.endswith(".zip")
            and os.pathsep not in environment["PYTHONPATH"]
            and not any(_READ_AT_START.match(name) for name in call.environment)
        )

    def _exit(self, end: ProgramEnd, out: str, err: str, result: bytes | None) -> ScriptExit:
        if end.not_started is not None and end.stopped is Directive.CONTINUE:
            return self._not_started(f"{end.not_started} {err[-_REASON_CHARS:]}".strip())
        error = None
        if end.exit_code is None and end.stopped is Directive.CONTINUE and not end.timed_out:
            error = (
                "The script's exit code was lost: the process that supervised it was killed, by "
                "the script itself or because the machine ran out of memory."
            )
        return ScriptExit(end.exit_code, out, err, end.timed_out, end.stopped, result, error)

    def _not_started(self, cause: str) -> ScriptExit:
        return not_started(cause, self._interpreter, self._sandboxes)


def _check_egress(egress: Egress, sandboxes: Sandboxes) -> None:
    """Raises:
    ValueError: This host cannot enforce *egress*.
    """
    if egress.mode is EgressMode.LISTED and not sandboxes.network_namespaces:
        raise ValueError(
            f"egress is {egress}, and listed hosts require network namespaces, which this host "
            "does not allow. Run the worker as root with the capability CAP_SYS_ADMIN; or set "
            'the pool\'s egress to "none", or to "open" with a firewall around its network.'
        )
    if egress.mode is EgressMode.LISTED:
        try:
            with network_for(egress, {}):
                pass
        except OSError as error:
            raise ValueError(
                f"egress is {egress}, and a network namespace cannot be created: {error}. "
                "Give the worker the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN."
            ) from error
    if egress.mode is EgressMode.NONE and not sandboxes.filters:
        raise ValueError(
            'egress is "none", which requires a seccomp filter. This host does not allow '
            "filters, or is neither x86-64 nor AArch64. Run the pool's workers on another host."
        )
