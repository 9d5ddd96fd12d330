"""One local stack for all end-to-end tests, with short leases and IAM enforced."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.instants import to_ms
from nextfire.domain.keys import Minted, Scope
from nextfire.usecases.manage_keys import ManageKeys, new_key_id
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.emulator import ACCOUNT
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo
from nextfire_cli.shared_options import STACK
from nextfire_cli.worker import environment
from tests.places import host_folder
from tests.process_tree import children_of
from tests.worker_image import Image

pytest.register_assert_rewrite("tests.e2e.caller", "tests.e2e.strict_flows")

ROOT = Path(__file__).resolve().parents[2]
LEASE = timedelta(seconds=6)
WORKERS = 2
FEW, SMALL, NARROW = "few-a-minute", "small", "narrow"
"""Tenants with quotas; other tenants have no quotas."""
QUOTAS = {
    FEW: {"runsPerMinute": 2},
    NARROW: {"runsPerMinute": 3, "concurrentRuns": 1},
    SMALL: {"jobs": 1, "payloadBytes": 20, "shortestIntervalSec": 3600},
}
_LATE_IN_A_MINUTE = 45
REFUSED = {"AccessDenied", "AccessDeniedException"}
"""Codes of errors by which AWS's services report that IAM denied a call."""
JOB_ROLE = "scripts-of-acting"
"""The job role of the pool `acting`, of which no run starts."""
OWNER = "owner"
"""The tenant to which the pool `acting` is open."""
CALLER = "caller"
"""The tenant of the tests of calls, so that the lists of other tests stay short."""
CALL_ROLE = "calls-of-jobs"
"""The job role of the pool `calls`."""
_POOLS = {
    "default": {"executor": "worker"},
    "lambda": {"executor": "lambda", "memory": 512, "batchSize": 1, "lease": "PT5S"},
    "acting": {
        "executor": "lambda",
        "jobRole": f"arn:aws:iam::{ACCOUNT}:role/{JOB_ROLE}",
        "tenants": [OWNER],
    },
    "calls": {
        "executor": "worker",
        "targets": "calls",
        "concurrency": 16,
        "callNetworks": ["127.0.0.0/8"],
        "callPorts": [0],
        "callHttp": True,
        "jobRole": f"arn:aws:iam::{ACCOUNT}:role/{CALL_ROLE}",
    },
}
_SETTINGS = {
    "quotas": json.dumps({"tenants": QUOTAS}),
    "local": json.dumps({"pools": _POOLS}),
}


class Stack:
    """The deployed stack, with clients for its API and for the AWS services behind it."""

    def __init__(self, local: LocalStack, info: StackInfo, state: Path) -> None:
        self.local = local
        self.info = info
        self.state = state
        self._workers: list[subprocess.Popen[bytes]] = []

    def api(self) -> httpx2.Client:
        """A client with the stack's initial key."""
        return self.api_with(self.info.api_key)

    def api_with(self, key: str) -> httpx2.Client:
        """A client with *key*, valid or not."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx2.Client(base_url=self.info.endpoint, headers=headers, timeout=30)

    def key_of(self, tenant: str) -> str:
        """The text of a new key of *tenant*. The API cannot create it: a caller only knows its own
        tenant.
        """
        keys = DynamoDbKeyStore(self.client("dynamodb"), table=self.outputs()["KeysTable"])
        made = ManageKeys(keys).create(
            tenant,
            key_id=new_key_id(),
            name="e2e",
            scopes=[Scope.WRITE],
            now=datetime.now(UTC),
            life=timedelta(hours=1),
        )
        assert isinstance(made, Minted)
        return made.text

    def keyless_api(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.info.endpoint, timeout=30)

    def client(self, service: str, *, role: str | None = None) -> Any:
        """A boto3 client as the root user, or as *role* (a key of `info.roles`)."""
        if role is None:
            return self.local.client(service)
        session = self.local.client("sts").assume_role(
            RoleArn=self.info.roles[role], RoleSessionName="end-to-end"
        )["Credentials"]
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.info.aws_endpoint,
            region_name=self.info.region,
            aws_access_key_id=session["AccessKeyId"],
            aws_secret_access_key=session["SecretAccessKey"],
            aws_session_token=session["SessionToken"],
        )

    def outputs(self) -> dict[str, str]:
        """The outputs of the deployed stack."""
        [found] = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found["Outputs"]}

    def start_worker(
        self, pool: str = "default", *, image: Image | None = None, **settings: str
    ) -> int:
        """Start another worker of *pool*, from the checkout or from *image*; *settings* extends the
        environment that the stack gives it. Returns the process id of its supervisor.
        """
        variables = {"PYTHONPATH": str(ROOT)} if image is None else image.variables
        log = self.state / "logs" / f"worker-{pool}-{time.time_ns()}.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "functions.worker"] if image is None else image.command,
                env={
                    **inherited_environment(),
                    **environment(self.outputs(), pool, None),
                    "AWS_CONFIG_FILE": str(self.state / "aws" / "config"),
                    "AWS_PROFILE": f"worker-{pool}",
                    "AWS_REGION": self.info.region,
                    "AWS_DEFAULT_REGION": self.info.region,
                    "AWS_ENDPOINT_URL": self.info.aws_endpoint,
                    **variables,
                    "TMPDIR": str(self.state / "tmp"),
                    **settings,
                },
                cwd=self.state / "tmp" if image is None else image.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._workers.append(worker)
        return worker.pid

    def workers(self) -> list[int]:
        """The process ids of the pool default's live workers, each a child of its supervisor. Waits
        at most 20 s for a supervisor that has not started its worker yet.
        """
        parts = [each for each in self.info.processes if "worker-default-" in each.name]
        theirs = [each.pid for each in parts if each.alive]
        ours = [worker.pid for worker in self._workers if worker.poll() is None]
        until = time.monotonic() + 20
        while True:
            found = [children_of(supervisor) for supervisor in (*theirs, *ours)]
            if all(found) or time.monotonic() > until:
                return [child for children in found for child in children]
            time.sleep(0.05)

    def kill_worker(self, pid: int) -> None:
        """Kill one of `workers` with SIGKILL, and start another."""
        assert pid in self.workers()
        os.kill(pid, signal.SIGKILL)
        self.start_worker()

    def end_workers(self, *pids: int) -> None:
        """End the named workers of `start_worker`, or all of them."""
        ending = [worker for worker in self._workers if not pids or worker.pid in pids]
        for worker in ending:
            worker.terminate()
        for worker in ending:
            try:
                worker.wait(15)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            self._workers.remove(worker)

    def restart(self, *, strict: Sequence[str] | None = None) -> None:
        """Stop everything and start it again with the same data. *strict*: as of `LocalStack`."""
        self.end_workers()
        self.local.stop()
        self.local.strict = strict
        self.info = self.local.start(
            lambda _line: None, workers=WORKERS, lease=LEASE, settings=_SETTINGS
        )

    def put_script(
        self, pool: str, handler: str, source: str, *, tenant: str | None = None
    ) -> None:
        """Upload *source* as script *handler* of *pool*, for *tenant* or the tenant of `api`."""
        self.client("s3").put_object(
            Bucket=self.info.scripts_bucket,
            Key=f"pools/{pool}/{tenant or self.info.account_id}/{handler}.py",
            Body=source.encode(),
        )

    def log_lines(self, function: str, since: datetime) -> list[str]:
        """The log of the function called *function*, of invocations that have ended; from *since*
        on: the emulator returns the first 10,000 lines, and no further page.
        """
        configuration = self.client("lambda").get_function_configuration(FunctionName=function)
        group = configuration["LoggingConfig"]["LogGroup"]
        events = self.client("logs").get_paginator("filter_log_events")
        pages = events.paginate(logGroupName=group, startTime=to_ms(since))
        return [each["message"] for page in pages for each in page["events"]]

    def invoke(self, function: str, event: Mapping[str, object]) -> dict[str, Any]:
        """Invoke *function* (a key of `info.functions`) and wait for its answer."""
        answer = self.client("lambda").invoke(
            FunctionName=self.info.functions[function], Payload=json.dumps(event)
        )
        body: dict[str, Any] = json.loads(answer["Payload"].read())
        return body


@pytest.fixture(scope="session")
def stack(pytestconfig: pytest.Config) -> Iterator[Stack]:
    report: Callable[[str], None] = (
        print if pytestconfig.getoption("capture") == "no" else lambda _line: None
    )
    # Not below pytest's own folder: if the workers are root, scripts run as dedicated users, who
    # cannot enter that folder.
    state = host_folder("e2e-nextfire-")
    state.chmod(0o711)
    local = LocalStack(ROOT, state=state)
    with local.running(report, workers=WORKERS, lease=LEASE, settings=_SETTINGS) as info:
        stack = Stack(local, info, state)
        try:
            yield stack
        finally:
            stack.end_workers()
    shutil.rmtree(state)


def processes_of(execution_id: str) -> list[str]:
    """The processes that run for that execution, of all users."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            if f"NEXTFIRE_EXECUTION_ID={execution_id}".encode() in variables:
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # the process has ended
    return found


@pytest.fixture
def scratch(stack: Stack) -> Path:
    """A new folder that scripts can read."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=stack.state))
    folder.chmod(0o755)
    return folder


def early_in_a_minute(at: datetime) -> datetime:
    """The whole second of *at*; if it is late in its minute, one early in the next: runs that are
    due then are sent in the same minute.
    """
    if at.second >= _LATE_IN_A_MINUTE:
        at = at.replace(second=8) + timedelta(minutes=1)
    return at.replace(microsecond=0)


@dataclass(frozen=True)
class HeldBack:
    """Jobs of the tenant `FEW`, all due at `at`: more than its quota of runs per minute."""

    at: datetime
    jobs: list[str]
    key: str


@pytest.fixture(scope="session", autouse=True)
def held_back(stack: Stack) -> HeldBack:
    """Created before all tests: their runs wait for the next minute while other tests run."""
    stack.put_script("default", "waits", "print('it ran')", tenant=FEW)
    key = stack.key_of(FEW)
    with stack.api_with(key) as api:
        api.get("/v1/jobs").raise_for_status()  # the first call of a function is slow
        at = early_in_a_minute(datetime.now(UTC) + timedelta(seconds=8))
        job = {"type": "ONCE", "schedule": at.isoformat(), "target": {"handler": "waits"}}
        made = api.post("/v1/jobs:batch", json={"jobs": [job] * 4}).raise_for_status().json()
    assert {each["status"] for each in made["results"]} == {201}, made
    return HeldBack(at, [each["job"]["jobId"] for each in made["results"]], key)
