"""The image of workers: its Dockerfile, and what is in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.app import ROOT
from infra.build import Build

DOCKERFILE = ROOT / "functions" / "worker" / "Dockerfile"


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = str(Path(sys.prefix) / "bin" / "hadolint")
    found = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stdout + found.stderr


def instructions(name: str) -> list[str]:
    """The arguments of each *name* instruction in the last stage of the Dockerfile."""
    last = DOCKERFILE.read_text().replace("\\\n", " ").rpartition("\nFROM ")[2]
    return re.findall(rf"^{name} +(.*)$", last, re.MULTILINE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the image with the project's own files, from the staged context."""
    context = Build(
        ROOT, staging=tmp_path_factory.mktemp("staging"), cache=Path("unused")
    ).worker_image()
    root = tmp_path_factory.mktemp("image")
    for copy in instructions("COPY"):
        if not copy.startswith("--from"):
            source, target = copy.split()
            shutil.copytree(context / source, root / target.lstrip("/"))
    return root


def run_in(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the image's own path, with the packages of this environment only."""
    [path] = re.findall(r"PYTHONPATH=(\S+)", " ".join(instructions("ENV")))
    own = os.pathsep.join(str(image / part.lstrip("/")) for part in path.split(":"))
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": os.defpath, "PYTHONPATH": own, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=image,
        capture_output=True,
        text=True,
        check=False,
    )


def test_entry_point_starts_and_says_what_it_misses(image: Path) -> None:
    [entry] = instructions("ENTRYPOINT")
    program = re.findall(r'"([^"]+)"', entry)

    ended = run_in(image, *program[1:])

    assert program[0] == "/opt/worker/bin/python"
    assert ended.returncode == 1
    assert "Invalid environment variables (NEXTFIRE_…) of a worker" in ended.stderr
    assert "queue_url" in ended.stderr


def test_everything_that_is_ours_comes_from_the_image(image: Path) -> None:
    names = ("nextfire", "nextfire_job", "functions.worker.worker")
    found = run_in(
        image,
        "-c",
        "import importlib, sys\n"
        f"for name in {names}: print(importlib.import_module(name).__file__ or '')",
    )

    assert found.returncode == 0, found.stderr
    files = [Path(line) for line in found.stdout.split()]
    assert len(files) == len(names)
    assert all(image in file.parents for file in files)


def test_image_is_not_root_and_ends_by_the_workers_signal() -> None:
    assert instructions("USER") == ["1000:1000"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert instructions("VOLUME") == ['["/tmp"]']


def test_context_of_the_image_is_what_the_dockerfile_copies(tmp_path: Path) -> None:
    context = Build(ROOT, staging=tmp_path, cache=tmp_path).worker_image()
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text()

    copied = {
        source
        for copy in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in copy.split()
    }
    assert copied == set(re.findall(r"^!(.*)$", ignored, re.MULTILINE))
    assert all((context / source).exists() for source in copied)
    assert (context / "functions" / "worker" / "Dockerfile").is_file()
