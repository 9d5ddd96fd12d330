"""Starts and stops the local stack.

Errors:
    LocalStackError             the stack cannot be started; the message says what to do
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire_cli.local import emulator
from nextfire_cli.local.api_key import provide_key
from nextfire_cli.local.deployment import Deployment, cdk_options
from nextfire_cli.local.emulated_workers import EmulatedWorkers
from nextfire_cli.local.emulator import ACCOUNT, REGION, ROOT_KEY, Emulator
from nextfire_cli.local.emulator_notes import PURPOSE, how_to_call, left_behind
from nextfire_cli.local.health import await_health
from nextfire_cli.local.processes import (
    Processes,
    ProcessRecord,
    interrupts_deferred,
    interrupts_raised,
    started,
)
from nextfire_cli.local.restart_policy import RestartPolicy
from nextfire_cli.local.stack_file import StackFile
from nextfire_cli.local.stack_info import Deaths, StackInfo, parts
from nextfire_cli.local.stand_in import NAME as STAND_IN
from nextfire_cli.local.stand_in import StandIn
from nextfire_cli.local.state import LocalStackError, Report, check_state, locked

_WORKER_GRACE = timedelta(seconds=10)
_EMULATOR_GRACE = timedelta(minutes=2)
"""It saves its data when it ends."""


class LocalStack:
    """The local stack of the project at *root*; its data are in *state*, by default `.nextfire/`.

    One process at a time may start it. All its processes listen on the loopback only. *strict*:
    put the stand-in that enforces AWS's limits in front of the emulator, with these settings.
    """

    def __init__(
        self, root: Path, *, state: Path | None = None, strict: Sequence[str] | None = None
    ) -> None:
        self._root = root.resolve()
        self.strict = strict
        self._stand_in: StandIn | None = None
        cache = self._root / ".nextfire"
        # The folder itself must not be a link, see `check_state`.
        self._state = state.resolve() if state else cache
        self._tmp = self._state / "tmp"
        self._logs = self._state / "logs"
        self._key_file = self._state / "api-key"
        self._died_file = self._state / "emulator-died"
        """Exists if the emulator died while the stack ran, and no start has reported it."""
        self._emulator = Emulator(self._state)
        self._deployment = Deployment(self._root, self._emulator, state=self._state, cache=cache)
        self._workers = EmulatedWorkers(self._root, self._state)
        self._file = StackFile(self._state)
        self._processes = Processes(self._state / "processes.json", folder=self._tmp)
        self._lock: IO[bytes] | None = None
        self._restart_policy = RestartPolicy()

    @contextlib.contextmanager
    def running(
        self,
        report: Report,
        *,
        workers: int = 1,
        lease: timedelta | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Generator[StackInfo]:
        """Start the stack and stop it at the end, also when interrupted by a signal."""
        with interrupts_raised():
            try:
                yield self.start(report, workers=workers, lease=lease, settings=settings)
            finally:
                if self._lock:  # otherwise the stack is not ours: another process holds it
                    self.stop()

    def start(
        self,
        report: Report,
        *,
        workers: int = 1,
        lease: timedelta | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> StackInfo:
        """Start the stack, deploy what has changed, and wait until the API answers.

        Data of an earlier start are kept. If anything fails or interrupts, what has been started
        is stopped again. *workers* is the number per worker pool; *settings*, and *lease*, override
        those of cdk.json.

        Raises:
            LocalStackError: The port or the state is in use, or a step failed.
        """
        self._take_lock()
        with interrupts_raised():
            try:
                return self._start(report, workers, cdk_options(lease, settings or {}))
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop all processes and keep the data. Does nothing if nothing runs.

        Raises:
            LocalStackError: As for `check_state`.
        """
        check_state(self._state)
        with interrupts_deferred():
            records = self._processes.recorded()
            emulators = [record for record in records if record.name in {emulator.NAME, STAND_IN}]
            others = [record for record in records if record not in emulators]
            if any(record.name == emulator.NAME and not record.alive for record in records):
                self._died_file.touch()  # the next start says what was lost
            # Processes that end from here on are not in `deaths`.
            self._file.remove()
            # Workers first: they need the queue to hand their runs back.
            self._processes.end(others, grace=_WORKER_GRACE)
            killed = self._processes.end(emulators, grace=_EMULATOR_GRACE)
            if any(record.name == emulator.NAME for record in killed):
                self._died_file.touch()
            self._processes.end_strays()
            shutil.rmtree(self._tmp, ignore_errors=True)
            self._emulator.close()
            if self._lock:
                self._lock.close()
                self._lock = None

    def remove(self) -> None:
        """Stop, and delete jobs, runs, scripts and logs. Keep downloads and builds."""
        self.stop()
        data = self._emulator.data
        for each in (data, self._logs, self._state / "cdk.out", self._state / "aws"):
            shutil.rmtree(each, ignore_errors=True)
        self._emulator.forget_port()
        for file in (self._key_file, self._died_file):
            file.unlink(missing_ok=True)

    def status(self) -> StackInfo | None:
        """The running stack, or None if it does not run or lost one of its processes.

        Raises:
            ClientError: The files of the folder cannot be trusted.
        """
        info = self.info()
        return info if info and info.alive else None

    def info(self) -> StackInfo | None:
        """The stack that was started and not stopped, or None.

        Raises:
            ClientError: The files of the folder cannot be trusted.
        """
        return self._file.read(StackInfo)

    def deaths(self) -> list[str]:
        """Processes that ended although the stack was not stopped: each with its name, the path of
        its log, and the last lines of the log.
        """
        return self._processes.deaths(self._logs) if self._file.exists else []

    def renew_key(self) -> None:
        """Does nothing: an emulator is not left running for a year."""

    def restart_workers(self, report: Report) -> bool:
        """Restart dead workers. Returns whether the stack continues: it does not if the
        emulator has died, or a worker died too often; see `deaths`.
        """
        info = self.info()
        if info is None:
            return False
        dead = [
            (record, self._processes.status(record))
            for record in self._processes.recorded()
            if not record.alive
        ]
        restarts = self._restart_policy.restarts(dead, time.monotonic())
        if restarts is None:
            return False
        deaths = dict(info.deaths)
        for each in restarts:
            report(f"{each.record.name}: {each.cause}; it is started again")
            deaths[each.record.name] = Deaths(count=each.deaths, last=each.cause)
            time.sleep(each.pause)
            self._processes.end([each.record], grace=timedelta())
            self._start_worker(each.pool, each.number, self._deployment.outputs())
        records = self._processes.recorded()
        alive = info.model_copy(update={"processes": records, "deaths": deaths})
        self._file.write(alive)
        return True

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 types clients by literal name only
        """A boto3 client of *service*, as the emulated account's root user; valid until `stop`."""
        return self._emulator.client(service)

    @property
    def _product_endpoint(self) -> str:
        """The address that workers and functions take for AWS."""
        return self._stand_in.address if self._stand_in else self._emulator.address

    def _take_lock(self) -> None:
        if self._lock:
            raise LocalStackError("This LocalStack has been started already; stop it first.")
        lock = locked(self._state)
        self._lock = lock

    def _start(self, report: Report, workers: int, context: Sequence[str]) -> StackInfo:
        began = time.monotonic()
        report(PURPOSE)
        if self._processes.recorded():
            report(left_behind(self._emulator.data, self._processes.recorded()))
            lock, self._lock = self._lock, None  # `stop` would release it
            self.stop()
            self._lock = lock
        elif self._died_file.exists():
            report(left_behind(self._emulator.data, []))
        self._died_file.unlink(missing_ok=True)
        self._tmp.mkdir(parents=True, exist_ok=True)
        self._start_emulator(report)
        log = self._logs / "cdk.log"
        self._deployment.update(self._processes, context, report, tmp=self._tmp, log=log)
        outputs = self._deployment.outputs()
        self._workers.write_profiles(outputs)
        self._provide_key(outputs)
        report("starting the watcher and the workers")
        self._wake_watcher(outputs)
        for pool, executor in json.loads(outputs["Pools"]).items():
            if executor == "worker":
                for number in range(workers):
                    self._start_worker(pool, number, outputs)
        endpoint = f"{self._emulator.address}/_aws/execute-api/{outputs['ApiId']}/$default"
        await_health(endpoint, log=self._logs / f"{emulator.NAME}.log")
        info = self._describe(endpoint, outputs)
        if deaths := self._processes.deaths(self._logs):
            raise LocalStackError(deaths[0])
        self._file.write(info)
        report(f"ready in {time.monotonic() - began:.1f} s")
        if note := how_to_call(outputs["Auth"], endpoint):
            report(note)
        return info

    def _start_emulator(self, report: Report) -> None:
        """Start the emulator and, if wanted, the stand-in before it."""
        self._emulator.choose_port()
        report(f"starting MiniStack on {self._emulator.address.removeprefix('http://')}")
        stand_in = self._stand_in = (
            None if self.strict is None else StandIn(self._root, self.strict)
        )
        self._emulator.start(
            self._processes,
            stand_in.emulator_settings() if stand_in else {},
            cwd=self._tmp,
            log=self._logs / f"{emulator.NAME}.log",
        )
        if stand_in:
            report(f"enforcing AWS's limits; {stand_in.address}/_strict reports what they did")
            log = self._logs / f"{STAND_IN}.log"
            stand_in.start(self._processes, self._emulator.address, cwd=self._tmp, log=log)

    def _provide_key(self, outputs: dict[str, str]) -> None:
        """Make sure that the file has an API key that stays valid for a while."""
        keys = DynamoDbKeyStore(self.client("dynamodb"), table=outputs["KeysTable"])
        provide_key(keys, self._key_file, tenant=ACCOUNT)

    def _wake_watcher(self, outputs: dict[str, str]) -> None:
        """A rule first fires a minute after its deployment; do not wait for it."""
        for group in range(int(outputs["WatcherGroups"])):
            self.client("lambda").invoke(
                FunctionName=outputs["WatcherFunction"],
                InvocationType="Event",
                Payload=json.dumps({"group": group}),
            )

    def _start_worker(self, pool: str, number: int, outputs: dict[str, str]) -> None:
        name = f"worker-{pool}-{number}"
        self._workers.start(
            self._processes,
            name,
            pool,
            outputs,
            endpoint=self._product_endpoint,
            tmp=self._tmp,
            log=self._logs / f"{name}.log",
        )

    def _describe(self, endpoint: str, outputs: dict[str, str]) -> StackInfo:
        return StackInfo.model_validate(
            {
                "endpoint": endpoint,
                "aws_endpoint": self._product_endpoint,
                "region": REGION,
                "account_id": ACCOUNT,
                "access_key": ROOT_KEY,
                "secret_key": ROOT_KEY,
                "key_file": self._key_file,
                "processes": self._processes.recorded(),
                "up": ProcessRecord(name="up", pid=os.getpid(), started=str(started(os.getpid()))),
                **parts(outputs),
            }
        )
