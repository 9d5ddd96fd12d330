"""The run, as a function that replaces a script sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

from nextfire.domain.attempt import rejection
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, parse_instant
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Directive, ScriptCall, Supervisor
from nextfire.testing.kernel import Actor
from nextfire.testing.memory.faults import Killed
from nextfire.usecases.run_supervisor import CANCEL_CHECK_EVERY


class Ended(BaseException):
    """The executor ends the function: its run is cancelled, lost or timed out. `finally` blocks
    run; `except Exception` does not catch it.
    """

    def __init__(self, stopped: Directive = Directive.CONTINUE, *, timed_out: bool = False) -> None:
        super().__init__()
        self.stopped = stopped
        self.timed_out = timed_out


class ScriptRun:
    """One attempt of a run, for the function that replaces its script. It has what a script reads
    with `nextfire_job`.

    The function's return value, if it is not None, is the result of the run: JSON of up to 1 MiB.
    The attempt fails if the function raises an `Exception`: exit code 1, and the error is the last
    line of `stderr`; or the code of `SystemExit`.
    """

    def __init__(self, call: ScriptCall, supervisor: Supervisor, actor: Actor) -> None:
        self._call = call
        self._supervisor = supervisor
        self._actor = actor
        self._began_at = actor.now()

    @property
    def script(self) -> str:
        """The script's name, as in `target.handler`."""
        return self._call.name.rpartition(".")[0]

    @property
    def payload(self) -> Any:
        """The payload of the job, or of the request that started the run: a new copy."""
        return json.loads(self._call.payload)

    @property
    def upstream(self) -> dict[str, Any]:
        """For a job of type AFTER: its parents' `state`, `executionId` and `result`, by job id. A
        new copy.
        """
        found: dict[str, Any] = json.loads(self._call.upstream or "{}")
        return found

    @property
    def env(self) -> Mapping[str, str]:
        """The variables of `target.env`, with secrets resolved, and those of nextfire."""
        return self._call.environment

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self.env["NEXTFIRE_JOB_ID"]

    @property
    def execution_id(self) -> str:
        """The id of the run, the same on all attempts: the idempotency key."""
        return self.env["NEXTFIRE_EXECUTION_ID"]

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return int(self.env["NEXTFIRE_ATTEMPT"])

    @property
    def scheduled_at(self) -> datetime:
        """The instant for which the run was scheduled, in UTC."""
        return parse_instant(self.env["NEXTFIRE_SCHEDULED_AT"])

    @property
    def deadline(self) -> datetime:
        """When the attempt is ended as TIMED_OUT, in UTC."""
        return parse_instant(self.env["NEXTFIRE_DEADLINE"])

    @property
    def now(self) -> datetime:
        """The simulated instant, in UTC."""
        return self._actor.now()

    @property
    def checkpoint(self) -> Any:
        """The latest checkpoint of this or an earlier attempt; None before the first one."""
        found = self._supervisor.checkpoint()
        return None if found is None else json.loads(found)

    def save_checkpoint(self, value: object) -> None:
        """Store *value*, JSON of up to 1 MiB, for the next attempt. As in a script, it is tried
        again for a minute while the database does not answer.

        Raises:
            ValueError: It was not stored; the message says why.
            TypeError: It cannot be encoded as JSON.
        """
        until = self.now + MINUTE
        while True:
            self._actor.raise_if_killed()
            try:
                refused = self._supervisor.save(_json(value))
            except UnavailableError as error:
                refused = str(error)
                if self.now < until:
                    self.sleep(seconds=1)
                    continue
            if refused is not None:
                raise ValueError(f"The checkpoint was not stored: {refused}")
            return

    def log(self, text: str) -> None:
        """Print a line, as a script does to standard output."""
        self._actor.raise_if_killed()
        self._supervisor.output("stdout", f"{text}\n".encode())

    def sleep(self, duration: timedelta | float = 0, /, **units: float) -> None:
        """Let simulated time pass while the script works: seconds, a `timedelta` or units
        (``minutes=5``). Other runs, retries and schedules go on meanwhile.

        The function ends here if its run is cancelled, times out, or is taken over: `finally`
        blocks run, and nothing after them.
        """
        given = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        until = self.now + given + timedelta(**units)
        times_out_at = self._began_at + self._call.timeout
        while True:
            verdict = self._supervisor.ask()
            if verdict is not Directive.CONTINUE:
                raise Ended(verdict)
            if self.now >= times_out_at:
                raise Ended(timed_out=True)
            if self.now >= until:
                return
            step = min(until, times_out_at, self.now + CANCEL_CHECK_EVERY)
            self._actor.sleep(step - self.now)

    def crash(self) -> NoReturn:
        """Kill the worker here, as by SIGKILL. Nothing is recorded; another worker takes the run
        over as the next attempt when the lease (60 s) has expired.
        """
        self._actor.kill()
        raise Killed


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("the value is nested too deeply; flatten it") from None
    return text.encode()


def result_of(value: object, masker: Masker) -> bytes | None:
    """The result of a run whose function returned *value*, masked.

    Raises:
        TypeError, ValueError: It is not JSON, or a script could not set it.
    """
    if value is None:
        return None
    result = masker.json(_json(value))
    if rejected := rejection("result", result):
        raise ValueError(rejected)
    return result
