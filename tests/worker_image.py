"""Assembles the worker's image in a folder, as Docker would from its Dockerfile. Needs no Docker.

Each stage is a folder. The base image is not fetched: an interpreter of this machine runs in its
place, and users are not created. An instruction that this module does not know is an error, so a
change of the Dockerfile cannot go unnoticed.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from nextfire_cli.local.cdk import inherited_environment

DOCKERFILE = Path("functions/worker/Dockerfile")
_SYNC = "uv sync"
_WITHOUT_EFFECT = ("groupadd", "pip install")
"""Commands that are not carried out: uv is the checkout's."""


@dataclass
class _Stage:
    """The file system of a stage, the variables of its processes, and its working folder."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    command: list[str] = field(default_factory=list)

    def at(self, path: str) -> Path:
        """Where *path* of the image is on this machine."""
        return self.root / str(PurePosixPath(self.folder, path)).lstrip("/")

    def mapped(self, text: str) -> str:
        """*text*, in which paths of the image, also several with colons, are those here."""
        parts = text.split(":")
        return ":".join(
            str(self.at(part)) if part.startswith("/") and self.at(part).exists() else part
            for part in parts
        )


@dataclass(frozen=True)
class Image:
    """The assembled image: its files, and how its process is started."""

    root: Path
    command: list[str]
    variables: dict[str, str]
    folder: Path

    def files(self) -> set[str]:
        """Paths of all files, except those of the installed packages."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        relative = (str(path.relative_to(self.root)) for path in found)
        return {path for path in relative if not path.startswith("opt/worker/")}


def assemble(folder: Path, checkout: Path, python: Path) -> Image:
    """Assemble the image of *checkout* in *folder*. *python* takes the place of the image's."""
    stages: dict[str, _Stage] = {}
    stage = _Stage(folder)
    for name, text in _instructions((checkout / DOCKERFILE).read_text()):
        if name == "FROM":
            title = text.partition(" AS ")[2] or "last"
            stage = stages[title] = _Stage(folder / title)
            stage.root.mkdir(parents=True)
        else:
            _carry_out(name, text, stage, stages, checkout, python)
    last = stages["last"]
    program, *arguments = last.command
    return Image(
        last.root,
        [last.mapped(program), *arguments],
        {key: last.mapped(value) for key, value in last.variables.items()},
        last.at("."),
    )


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def _carry_out(
    name: str, text: str, stage: _Stage, stages: dict[str, _Stage], checkout: Path, python: Path
) -> None:
    if name == "WORKDIR":
        stage.folder = text
        stage.at(".").mkdir(parents=True, exist_ok=True)
    elif name == "ENV":
        stage.variables |= dict(part.split("=", 1) for part in shlex.split(text))
    elif name == "COPY":
        _copy(text, stage, stages, checkout)
    elif name == "RUN":
        _run(text, stage, checkout, python)
    elif name == "ENTRYPOINT":
        stage.command = json.loads(text)
    elif name not in {"VOLUME", "USER", "STOPSIGNAL"}:
        raise ValueError(f"unknown instruction {name} {text}")


def _copy(text: str, stage: _Stage, stages: dict[str, _Stage], checkout: Path) -> None:
    *sources, target = text.split()
    if sources[0].startswith("--from="):
        [source] = sources[1:]
        found = stages[sources[0].removeprefix("--from=")].at(source)
        to = stage.at(target)
        to.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, to, symlinks=True)
        else:
            shutil.copy2(found, to)
        return
    context = [*_context(checkout)]
    for source in sources:
        for path in context:
            if path.is_relative_to(source):
                inside = path.relative_to(source)
                to = stage.at(target) / (path.name if inside == Path() else inside)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / path, to)


def _context(checkout: Path) -> Iterator[Path]:
    """The files that Docker would get, by the rules of the Dockerfile's ignore file."""
    ignored = (checkout / DOCKERFILE).with_name(f"{DOCKERFILE.name}.dockerignore").read_text()
    rules = [rule for rule in ignored.splitlines() if rule and not rule.startswith("#")]
    assert rules.pop(0) == "*"
    wanted = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    names = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    assert len(wanted) + len(names) == len(rules), rules
    for each in wanted:
        top = checkout / each
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            inside = path.relative_to(checkout)
            if path.is_file() and not any(fnmatch(p, n) for p in inside.parts for n in names):
                yield inside


def _run(text: str, stage: _Stage, checkout: Path, python: Path) -> None:
    if text.startswith(_WITHOUT_EFFECT):
        tool = stage.at("/usr/local/bin/uv")
        tool.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / ".nextfire/uv/bin/uv", tool)
        return
    if not text.startswith(_SYNC):
        raise ValueError(f"unknown command {text}")
    _, *arguments = shlex.split(text.replace(" --no-cache", ""))
    place = str(stage.at(stage.variables["UV_PROJECT_ENVIRONMENT"]))
    variables = {**stage.variables, "UV_PROJECT_ENVIRONMENT": place, "UV_PYTHON": str(python)}
    subprocess.run(
        [checkout / ".nextfire/uv/bin/uv", *arguments],
        cwd=stage.at("."),
        env={**inherited_environment(), **variables},
        check=True,
        capture_output=True,
    )
