"""The local stack of a soak test: real processes that can be killed and are restarted like a
supervisor does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import httpx2

from nextfire import Client
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo
from nextfire_cli.shared_options import STACK
from nextfire_cli.worker import environment
from tests.process_tree import children_of
from tests.soak.marks import HANDLER, SOURCE
from tests.soak.target import LEASE, ROOT, WORKERS, Kill, Log, now

OTHER_TENANT = "111111111111"
_YOUNG = 3.0
"""Seconds. A Lambda executor that is killed while it starts has not shortened its message's
visibility timeout: the message returns after the pool's 15 minutes, for which the test would wait.
"""
_TICKS = os.sysconf("SC_CLK_TCK")
_SUPERVISOR_LIVES = 0.5
_FUNCTION = re.compile(rb"AWS_LAMBDA_FUNCTION_NAME=([^\0]*)")


class SoakStack:
    """The deployed app on MiniStack, with its own workers. Implements `Target`; what is killed: a
    worker, or a key of `StackInfo.functions`.
    """

    victims: Mapping[str, int] = {
        "worker": 50,
        "watcher": 12,
        "executor-lambda": 18,
        "api": 12,
        "auditor": 8,
    }
    slots: Mapping[str, int] = {"default": WORKERS * 4, "lambda": 1}
    """Four per worker; one for Lambda, where the emulator has a single poller."""
    on_lambda = 0.1

    def __init__(
        self,
        folder: Path,
        report: Callable[[str], None],
        *,
        strict: Sequence[str] | None = None,
    ) -> None:
        """*strict*: as of `LocalStack`."""
        self._local = LocalStack(ROOT, state=folder / "stack", strict=strict)
        self._folder = folder
        self._report = report
        self._processes = Processes(folder / "workers.json", folder=folder / "work")
        self._workers: dict[int, Popen[bytes]] = {}
        self._started = 0
        self._gate = threading.RLock()
        self._up = False
        self.log = Log()
        self.marks = folder / "marks"
        self.info: StackInfo
        self._environment: dict[str, str]

    def start(self) -> None:
        """Start the stack with its previous data."""
        with self._gate:
            self.info = self._local.start(self._report, workers=0, lease=LEASE)
            for tenant in self.tenants:
                folder = self.marks / tenant
                folder.mkdir(parents=True, exist_ok=True)
                # Workers that run as root give scripts their own users.
                folder.chmod(0o1777)
                for pool in self.info.pools:
                    self.client("s3").put_object(
                        Bucket=self.info.scripts_bucket,
                        Key=f"pools/{pool}/{tenant}/{HANDLER}.py",
                        Body=SOURCE.encode(),
                    )
            self._environment = self._worker_environment()
            for _ in range(WORKERS):
                self._start_worker()
            self._up = True

    def stop(self) -> None:
        """End the workers, then the emulator, which keeps its state only this way."""
        with self._gate:
            self._up = False
            self._processes.end(self._processes.recorded(), grace=timedelta(seconds=20))
            self._workers.clear()
            self._processes.end_strays()
            self._local.stop()

    def restart(self, away: Callable[[], None]) -> None:
        """Stop, call *away*, start."""
        self._report("stopping the stack cleanly: a crash would lose its state")
        down_at = now()
        with self._gate:
            self.stop()
            away()
            self.start()
        self.log.stops.append((down_at, now()))

    def client(self, service: str) -> Any:
        """A boto3 client as the account's root user; valid until the next stop."""
        return self._local.client(service)

    @property
    def tenants(self) -> tuple[str, str]:
        return self.info.account_id, OTHER_TENANT

    def apis(self) -> list[Client]:
        """A client of the API for each tenant.

        MiniStack serves an API to its own account only, so requests of the other tenant invoke the
        API's function with the events that API Gateway would send.
        """
        return [
            Client(self.info.endpoint, self.info.api_key),
            Client("http://127.0.0.1", auth=httpx2.Auth(), transport=_Invoked(self, OTHER_TENANT)),
        ]

    def supervise(self) -> None:
        """Start a new worker for each that has ended."""
        with self._gate:
            if not self._up:
                return
            killed = {kill.pid for kill in self.log.kills}
            for pid, process in [*self._workers.items()]:
                if process.poll() is None:
                    continue
                if pid not in killed:
                    self._report(f"worker {pid} ended by itself: {process.returncode}")
                del self._workers[pid]
                self._start_worker()

    def kill(self, what: str, random: Random) -> Kill | None:
        """SIGKILL a worker, or a process in which MiniStack runs the function *what*. Returns None
        if none is running.
        """
        with self._gate:
            if not self._up:
                return None
            if what == "worker":
                alive = [pid for pid, process in self._workers.items() if process.poll() is None]
            else:
                alive = self._function_processes(what)
            if not alive:
                return None
            pid = random.choice(alive)
            victims, name = [pid], None
            if what == "worker":
                workers = children_of(pid)
                if not workers:  # it is starting or handing back
                    return None
                name = f"{os.uname().nodename}-{workers[0]}"
                # Only the worker, or with its supervisor, as when a machine is lost.
                victims = workers if random.random() < _SUPERVISOR_LIVES else [pid, *workers]
            kill = Kill(now(), what, pid, name)
            self.log.kills.append(kill)
            for victim in victims:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            return kill

    def unfinished(self) -> str | None:
        """What is left in the due table, the queues and the records; None if nothing is."""
        database, queues = self.client("dynamodb"), self.client("sqs")
        left: dict[str, int] = {}
        left["due entries"] = _count(database, TableName=self.info.tables["due"])
        left["runs"] = _count(
            database,
            TableName=self.info.tables["runs"],
            FilterExpression="#s IN (:p, :r)",
            ExpressionAttributeNames={"#s": "state"},
            ExpressionAttributeValues={":p": {"S": "PENDING"}, ":r": {"S": "RUNNING"}},
        )
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        for name, pool in self.info.pools.items():
            attributes = queues.get_queue_attributes(QueueUrl=pool.queue_url, AttributeNames=names)
            left[f"messages in {name}"] = sum(int(n) for n in attributes["Attributes"].values())
        return ", ".join(f"{count} {what}" for what, count in left.items() if count) or None

    def audit(self) -> dict[str, Any]:
        """Run a full audit.

        Raises:
            RuntimeError: The auditor was killed meanwhile.
        """
        answer = self.client("lambda").invoke(
            FunctionName=self.info.functions["auditor"], Payload=json.dumps({"full": True})
        )
        summary = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RuntimeError(str(summary))
        return dict(summary)

    def _function_processes(self, function: str) -> list[int]:
        """The emulator's child processes that run *function*, except those just started."""
        [emulator] = [each.pid for each in self.info.processes if each.name == "ministack"]
        name = self.info.functions[function].encode()
        found = []
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) != emulator or fields[0] == "Z":
                    continue
                runs = _FUNCTION.search((entry / "environ").read_bytes())
                age = uptime - int(fields[19]) / _TICKS
                if runs and runs[1] == name and age > _YOUNG:
                    found.append(int(entry.name))
        return sorted(found)

    def _worker_environment(self) -> dict[str, str]:
        [stack] = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
        aws = self._folder / "stack" / "aws"
        return {
            **inherited_environment(),
            **environment(outputs, "default", None),
            "AWS_CONFIG_FILE": str(aws / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(aws / "none"),
            "AWS_PROFILE": "worker-default",
            "AWS_REGION": self.info.region,
            "AWS_DEFAULT_REGION": self.info.region,
            "AWS_ENDPOINT_URL": self.info.aws_endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("layers", "")),
            "TMPDIR": str(self._folder / "work"),
        }

    def _start_worker(self) -> None:
        self._started += 1
        (self._folder / "work").mkdir(exist_ok=True)
        process = self._processes.spawn(
            f"worker-{self._started}",
            [sys.executable, "-m", "functions.worker"],
            environment=self._environment,
            cwd=self._folder / "work",
            log=self._folder / "logs" / f"worker-{self._started}.log",
        )
        self._workers[process.pid] = process


def _count(database: Any, **scan: Any) -> int:
    count = 0
    start: dict[str, Any] = {}
    while True:
        page = database.scan(Select="COUNT", ConsistentRead=True, **scan, **start)
        count += int(page["Count"])
        if "LastEvaluatedKey" not in page:
            return count
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


class _Invoked(httpx2.BaseTransport):
    """Sends requests of *tenant* to the API's function as events of an HTTP API with IAM."""

    def __init__(self, stack: SoakStack, tenant: str) -> None:
        self._stack = stack
        self._tenant = tenant

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        path, query = request.url.path, dict(request.url.params)
        body = request.read().decode()
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": request.url.query.decode(),
            "headers": dict(request.headers),
            "requestContext": {
                "accountId": self._tenant,
                "authorizer": {"iam": {"accountId": self._tenant, "callerId": "soak"}},
                "http": {"method": request.method, "path": path, "sourceIp": "127.0.0.1"},
                "stage": "$default",
            },
            "isBase64Encoded": False,
            **({"queryStringParameters": query} if query else {}),
            **({"body": body} if body else {}),
        }
        answer = self._stack.client("lambda").invoke(
            FunctionName=self._stack.info.functions["api"], Payload=json.dumps(event)
        )
        response = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            return httpx2.Response(502, json={"message": "the function failed"}, request=request)
        return httpx2.Response(
            response["statusCode"],
            content=response.get("body", ""),
            headers=response.get("headers"),
            request=request,
        )
