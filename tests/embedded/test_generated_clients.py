"""Clients that the generators of others make of the OpenAPI document: they have each operation, and
their round trips work. Skipped where the registries of packages cannot be reached.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from functions.api.openapi import description
from tests.embedded.conftest import Stack

SCRIPTS = Path(__file__).parent / "generated"
PYTHON = "openapi-python-client==0.29.1"
TYPESCRIPT = ("openapi-typescript@7.13.0", "openapi-fetch@0.14.1", "typescript@5.9.3")
_TSC = ("--module", "nodenext", "--target", "es2022", "--strict", "--skipLibCheck")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OpenAPI document as a file."""
    file = tmp_path_factory.mktemp("openapi") / "openapi.json"
    file.write_text(json.dumps(description()))
    return file


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(*command: str | Path, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{command[1]} cannot be installed: {done.stderr[-200:]}")


def operations() -> set[str]:
    methods: list[dict[str, Any]] = [*description()["paths"].values()]
    return {each["operationId"] for path in methods for each in path.values()}


def test_a_python_client_has_each_operation_and_works(
    stack: Stack, document: Path, tmp_path: Path
) -> None:
    uv, work = find_uv_bin(), tmp_path / "generated"
    tool = (uv, "tool", "run", "--python", sys.executable, "--from", PYTHON)
    install(*tool, "openapi-python-client", "--version", folder=tmp_path)
    options = ("--path", document, "--meta", "none", "--output-path", work)
    said = run(*tool, "openapi-python-client", "generate", *options, folder=tmp_path)

    generated = {file.stem.replace("_", "") for file in work.glob("api/*/*.py")} - {"init"}
    assert "WARNING" not in said
    assert generated == {each.lower() for each in operations()}

    shutil.copy(SCRIPTS / "round_trip.py", tmp_path)
    needs = [f"--with={name}" for name in ("httpx", "attrs", "python-dateutil")]
    alone = (uv, "run", "--no-project", "--isolated", "--python", sys.executable, *needs)
    trip = ("python", "round_trip.py", stack.info.endpoint, stack.info.api_key)
    printed = run(*alone, *trip, folder=tmp_path)
    assert printed == "201 412 generated-python ['generated-python'] PENDING True CANCELLED\n"


def test_typescript_types_have_each_operation_and_work(
    stack: Stack, document: Path, tmp_path: Path
) -> None:
    bin_ = Path(sys.executable).parent
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    quiet = ("--silent", "--no-audit", "--no-fund")
    install(bin_ / "npm", "install", *quiet, *TYPESCRIPT, folder=tmp_path)
    tools = tmp_path / "node_modules" / ".bin"
    node = bin_ / "node"
    # Fields with a default may be left out of requests.
    options = ("--default-non-nullable=false", "-o", "api.d.ts")
    run(node, tools / "openapi-typescript", document, *options, folder=tmp_path)

    text = (tmp_path / "api.d.ts").read_text().partition("export interface operations {")[2]
    assert {*re.findall(r"^    (\w+): \{$", text, re.MULTILINE)} == operations()

    shutil.copy(SCRIPTS / "round_trip.ts", tmp_path)
    run(node, tools / "tsc", *_TSC, "round_trip.ts", folder=tmp_path)
    trip = (node, "round_trip.js", stack.info.endpoint, stack.info.api_key)
    printed = run(*trip, folder=tmp_path)
    name = "generated-typescript"
    assert printed == f"201 412 {name} {name} PENDING true CANCELLED\n"
