"""The API: its cold import compared with its libraries alone, and its response times."""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from benchmarks.figures import percentile
from benchmarks.report import Result, progress, tell
from benchmarks.stack import ROOT, Stack
from benchmarks.stack import stack as running_stack
from nextfire_cli.local.cdk import inherited_environment

PROCESSES = 15
ROUNDS = 60
_WARM_UP = 3
_MOST_RATIO = 1.3
_MOST_RATIO_WITH_CLIENTS = 0.8
_PATIENCE = timedelta(seconds=30)
_OURS = "import functions.api.handler"
_OURS_WITH_CLIENTS = f"""
{_OURS}
from nextfire.adapters.aws.clients import dynamodb, s3
clients = (dynamodb(), s3())
"""
_ALONE = """
import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.middlewares.openapi_validation import (
    OpenAPIRequestValidationMiddleware,
)
Logger(service="api")
Metrics(namespace="nextfire", service="api")
APIGatewayHttpResolver(enable_validation=True)
"""
# A plain handler with boto3 builds its clients at startup. The API builds its DynamoDB client at
# startup, and its S3 client on the first request that needs objects.
_ALONE_WITH_CLIENTS = f"""
{_ALONE}
for service in ("dynamodb", "s3"):
    boto3.client(service)
"""
_IMPORTS = {
    "import": _OURS,
    "alone": _ALONE,
    "import_with_clients": _OURS_WITH_CLIENTS,
    "alone_with_clients": _ALONE_WITH_CLIENTS,
}
_TIMED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
# It logs a line, as the API does: the emulator waits for a log line.
_EMPTY = """
def handler(event, context):
    print("{}")
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": "{}"}
"""
_JOB: dict[str, Any] = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
_ROUTES: tuple[tuple[str, str, str, Any], ...] = (
    ("health", "GET", "/v1/health", None),
    ("description", "GET", "/v1/openapi.json", None),
    ("put", "PUT", "/v1/jobs/{job}", _JOB),
    ("create", "POST", "/v1/jobs", _JOB),
    ("list", "GET", "/v1/jobs?limit=50", None),
    ("get", "GET", "/v1/jobs/{job}", None),
    ("change", "PATCH", "/v1/jobs/{job}", {"name": "n"}),
    ("pause", "POST", "/v1/jobs/{job}/pause", {}),
    ("resume", "POST", "/v1/jobs/{job}/resume", {}),
    ("run", "POST", "/v1/jobs/{job}/run", {}),
    ("upcoming", "GET", "/v1/jobs/{job}/upcoming", None),
    ("executions", "GET", "/v1/jobs/{job}/executions?limit=10", None),
    ("preview", "POST", "/v1/schedules/preview", {"type": "CRON", "schedule": "0 3 * * *"}),
)
_EMPTY_NAME = "empty"


def measure() -> Result:
    """Time imports in fresh processes, one at a time; then time routes, alternating with an empty
    one.
    """
    result = Result()
    _measure_imports(result)
    with running_stack(watcher=False) as stack:
        latencies = _measure_routes(stack)
    empty = latencies.pop(_EMPTY_NAME)
    together = [each for name in latencies for each in latencies[name]]
    for key, what, of in (
        ("warm", "a warm request, all routes", together),
        ("empty", "a warm request of an empty handler", empty),
    ):
        for percent in (50, 99):
            result.add(
                f"{key}_p{percent}_ms", f"{what}, p{percent}", percentile(of, percent), unit="ms"
            )
    for name, of in latencies.items():
        for percent in (50, 99):
            result.add(
                f"{name}_p{percent}_ms", f"{name}, p{percent}", percentile(of, percent), unit="ms"
            )
    result.notes.append(
        f"Imports: {PROCESSES} processes of each kind in turn, with bytecode compiled beforehand; "
        "medians of CPU time. `cold_import_ratio` compares imports alone, without clients. "
        "`cold_start_ratio` adds boto3's clients for DynamoDB and S3 on one side. On the other "
        "side it "
        "adds the API's own DynamoDB client, and an S3 placeholder that builds its client on "
        "first use. "
        f"Requests: {ROUNDS} of each route in turn, over HTTP through the "
        "emulator's gateway and the authorizer (health and the empty handler have no authorizer)."
    )
    return result


def _measure_imports(result: Result) -> None:
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in progress(range(PROCESSES + 1), f"{PROCESSES} cold imports of each kind"):
            for name, code in _IMPORTS.items():
                took = _import(code, bytecode)
                wall[name].append(took[0])
                cpu[name].append(took[1])
    # The first import of each kind compiles bytecode.
    median = {name: statistics.median(cpu[name][1:]) for name in _IMPORTS}
    ours, alone = median["import"], median["alone"]
    result.add(
        "cold_import_ratio",
        "cold import of the API ÷ boto3 and Powertools alone",
        ours / alone,
        most=_MOST_RATIO,
        unit="×",  # noqa: RUF001 — as the other benchmarks
    )
    result.add(
        "cold_start_ratio",
        "the same ratio, with the clients that each side builds at startup",
        median["import_with_clients"] / median["alone_with_clients"],
        most=_MOST_RATIO_WITH_CLIENTS,
        unit="×",  # noqa: RUF001 — as the other benchmarks
    )
    for name in ("import_with_clients", "alone_with_clients"):
        result.add(f"{name}_cpu_s", f"{name.replace('_', ' ')}, CPU", median[name], unit="s")
    result.add("import_cpu_s", "cold import of the API, CPU", ours, unit="s")
    result.add("alone_cpu_s", "boto3 and Powertools alone, CPU", alone, unit="s")
    result.add(
        "import_wall_s", "cold import of the API", statistics.median(wall["import"][1:]), unit="s"
    )


def _import(code: str, bytecode: str) -> tuple[float, float]:
    """Seconds of wall clock and of CPU. The folder *bytecode* keeps the compiled bytecode."""
    environment = {
        **inherited_environment(),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": bytecode,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "layers"), str(ROOT))),
        "AWS_DEFAULT_REGION": "eu-central-1",
        "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
    }
    printed = subprocess.run(
        [sys.executable, "-c", _TIMED.format(code)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ).stdout
    wall, cpu = printed.split()
    return float(wall), float(cpu)


def _measure_routes(stack: Stack) -> dict[str, list[float]]:
    """Milliseconds of each request, by the name of the route."""
    headers = {"Authorization": f"Bearer {stack.info.api_key}"}
    found: dict[str, list[float]] = defaultdict(list)
    with (
        httpx2.Client(base_url=stack.info.endpoint, headers=headers, timeout=30) as api,
        httpx2.Client(base_url=_empty_api(stack), timeout=30) as empty,
    ):
        calls = [(_EMPTY_NAME, "GET", "/", None), *_ROUTES]
        for turn in progress(range(ROUNDS + _WARM_UP), f"{ROUNDS} requests of each route"):
            for name, method, path, body in calls:
                client = empty if name == _EMPTY_NAME else api
                began = time.perf_counter()
                answer = client.request(method, path.replace("{job}", f"job-{turn}"), json=body)
                took = time.perf_counter() - began
                answer.raise_for_status()
                if turn >= _WARM_UP:
                    found[name].append(took * 1000)
    return found


def _empty_api(stack: Stack) -> str:
    """The address of a separate API in front of a handler that does nothing."""
    tell("deploying an empty handler next to the API")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as folder:
        folder.writestr("empty.py", _EMPTY)
    functions, gateway = stack.client("lambda"), stack.client("apigatewayv2")
    api = functions.get_function_configuration(FunctionName=stack.info.functions["api"])
    function = functions.create_function(
        FunctionName=_EMPTY_NAME,
        Runtime=api["Runtime"],
        Role=stack.info.roles["api"],
        Handler="empty.handler",
        MemorySize=api["MemorySize"],
        Code={"ZipFile": archive.getvalue()},
    )
    http = gateway.create_api(Name=_EMPTY_NAME, ProtocolType="HTTP")["ApiId"]
    integration = gateway.create_integration(
        ApiId=http,
        IntegrationType="AWS_PROXY",
        IntegrationUri=function["FunctionArn"],
        PayloadFormatVersion="2.0",
    )["IntegrationId"]
    gateway.create_route(ApiId=http, RouteKey="$default", Target=f"integrations/{integration}")
    gateway.create_stage(ApiId=http, StageName="$default", AutoDeploy=True)
    functions.add_permission(
        FunctionName=_EMPTY_NAME,
        StatementId="gateway",
        Action="lambda:InvokeFunction",
        Principal="apigateway.amazonaws.com",
    )
    address = f"{stack.info.aws_endpoint}/_aws/execute-api/{http}/$default"
    deadline = datetime.now(UTC) + _PATIENCE
    while not (answer := httpx2.get(f"{address}/", timeout=30)).is_success:
        if datetime.now(UTC) > deadline:
            raise TimeoutError(f"the empty handler does not answer: {answer.text}")
        time.sleep(0.5)
    return address
