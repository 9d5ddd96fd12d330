"""Starts and stops the local stack.

Errors:
    LocalStackError             the stack cannot be started; the message says what to do
"""

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Literal

import boto3
import httpx2
from botocore.config import Config
from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, ValidationError

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.client import ClientError as NextfireClientError
from nextfire.client import folder
from nextfire_cli.local.api_key import provide_key
from nextfire_cli.local.cdk import inherited_environment, installed_cdk
from nextfire_cli.local.emulator_notes import EMULATOR, PURPOSE, left_behind
from nextfire_cli.local.processes import (
    Processes,
    ProcessRecord,
    interrupts_deferred,
    interrupts_raised,
)
from nextfire_cli.local.revival import Revival
from nextfire_cli.local.stand_in import NAME as STAND_IN
from nextfire_cli.local.stand_in import StandIn
from nextfire_cli.local.state import (
    LocalStackError,
    Report,
    check_state,
    locked,
    tail,
)

REGION = "us-east-1"
ACCOUNT = "000000000000"
ROOT_KEY = "test"
"""Id and secret of the emulated account's root user; valid on this machine only."""

_STACK_NAME = "Nextfire"
_HOST = "127.0.0.1"
_ASSETS_BUCKET = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
_DEPLOYED_KEY = "nextfire/deployed"
_DEPLOYED_FROM = ("cdk.json", "uv.lock", "functions", "infra", "layers")
_WORKER_GRACE = timedelta(seconds=10)
_EMULATOR_GRACE = timedelta(seconds=20)


class _Info(BaseModel):
    model_config = ConfigDict(frozen=True)


class PoolInfo(_Info):
    """A pool: its queues and its executor, `lambda` or `worker`."""

    executor: str
    queue_url: str
    dlq_url: str


class StackInfo(_Info):
    """A running local stack: endpoints, parts and credentials."""

    kind: Literal["emulator"] = "emulator"
    endpoint: str
    """Base URL of the API, to which paths such as `/v1/jobs` are added."""
    aws_endpoint: str
    region: str
    account_id: str
    """The tenant of the API key, and of the AWS keys below."""
    access_key: str
    secret_key: str
    key_file: Path
    """The API key of the stack; readable by its user only."""
    scripts_bucket: str
    outputs_bucket: str
    event_bus: str
    """Name of the event bus."""
    tables: dict[str, str]
    """Physical names by `jobs`, `due`, `runs`, `control`, `keys`, `requests`, `endpoints`."""
    pools: dict[str, PoolInfo]
    functions: dict[str, str]
    """Physical names by `api`, `authorizer`, `watcher`, `auditor`, `executor-<pool>`."""
    roles: dict[str, str]
    """ARNs by `api`, `authorizer`, `watcher`, `auditor`, `executor-<pool>`, `worker-<pool>`."""
    processes: list[ProcessRecord]
    """MiniStack and the workers (`worker-<pool>-<number>`)."""

    @property
    def alive(self) -> bool:
        """Whether none of its processes has ended."""
        return all(record.alive for record in self.processes)

    @property
    def api_key(self) -> str:
        """An API key with all permissions of the tenant."""
        return self.key_file.read_text(encoding="ascii").strip()


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
        self._cache = self._root / ".nextfire"
        # The folder itself must not be a link, see `check_state`.
        self._state = state.resolve() if state else self._cache
        self._territory = self._state / "tmp"
        self._logs = self._state / "logs"
        self._data = self._state / "ministack"
        self._info_file = self._state / folder.FILE
        self._processes = Processes(self._state / "processes.json", territory=self._territory)
        self._lock: IO[bytes] | None = None
        self._revival = Revival()
        self._clients: dict[str, Any] = {}

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
                return self._start(report, workers, _context(lease, settings or {}))
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop all processes and keep the data. Does nothing if nothing runs.

        Raises:
            LocalStackError: The folder belongs to another user, or contains links.
        """
        check_state(self._state)
        with interrupts_deferred():
            records = self._processes.recorded()
            emulators = [record for record in records if record.name in {"ministack", STAND_IN}]
            others = [record for record in records if record not in emulators]
            if any(record.name == EMULATOR and not record.alive for record in records):
                self._died_file.touch()  # the next start says what was lost
            # Processes that end from here on are not `casualties`.
            self._info_file.unlink(missing_ok=True)
            # Workers first: they need the queue to hand their runs back.
            self._processes.end(others, grace=_WORKER_GRACE)
            self._processes.end(emulators, grace=_EMULATOR_GRACE)
            self._processes.end_strays()
            shutil.rmtree(self._territory, ignore_errors=True)
            while self._clients:
                self._clients.popitem()[1].close()
            if self._lock:
                self._lock.close()
                self._lock = None

    def remove(self) -> None:
        """Stop, and delete jobs, runs, scripts and logs. Keep downloads and builds."""
        self.stop()
        for each in (self._data, self._logs, self._state / "cdk.out", self._state / "aws"):
            shutil.rmtree(each, ignore_errors=True)
        for file in (self._port_file, self._key_file, self._died_file):
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
        try:
            return StackInfo.model_validate(folder.read_stack(self._state))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise NextfireClientError(
                f"{self._info_file} does not describe a local stack.",
                "Stop `nextfire up` and start it again: it writes the file.",
            ) from error

    def casualties(self) -> list[str]:
        """Processes that ended although the stack was not stopped: each with its name, the path of
        its log, and the last lines of the log.
        """
        if not self._info_file.exists():
            return []
        return [self._obituary(record) for record in self._processes.recorded() if not record.alive]

    def revive(self, report: Report) -> bool:
        """Restart dead workers. Returns whether the stack continues: it does not if the
        emulator has died, or a worker died too often; see `casualties`.
        """
        info = self.info()
        if info is None:
            return False
        dead = [
            (record, self._processes.status(record))
            for record in self._processes.recorded()
            if not record.alive
        ]
        restarts = self._revival.restarts(dead, time.monotonic())
        if restarts is None:
            return False
        for each in restarts:
            report(f"{each.why}; it is started again")
            time.sleep(each.pause)
            self._processes.end([each.record], grace=timedelta())
            self._start_worker(each.pool, each.number, self._outputs())
        alive = info.model_copy(update={"processes": self._processes.recorded()})
        self._publish(alive.model_dump_json(indent=2))
        return True

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 types clients by literal name only
        """A boto3 client of *service*, as the emulated account's root user; valid until `stop`."""
        if service not in self._clients:
            self._clients[service] = boto3.client(  # type: ignore[call-overload]
                service,
                endpoint_url=self._aws_endpoint,
                region_name=REGION,
                aws_access_key_id=ROOT_KEY,
                aws_secret_access_key=ROOT_KEY,
                config=Config(retries={"total_max_attempts": 2}, connect_timeout=5),
            )
        return self._clients[service]

    @property
    def _port_file(self) -> Path:
        return self._state / "port"

    @property
    def _died_file(self) -> Path:
        """Exists if the emulator died while the stack ran, and no start has reported it."""
        return self._state / "emulator-died"

    @property
    def _key_file(self) -> Path:
        return self._state / "api-key"

    @property
    def _port(self) -> int:
        return int(self._port_file.read_text())

    @property
    def _aws_endpoint(self) -> str:
        return f"http://{_HOST}:{self._port}"

    @property
    def _product_endpoint(self) -> str:
        """The address that workers and functions take for AWS."""
        return self._stand_in.address if self._stand_in else self._aws_endpoint

    def _take_lock(self) -> None:
        if self._lock:
            raise LocalStackError("This LocalStack has been started already; stop it first.")
        lock = locked(self._state)
        self._lock = lock

    def _start(self, report: Report, workers: int, context: Sequence[str]) -> StackInfo:
        began = time.monotonic()
        report(PURPOSE)
        if self._processes.recorded():
            report(left_behind(self._data, self._processes.recorded()))
            lock, self._lock = self._lock, None  # `stop` would release it
            self.stop()
            self._lock = lock
        elif self._died_file.exists():
            report(left_behind(self._data, []))
        self._died_file.unlink(missing_ok=True)
        self._territory.mkdir(parents=True, exist_ok=True)
        self._choose_port()
        report(f"starting MiniStack on {_HOST}:{self._port}")
        self._stand_in = None if self.strict is None else StandIn(self._root, self.strict)
        self._start_emulator()
        if self._stand_in:
            report(
                f"enforcing AWS's limits; {self._stand_in.address}/_strict reports what they did"
            )
            log = self._logs / f"{STAND_IN}.log"
            self._stand_in.start(self._processes, self._aws_endpoint, cwd=self._territory, log=log)
        fingerprint = self._fingerprint(context)
        if self._deployed_fingerprint() == fingerprint:
            report("nothing to deploy: the app has not changed")
        else:
            report("deploying the CDK app")
            self._deploy(context)
            self.client("s3").put_object(
                Bucket=_ASSETS_BUCKET, Key=_DEPLOYED_KEY, Body=fingerprint.encode()
            )
        outputs = self._outputs()
        self._write_worker_profiles(outputs)
        self._provide_key(outputs)
        report("starting the watcher and the workers")
        self._wake_watcher(outputs)
        for pool, executor in json.loads(outputs["Pools"]).items():
            if executor == "worker":
                for number in range(workers):
                    self._start_worker(pool, number, outputs)
        endpoint = f"{self._aws_endpoint}/_aws/execute-api/{outputs['ApiId']}/$default"
        self._await_health(endpoint)
        info = self._describe(endpoint, outputs)
        self._check_alive(info.processes)
        self._publish(info.model_dump_json(indent=2))
        report(f"ready in {time.monotonic() - began:.1f} s")
        return info

    def _publish(self, info: str) -> None:
        """Write the file that describes the stack. Clients trust it: only its user can read it."""
        folder.write_private(self._info_file, info)

    def _choose_port(self) -> None:
        """Keep the port that is part of addresses in the data; without data take a free one."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._data.exists() and self._port_file.exists():
                try:
                    probe.bind((_HOST, self._port))
                except OSError:
                    raise LocalStackError(
                        f"Port {self._port}, which the stack's queue addresses contain, is taken. "
                        "Stop the process that listens there, or remove the local data."
                    ) from None
            else:
                probe.bind((_HOST, 0))
                self._port_file.write_text(str(probe.getsockname()[1]))

    def _start_emulator(self) -> None:
        log = self._logs / "ministack.log"
        environment = {
            **inherited_environment(),
            "AUTH": "true",
            "AWS_ACCESS_KEY_ID": ROOT_KEY,
            "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
            "BIND_HOST": _HOST,
            "DOCKER_HOST": f"unix://{self._state}/no-docker",
            "GATEWAY_PORT": str(self._port),
            "IOT_MTLS_ENABLED": "0",
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "PERSIST_STATE": "1",
            "STATE_DIR": str(self._data),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(self._data / "s3"),
            "TMPDIR": str(self._territory),
            **(self._stand_in.emulator_settings() if self._stand_in else {}),
        }
        process = self._processes.spawn(
            "ministack",
            [sys.executable, "-P", "-m", "ministack"],
            environment=environment,
            cwd=self._territory,
            log=log,
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with contextlib.suppress(httpx2.TransportError):
                if httpx2.get(f"{self._aws_endpoint}/_ministack/health").is_success:
                    return
            time.sleep(0.05)
        raise LocalStackError(f"MiniStack did not start; see {log}:\n{tail(log)}")

    def _fingerprint(self, context: Sequence[str]) -> str:
        """Return a hash of everything that a deployment depends on."""
        digest = hashlib.sha256(repr((context, sys.version)).encode())
        for part in _DEPLOYED_FROM:
            path = self._root / part
            for file in sorted([path] if path.is_file() else path.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    digest.update(str(file.relative_to(self._root)).encode() + b"\0")
                    digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def _deployed_fingerprint(self) -> str | None:
        """Return the fingerprint of the deployment, which is stored with its data."""
        try:
            self._outputs()
            found = self.client("s3").get_object(Bucket=_ASSETS_BUCKET, Key=_DEPLOYED_KEY)
        except ClientError:
            return None
        return str(found["Body"].read().decode())

    def _deploy(self, context: Sequence[str]) -> None:
        # The synthesizer that uses the caller's credentials needs only the bucket of a bootstrap.
        self.client("s3").create_bucket(Bucket=_ASSETS_BUCKET)
        try:
            program = installed_cdk(self._cache)
        except subprocess.CalledProcessError as error:
            raise LocalStackError(
                f"npm could not fetch the CDK command line; is the registry reachable?\n"
                f"{error.stderr}"
            ) from error
        log = self._logs / "cdk.log"
        nowhere = str(self._state / "aws" / "none")
        process = self._processes.spawn(
            "cdk",
            [
                "node", str(program), "deploy", *context, "--app", f"{sys.executable} -m infra.app",
                "--output", str(self._state / "cdk.out"), "--require-approval", "never",
                "--method", "direct", "--no-notices", "--ci",
            ],
            environment={
                **inherited_environment(),
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
                "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": self._aws_endpoint,
                "AWS_CONFIG_FILE": nowhere,
                "AWS_SHARED_CREDENTIALS_FILE": nowhere,
                "AWS_EC2_METADATA_DISABLED": "true",
                "CDK_DISABLE_CLI_TELEMETRY": "true",
                "CDK_DISABLE_VERSION_CHECK": "1",
                "TMPDIR": str(self._territory),
            },
            cwd=self._root,
            log=log,
        )  # fmt: skip
        status = process.wait()
        self._processes.end(
            [record for record in self._processes.recorded() if record.name == "cdk"],
            grace=timedelta(0),
        )
        if status != 0:
            raise LocalStackError(f"The deployment failed; see {log}:\n{tail(log)}")

    def _outputs(self) -> dict[str, str]:
        """The deployed stack's outputs.

        Raises:
            ClientError: The stack does not exist.
        """
        stacks = self.client("cloudformation").describe_stacks(StackName=_STACK_NAME)["Stacks"]
        return {
            str(output["OutputKey"]): str(output["OutputValue"])
            for output in stacks[0].get("Outputs", [])
        }

    def _write_worker_profiles(self, outputs: dict[str, str]) -> None:
        """One profile per worker pool: credentials of its role, renewed before they expire."""
        sections = [
            "[profile root]",
            f"aws_access_key_id = {ROOT_KEY}",
            f"aws_secret_access_key = {ROOT_KEY}",
        ]
        for pool in json.loads(outputs["Pools"]):
            if role := outputs.get(f"WorkerRoleArn{_pascal(pool)}"):
                sections += [
                    f"[profile worker-{pool}]",
                    f"role_arn = {role}",
                    f"role_session_name = worker-{pool}",
                    "source_profile = root",
                ]
        self._aws_config.parent.mkdir(parents=True, exist_ok=True)
        self._aws_config.touch()
        self._aws_config.chmod(0o600)  # scripts run as other users, and could read it
        self._aws_config.write_text("\n".join(sections) + "\n")

    def _provide_key(self, outputs: dict[str, str]) -> None:
        """Make sure that the file has an API key that stays valid for a while."""
        keys = DynamoDbKeyStore(self.client("dynamodb"), table=outputs["KeysTable"])
        provide_key(keys, self._key_file, tenant=ACCOUNT)

    @property
    def _aws_config(self) -> Path:
        return self._state / "aws" / "config"

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
        self._processes.spawn(
            name,
            # -P: its folder, where scripts run, must not be on its path.
            [sys.executable, "-P", "-m", "functions.worker"],
            environment={
                **inherited_environment(),
                **json.loads(outputs[f"WorkerEnvironment{_pascal(pool)}"]),
                "AWS_CONFIG_FILE": str(self._aws_config),
                "AWS_PROFILE": f"worker-{pool}",
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL": self._product_endpoint,
                "AWS_SHARED_CREDENTIALS_FILE": str(self._state / "aws" / "none"),
                "AWS_EC2_METADATA_DISABLED": "true",
                "POWERTOOLS_SERVICE_NAME": "worker",
                "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
                "POWERTOOLS_LOG_LEVEL": "INFO",
                "HOME": str(self._state / "none"),
                "PYTHONNOUSERSITE": "1",
                "PYTHONPATH": str(self._root),
                "TMPDIR": str(self._territory),
            },
            cwd=self._territory,
            log=self._logs / f"{name}.log",
        )

    def _await_health(self, endpoint: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                response = httpx2.get(f"{endpoint}/v1/health", timeout=30)
                if response.is_success:
                    return
                answer = f"{response.status_code}: {response.text}"
            except httpx2.TimeoutException:  # the function starts, on a busy machine
                answer = "nothing"
            if time.monotonic() > deadline:
                raise LocalStackError(
                    f"The API answers a health check with {answer}\n"
                    f"See {self._logs / 'ministack.log'}."
                )
            time.sleep(0.2)

    def _check_alive(self, processes: list[ProcessRecord]) -> None:
        for record in processes:
            if not record.alive:
                raise LocalStackError(self._obituary(record))

    def _obituary(self, record: ProcessRecord) -> str:
        log = self._logs / f"{record.name}.log"
        return f"{record.name} has ended unexpectedly; see {log}:\n{tail(log)}"

    def _describe(self, endpoint: str, outputs: dict[str, str]) -> StackInfo:
        pools = {
            name: PoolInfo(
                executor=executor,
                queue_url=outputs[f"QueueUrl{_pascal(name)}"],
                dlq_url=outputs[f"DlqUrl{_pascal(name)}"],
            )
            for name, executor in json.loads(outputs["Pools"]).items()
        }
        names = ("api", "authorizer", "watcher", "auditor")
        functions = {name: outputs[f"{_pascal(name)}Function"] for name in names}
        roles = {name: outputs[f"{_pascal(name)}RoleArn"] for name in names}
        for name, pool in pools.items():
            if pool.executor == "lambda":
                functions[f"executor-{name}"] = outputs[f"ExecutorFunction{_pascal(name)}"]
                roles[f"executor-{name}"] = outputs[f"ExecutorRoleArn{_pascal(name)}"]
            else:
                roles[f"worker-{name}"] = outputs[f"WorkerRoleArn{_pascal(name)}"]
        return StackInfo(
            endpoint=endpoint,
            aws_endpoint=self._product_endpoint,
            region=REGION,
            account_id=ACCOUNT,
            access_key=ROOT_KEY,
            secret_key=ROOT_KEY,
            key_file=self._key_file,
            scripts_bucket=outputs["ScriptsBucket"],
            outputs_bucket=outputs["OutputsBucket"],
            event_bus=outputs["EventBus"],
            tables={
                key.removesuffix("Table").lower(): name
                for key, name in outputs.items()
                if key.endswith("Table")
            },
            pools=pools,
            functions=functions,
            roles=roles,
            processes=self._processes.recorded(),
        )


def _context(lease: timedelta | None, settings: Mapping[str, str]) -> list[str]:
    """Return the options of the CDK command line for the settings."""
    given = {"target": "local", **settings}
    if lease is not None:
        given["lease"] = f"PT{int(lease.total_seconds())}S"
    return [part for name, value in given.items() for part in ("-c", f"{name}={value}")]


def _pascal(pool: str) -> str:
    """Return the name of *pool* as in the keys of the stack's outputs."""
    return "".join(part.capitalize() for part in pool.split("-"))
