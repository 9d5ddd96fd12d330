"""The modules that functions import before their first request."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from functions.api.areas import AREAS

ROOT = Path(__file__).parents[2]
BUILDS = {
    "watcher": "handler._watcher_of(0).turn(SystemClock().now())",
    "api": "services.services()",
    "authorizer": "handler.services()",
    "auditor": "handler._auditor()",
    "executor": "handler._executor()",
}
PROGRAM = """
import importlib, sys
from contextlib import suppress
handler = importlib.import_module("functions.{function}.handler")
services = sys.modules.get("functions.api.services")
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.errors import UnavailableError
with suppress(UnavailableError):  # nothing listens: the request was attempted
    {build}
print(sorted(name for name in sys.modules if name.split(".")[0] in ("boto3", "botocore")))
"""
QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/q.fifo"
SETTINGS = {
    **{
        f"{name}_TABLE": name
        for name in ("JOBS", "DUE", "RUNS", "CONTROL", "KEYS", "REQUESTS", "ENDPOINTS")
    },
    "SCRIPTS_BUCKET": "scripts",
    "OUTPUTS_BUCKET": "outputs",
    "EVENT_BUS": "bus",
    "POOLS": json.dumps({"default": {"queueUrl": QUEUE, "maxTimeout": "PT1M"}}),
    "WRITE_SHARDS": "1",
    "READ_SHARDS": "1",
    "METADATA": "open",
    "POOL": "default",
    "QUEUE_URL": QUEUE,
    "DLQ_URL": QUEUE,
    "JOB_ROLE_ARN": "arn:aws:iam::1:r",
}


def printed(program: str, environment: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """The lines that *program* prints in a new process, as of a function."""
    usual = {
        "PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "AWS_REGION": "eu-central-1",
    }
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**usual, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("function", BUILDS)
def test_a_function_starts_without_boto3(function: str) -> None:
    """Powertools imports the package `botocore`, whose own module takes two milliseconds; the
    modules inside are the slow ones.
    """
    environment = {
        "POWERTOOLS_SERVICE_NAME": function,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "testing",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        **{f"NEXTFIRE_{name}": value for name, value in SETTINGS.items()},
    }
    program = PROGRAM.format(function=function, build=BUILDS[function])

    assert printed(program, environment)[-1] == "['botocore']"


@pytest.mark.parametrize(("function", "imported"), [("watcher", True), ("api", False)])
def test_only_the_watcher_starts_with_the_calendar(function: str, *, imported: bool) -> None:
    program = f"import functions.{function}.handler, sys; print('croniter' in sys.modules)"

    assert printed(program)[-1] == str(imported)


def test_the_api_starts_without_what_only_its_description_needs() -> None:
    """Schemas of responses and the OpenAPI document are for one route."""
    needless = {
        "functions.api.response_schemas",
        "functions.api.openapi",
        "nextfire.responses.reading",
    }
    program = f"import functions.api.handler, sys; print(sorted({needless} & set(sys.modules)))"

    assert printed(program)[-1] == "[]"


def test_the_api_imports_the_routes_of_a_path_with_its_first_request() -> None:
    program = """
import sys
from functions.api.handler import include_for
def included():
    loaded = {name.rpartition(".")[2] for name in sys.modules if ".api.routes." in name}
    return " ".join(sorted(loaded))
print(included())
include_for("/api/v1/keys/k")
print(included())
include_for("/v1/key")
print(included())
"""

    assert printed(program) == ["jobs", "jobs keys", " ".join(sorted(AREAS))]


@pytest.mark.parametrize("name", AREAS)
def test_the_pattern_of_an_area_has_the_paths_of_its_routes(name: str) -> None:
    module = importlib.import_module(f"functions.api.routes.{name}")
    paths = [re.sub("<.*?>", "x:1", key[0]) for key in module.routes._routes]  # noqa: SLF001

    assert paths
    missing = [path for path in paths if not AREAS[name].fullmatch(path)]
    assert missing == [], f"the pattern of {name} in functions/api/areas.py must match these paths"


def test_every_module_of_routes_is_an_area() -> None:
    modules = {path.stem for path in (ROOT / "functions/api/routes").glob("[a-z]*.py")}

    assert modules == set(AREAS)


@pytest.mark.parametrize("function", ["api", "authorizer"])
def test_garbage_is_collected_after_the_imports(function: str) -> None:
    program = (
        f"import gc, functions.{function}.handler; print(gc.isenabled(), gc.get_freeze_count() > 0)"
    )

    assert printed(program)[-1] == "True True"
