"""The functions on the Python of Lambda, with the oldest boto3 that their bounds allow: the runtime
brings its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from uv import find_uv_bin

from infra.app import ROOT
from infra.build import Build, Runtime
from tests.infra.test_wheel import _LAMBDA, _interpreter
from tests.integration.deployment import TENANT, http_event, identity

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_HANDLERS = ("api", "auditlog", "auditor", "authorizer", "executor", "projector", "watcher")
_TABLES = ("jobs", "due", "runs", "control", "keys", "requests", "endpoints", "overview")
_READS = """
import importlib, json, sys
from types import SimpleNamespace as Context
names, events = json.loads(sys.stdin.read())
handlers = {name: importlib.import_module(f"functions.{name}.handler").handler for name in names}
for function, event in events:
    answer = handlers[function](event, Context(
        aws_request_id="1", function_name=function, memory_limit_in_mb=128,
        invoked_function_arn="arn", get_remaining_time_in_millis=lambda: 60_000,
    ))
    print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment like the runtime: the layer's packages and boto3."""
    folder = tmp_path_factory.mktemp("runtime")
    uv, interpreter = find_uv_bin(), _interpreter(_LAMBDA)
    packages = _PROJECT["dependency-groups"]["functions"]
    [boto3] = [each for each in packages if each.startswith("boto3")]
    locked = folder / "locked.txt"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [uv, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
        )
        return done.stdout

    locked.write_text(
        run("export", "--frozen", "--only-group", "functions", "--no-header", "--no-annotate",
            "--no-hashes", "--prune", "boto3")
    )  # fmt: skip
    run("venv", "--quiet", "--python", interpreter, str(folder / "venv"))
    program = folder / "venv" / "bin" / "python"
    run("pip", "install", "--quiet", "--python", str(program), "--requirements", str(locked),
        boto3.replace(">=", "=="))  # fmt: skip
    return program


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders that are on the functions' path: code and core, as they are deployed."""
    folder = tmp_path_factory.mktemp("code")
    build = Build(ROOT, staging=folder, cache=folder)
    runtime = Runtime.lambda_arm64()
    functions = [build.function(each, runtime) for each in _HANDLERS]
    return [build.first_party_layer(runtime) / "python", *functions]


@pytest.fixture(scope="module")
def empty_database() -> Iterator[str]:
    """The address of a server that answers like DynamoDB with empty tables."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"Items": [], "Responses": {}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of the tests short."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("client", ["lean", "boto3"])
def test_the_functions_start_and_call_aws(
    client: str, python: Path, code: list[Path], empty_database: str, tmp_path: Path
) -> None:
    merged = tmp_path / "functions"
    merged.mkdir()
    for folder in code[1:]:
        [package] = (folder / "functions").iterdir()
        (merged / package.name).symlink_to(package)
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (code[0], tmp_path))),
        "AWS_ENDPOINT_URL": empty_database,
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
        "NEXTFIRE_AWS_CLIENT": client,
        "NEXTFIRE_POOLS": json.dumps({"default": {"queueUrl": "https://q", "maxTimeout": "PT1H"}}),
        "NEXTFIRE_WRITE_SHARDS": "2",
        "NEXTFIRE_READ_SHARDS": "2",
        "NEXTFIRE_SCRIPTS_BUCKET": "scripts",
        "NEXTFIRE_OUTPUTS_BUCKET": "outputs",
        **{f"NEXTFIRE_{table.upper()}_TABLE": table for table in _TABLES},
    }
    who = identity(TENANT)
    requests = [
        http_event("GET", path, authorizer=who) for path in ("/v1/health", "/v1/jobs", "/v1/jobs/a")
    ]
    events = [*(("api", each) for each in requests), ("projector", {"rebuild": {}})]

    done = subprocess.run(
        [python, "-W", "error::DeprecationWarning:nextfire", "-c", _READS],
        env=environment,
        input=json.dumps([_HANDLERS, events]),
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    answers = [
        found
        for line in done.stdout.splitlines()
        if {"statusCode", "undecodable"} & (found := json.loads(line)).keys()
        and "level" not in found
    ]
    states = [each.get("statusCode") for each in answers]
    assert states == [200, 200, 404, None], done.stdout[-3000:]
    assert answers[-1] == {"runs": 0, "undecodable": 0}


def test_the_version_is_that_of_the_runtime() -> None:
    assert Runtime.lambda_arm64().version == _LAMBDA
