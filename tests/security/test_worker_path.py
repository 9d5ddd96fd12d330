"""A worker never loads code or configuration from places that scripts can write to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nextfire_cli.local import stack
from tests.security.hosts import ROOT

_DOCKERFILE = (ROOT / "functions/worker/Dockerfile").read_text().replace("\\\n", " ")
_LAST_STAGE = _DOCKERFILE.rpartition("\nFROM ")[2]
_PLANTED = "import pathlib; pathlib.Path('planted-code-ran').touch()\n"
_MODULES = ("boto3", "nextfire", "functions", "pydantic", "sitecustomize", "usercustomize")


def instruction(name: str) -> str:
    (found,) = re.findall(rf"^{name} +(.*)$", _LAST_STAGE, re.MULTILINE)
    return str(found)


def plant(folder: Path) -> None:
    for module in _MODULES:
        (folder / f"{module}.py").write_text(_PLANTED)


def test_the_images_worker_imports_nothing_from_its_working_folder(tmp_path: Path) -> None:
    plant(tmp_path)
    _, *arguments = json.loads(instruction("ENTRYPOINT"))

    subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}", "HOME": "/nonexistent"},
        capture_output=True,
        check=False,
    )

    assert not (tmp_path / "planted-code-ran").exists()


def test_the_image_has_nothing_writable_that_python_or_the_sdk_reads() -> None:
    (writable,) = json.loads(instruction("VOLUME"))
    variables = dict(re.findall(r"(\w+)=(\S+)", instruction("ENV")))

    for folder in (instruction("WORKDIR"), variables["HOME"], *variables["PYTHONPATH"].split(":")):
        assert not Path(folder).is_relative_to(writable)
    assert variables["HOME"] == "/nonexistent"
    assert "--home-dir /nonexistent" in _LAST_STAGE


def test_the_local_stacks_processes_import_nothing_from_where_scripts_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: dict[str, tuple[list[str], dict[str, str], Path]] = {}

    class Processes:
        def __init__(self, *_: object, **__: object) -> None: ...

        def spawn(
            self,
            name: str,
            command: list[str],
            *,
            environment: dict[str, str],
            cwd: Path,
            log: Path,  # noqa: ARG002
        ) -> None:
            commands[name] = command, environment, cwd

    monkeypatch.setattr(stack, "Processes", Processes)
    state = tmp_path / "state"
    state.mkdir()
    (state / "port").write_text("1")
    local = stack.LocalStack(ROOT, state=state)
    local._start_worker("default", 1, {"WorkerEnvironmentDefault": "{}"})  # noqa: SLF001
    command, environment, folder = commands["worker-default-1"]
    folder.mkdir(parents=True)
    plant(folder)

    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)

    assert not (folder / "planted-code-ran").exists()
    assert not Path(environment["HOME"]).exists()
    assert Path(environment["AWS_CONFIG_FILE"]).parent != folder
