"""Starts and stops the embedded stack: the API, the watcher and the workers on this machine, with
their data in SQLite and in files. Needs no AWS, no Node and no emulator.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from nextfire.adapters.files.stack_folder import API_KEY, DATA, DATABASE, UPLOAD_KEY
from nextfire.client import folder
from nextfire_cli.errors import reported
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.embedded_settings import shared_settings, worker_settings
from nextfire_cli.local.open_files import few_open_files
from nextfire_cli.local.opened_files import OpenedFiles
from nextfire_cli.local.ports import lasting_port
from nextfire_cli.local.processes import (
    Processes,
    ProcessRecord,
    interrupts_deferred,
    interrupts_raised,
)
from nextfire_cli.local.stack_file import StackFile
from nextfire_cli.local.stack_info import LocalInfo
from nextfire_cli.local.state import LocalStackError, Report, check_state, locked, tail, unwritable

if TYPE_CHECKING:
    from nextfire.adapters.sqlite.database import Database

TENANT = "local"
"""The tenant of the API key."""
_HOST = "127.0.0.1"
_NAME, _LOCK = "embedded", "lock"
_GRACE = timedelta(seconds=20)
_PATIENCE = 30.0  # seconds
_LOOK_AT_KEY = 20.0
"""Seconds between two looks: less than the gateway keeps its verdict on a key that was revoked."""


class EmbeddedPool(BaseModel):
    """A pool: what it runs, and its executor."""

    model_config = ConfigDict(frozen=True)

    targets: str
    executor: Literal["worker"] = "worker"


class EmbeddedInfo(LocalInfo):
    """A running embedded stack."""

    kind: Literal["embedded"] = "embedded"
    pools: dict[str, EmbeddedPool]
    parts_file: Path
    """State of the parts, see `parts`."""
    processes: list[ProcessRecord]
    """The supervisor of the parts."""

    def lost(self) -> list[str]:
        """The processes without which the API does not answer, and that have ended."""
        return [record.name for record in self.processes if not record.alive]

    def free_space(self) -> int:
        """Free bytes of the disk with the data, also if their folder was moved or removed."""
        folders = self.parts_file.absolute().parents
        return shutil.disk_usage(next(each for each in folders if each.is_dir())).free

    def few_open_files(self) -> Iterator[str]:
        """As `open_files.few_open_files`, of the running stack."""
        for record in self.processes:
            yield from few_open_files(record.pid)

    def parts(self) -> dict[str, Any]:
        """The parts by name: `pid` (None: being restarted), `deaths` since the start, and
        `lastDeath` in words.
        """
        try:
            found: dict[str, Any] = json.loads(self.parts_file.read_text())
        except (OSError, ValueError):
            return {}
        return found


class EmbeddedStack:
    """The embedded stack with its state in the folder *state*. *sources*: a checkout whose code
    runs; None: the installed code. *pools*: the pools of scripts.

    One process at a time may start it, and it stops when that process ends.
    """

    def __init__(
        self,
        state: Path,
        *,
        sources: Path | None = None,
        pools: Sequence[str] = ("default",),
    ) -> None:
        self._state = state.absolute()
        self._sources = sources
        self._script_pools = pools
        self._data = self._state / DATA
        self._tmp = self._state / "tmp"
        self._logs = self._state / "logs"
        self._file = StackFile(self._state)
        self._processes = Processes(self._state / "processes.json", folder=self._tmp)
        self._lock: IO[bytes] | None = None
        self._opened = OpenedFiles()
        self._key_looked_at = 0.0

    @contextlib.contextmanager
    def running(
        self, report: Report, *, workers: int = 1, lease: timedelta | None = None
    ) -> Generator[EmbeddedInfo]:
        """Start the stack and stop it at the end, also when interrupted by a signal."""
        with interrupts_raised():
            try:
                yield self.start(report, workers=workers, lease=lease)
            finally:
                if self._lock:  # otherwise the stack is not ours: another process holds it
                    self.stop()

    def start(
        self, report: Report, *, workers: int = 1, lease: timedelta | None = None
    ) -> EmbeddedInfo:
        """Start the stack and wait until the API answers. Data of an earlier start are kept.

        *workers*: worker processes of each pool. *lease*: of runs; None: the default.

        Raises:
            LocalStackError: The state is in use or damaged, or a part did not start.
        """
        if self._lock:
            raise LocalStackError("This stack has been started already; stop it first.")
        self._lock = locked(self._state)
        with interrupts_raised():
            try:
                return self._start(report, workers, lease)
            except BaseException as error:
                self.stop()
                if isinstance(error, OSError) and error.filename is not None:
                    raise unwritable(error.filename, error) from error
                raise

    def stop(self) -> None:
        """Stop all processes and keep the data. Does nothing if nothing runs.

        Raises:
            LocalStackError: As for `check_state`.
        """
        check_state(self._state)
        with interrupts_deferred():
            self._file.remove()
            self._processes.end(self._processes.recorded(), grace=_GRACE)
            self._processes.end_strays()
            shutil.rmtree(self._tmp, ignore_errors=True)
            self._opened = OpenedFiles()
            if self._lock:
                self._lock.close()
                self._lock = None

    def remove(self) -> None:
        """Stop, and delete jobs, runs, scripts and logs."""
        self.stop()
        for each in (self._data, self._logs):
            shutil.rmtree(each, ignore_errors=True)

    def info(self) -> EmbeddedInfo | None:
        """The embedded stack that was started and not stopped, or None.

        Raises:
            ClientError: The files of the folder cannot be trusted.
        """
        return self._file.read(EmbeddedInfo, kind=_NAME)

    def status(self) -> EmbeddedInfo | None:
        """The running stack; None if it does not run, or not in its folder."""
        info = self.info()
        return info if info and info.alive and not self._displaced() else None

    def restart_workers(self, report: Report) -> bool:  # noqa: ARG002 — as the emulated stack
        """Returns False: the supervisor starts parts again, and has ended if this is asked."""
        return False

    def renew_key(self) -> None:
        """Create a new API key if the present one was revoked, or expires within a month."""
        now = time.monotonic()
        if self._lock is None or now < self._key_looked_at + _LOOK_AT_KEY:
            return
        self._key_looked_at = now
        with contextlib.suppress(LocalStackError, OSError):  # tried again at the next look
            self._provide_key()

    def deaths(self) -> list[str]:
        """Processes that ended although the stack was not stopped, with the end of their logs; or
        that its folder was moved.
        """
        if path := self._displaced():
            problem = f"{path.parent}, or a file in it, was moved or removed while the stack ran."
            return [f"{problem} Move it back, unless you want to start without its data."]
        return self._processes.deaths(self._logs) if self._file.exists else []

    def _displaced(self) -> Path | None:
        """A file that was moved or removed since this process started the stack: the processes use
        it on, while others find none, or another one, in its place.
        """
        path = self._opened.displaced()
        # `down` removes the stack's file first, and leaves the lock.
        return path if path and (path.name == _LOCK or self._file.exists) else None

    def _start(self, report: Report, workers: int, lease: timedelta | None) -> EmbeddedInfo:
        began = time.monotonic()
        if self._processes.recorded():
            report("ending processes of an earlier start")
            self._processes.end(self._processes.recorded(), grace=_GRACE)
            self._processes.end_strays()
        for each in (self._data, self._tmp, self._logs):
            each.mkdir(parents=True, exist_ok=True)
        for each in (self._data, self._logs):
            each.chmod(0o700)
        self._tmp.chmod(self._tmp.stat().st_mode & ~0o022)  # whatever the umask is
        port = lasting_port(_HOST, self._data / "port")
        report(f"starting the API, the watcher and the workers on {_HOST}:{port}")
        endpoint = f"http://{_HOST}:{port}"
        upload_key = self._data / UPLOAD_KEY
        if not upload_key.exists() or not upload_key.stat().st_size:  # the machine may have died
            folder.write_private(upload_key, secrets.token_hex(32))
        self._parts_file.unlink(missing_ok=True)
        if (self._data / DATABASE).exists():  # its migration may take longer than parts wait
            self._database().close()
        process = self._processes.spawn(
            _NAME,
            [sys.executable, "-P", "-m", "functions.embedded"],
            environment=self._environment(endpoint, port, workers, lease),
            cwd=self._tmp,
            log=self._logs / f"{_NAME}.log",
        )
        self._provide_key()  # while the supervisor starts
        self._key_looked_at = time.monotonic()
        self._await_health(endpoint, process)
        info = EmbeddedInfo(
            endpoint=endpoint,
            account_id=TENANT,
            key_file=self._key_file,
            pools={
                name: EmbeddedPool(targets=pool.get("targets", "scripts"))
                for name, pool in worker_settings(self._script_pools, lease).items()
            },
            parts_file=self._parts_file,
            processes=self._processes.recorded(),
        )
        files = [self._state / _LOCK, *(self._data / f"{DATABASE}{end}" for end in ("", "-wal"))]
        # While a connection is open, the database's log stays the same file.
        self._opened = OpenedFiles(files, database=self._database())
        self._file.write(info)
        report(f"ready in {time.monotonic() - began:.1f} s")
        for problem in info.few_open_files():
            report(f"Warning: {problem}.")
        return info

    @property
    def _parts_file(self) -> Path:
        return self._data / "parts.json"

    @property
    def _key_file(self) -> Path:
        return self._data / API_KEY

    def _database(self) -> "Database":
        """Open the database.

        Raises:
            LocalStackError: It cannot be used; the message says what to do.
        """
        from nextfire.adapters.sqlite.database import Database  # noqa: PLC0415 - takes a while

        with reported(LocalStackError):
            return Database(self._data / DATABASE)

    def _provide_key(self) -> None:
        """Create the API key. Raises as `_database`."""
        from nextfire.adapters.sqlite.key_store import SqliteKeyStore  # noqa: PLC0415 - as above
        from nextfire_cli.local.api_key import provide_key  # noqa: PLC0415 - the same

        database = self._database()
        with reported(LocalStackError):
            provide_key(SqliteKeyStore(database), self._key_file, tenant=TENANT)
            database.close()

    def _environment(
        self, endpoint: str, port: int, workers: int, lease: timedelta | None
    ) -> dict[str, str]:
        """Environment variables of all processes."""
        pools = worker_settings(self._script_pools, lease)
        settings = {
            **shared_settings(pools),
            "embedded_folder": str(self._data),
            "embedded_url": endpoint,
            "server_parent": str(os.getpid()),
            "server_port": str(port),
            "server_logs": str(self._logs),
            "server_pools": json.dumps(pools),
            "server_workers": str(workers),
        }
        path = {} if self._sources is None else {"PYTHONPATH": str(self._sources)}
        return {
            **inherited_environment(),
            **{f"NEXTFIRE_{name.upper()}": value for name, value in settings.items()},
            **path,
            "AWS_EC2_METADATA_DISABLED": "true",
            "POWERTOOLS_METRICS_DISABLED": "true",
            "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
            "POWERTOOLS_LOG_LEVEL": "INFO",
            "HOME": str(self._state / "none"),
            "PYTHONNOUSERSITE": "1",
            "TMPDIR": str(self._tmp),
        }

    def _await_health(self, endpoint: str, process: subprocess.Popen[bytes]) -> None:
        import httpx2  # noqa: PLC0415 — takes a while; meanwhile the stack starts

        deadline = time.monotonic() + _PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx2.TransportError):
                healthy = httpx2.get(f"{endpoint}/v1/health", timeout=5, trust_env=False).is_success
                if healthy and self._parts_file.exists():
                    return
            time.sleep(0.02)
        log = self._logs / f"{_NAME}.log"
        logs = [each for each in (log, self._logs / "api.log") if each.exists()]
        texts = "\n".join(f"{each}:\n{tail(each)}" for each in logs)
        raise LocalStackError(f"The embedded stack did not start; see {texts}")
