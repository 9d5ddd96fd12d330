"""Runs scripts, each in a `sandbox`: what a script finds there, and what is made of its end."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

import nextfire_job
from nextfire.adapters.sandbox import Ending, Sandbox, Sandboxes, ScriptLimits
from nextfire.adapters.script_channel import Channel
from nextfire.adapters.script_streams import Capture
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
_PROBE = "import sys; print(*sys.version_info[:2])"
_PROBE_WITHIN = timedelta(seconds=30)
_OTHER_INTERPRETERS = ("/usr/local/bin/python3", "/usr/bin/python3")
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
        package_index: str | None = None,
        temp_root: Path | None = None,
        base_uid: int = 60_000,
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
            temp_root: Where the working folders are made; if None, where temporary files go.
            base_uid: The first number of the users that root gives to runs. That and the 999 after
                it are for nobody else; executors share them.

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
        )
        self._interpreter = self._choose(interpreter)

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
        out, err = Capture(self._output_cap), Capture(self._output_cap)

        def on_stdout(data: bytes) -> None:
            out.feed(data)
            supervisor.output("stdout", data)

        def on_stderr(data: bytes) -> None:
            err.feed(data)
            supervisor.output("stderr", data)

        with ExitStack() as stack:
            try:
                script = sandbox.write(_file_name(call.name), call.source)
                environment = self._prepare(sandbox, call)
                near, far = socket.socketpair()
            except (OSError, ValueError) as error:
                return self._not_started(str(error))
            stack.enter_context(near)
            channel = Channel(near, supervisor)
            environment["NEXTFIRE_CHANNEL"] = str(far.fileno())
            try:
                end = sandbox.run(
                    # -P: its folder is not on its path, or email.py would be everybody's `email`.
                    [self._interpreter, "-u", "-P", str(script)],
                    environment=environment,
                    timeout=call.timeout,
                    grace=self._grace,
                    limits=self._limits,
                    ask=supervisor.ask,
                    stdout=on_stdout,
                    stderr=on_stderr,
                    stdin=call.payload.encode(),
                    handed=far,
                    sources=[channel],
                )
            finally:
                far.close()
        return self._exit(end, out.text(), err.text(), channel.result)

    def _prepare(self, sandbox: Sandbox, call: ScriptCall) -> dict[str, str]:
        """Furnish the sandbox. Returns the script's environment."""
        library = sandbox.make_folder("lib")
        sandbox.write("lib/nextfire_job.py", self._job_module)
        temporary = sandbox.make_folder("tmp")
        sandbox.open()
        theirs = call.environment.get("PYTHONPATH", "")
        return {
            **self._environment,
            **call.environment,
            "HOME": str(sandbox.folder),
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(library), theirs])),
        }

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
        if [int(n) for n in version if n.isdigit()] < list(_OLDEST):
            return f"it is no Python of version 3.11 or later, but {' '.join(version) or 'mute'}"
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


def _file_name(name: str) -> str:
    stem = _NOT_IN_A_NAME.sub("_", PurePosixPath(name).name.removesuffix(".py"))
    return (stem[:_MAX_NAME].lstrip(".-") or "script") + ".py"
