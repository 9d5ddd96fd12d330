"""Stages the functions' code and the two layers, without Docker.

The third-party layer holds the runtime dependencies of uv.lock, as wheels for the target's Python
and platform, with verified hashes. boto3 and packages that only boto3 needs are left out: the
Lambda runtime has them. The layer is cached by the hash of its inputs, so each lock file is built
once.
"""

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from packaging.tags import Tag, compatible_tags, cpython_tags, sys_tags
from packaging.tags import parse_tag as parse_tags
from uv import find_uv_bin

_log = logging.getLogger(__name__)

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")
_KEPT_SECONDS = 24 * 60 * 60
_NOT_DEPLOYED = {"client", "testing"}
"""The packages of the core for API clients and for tests of jobs."""


class WrongWheelError(Exception):
    """A package of the layer does not run on the target; build the layer for that target."""

    def __init__(self, distribution: str, tags: Iterable[str], platform_name: str) -> None:
        super().__init__(
            f"{distribution} is built for {', '.join(tags)}, which does not run on "
            f"{platform_name}: remove the layer's folder and build it for that platform"
        )


@dataclass(frozen=True)
class Runtime:
    """A Python version on a platform, with which the wheels of a layer must be compatible."""

    name: str
    version: str
    uv_options: tuple[str, ...]
    tags: frozenset[Tag]

    @classmethod
    def lambda_arm64(cls) -> Self:
        """Python 3.13 on Lambda's Amazon Linux 2023 (glibc 2.34), arm64."""
        version = (3, 13)
        platforms = [
            *(f"manylinux_2_{minor}_aarch64" for minor in range(34, 16, -1)),
            "manylinux2014_aarch64",
            "linux_aarch64",
        ]
        return cls(
            name="python3.13-aarch64",
            version="3.13",
            uv_options=("--python-version", "3.13", "--python-platform", "aarch64-manylinux_2_28"),
            tags=frozenset(
                [
                    *cpython_tags(version, platforms=platforms),
                    *compatible_tags(version, interpreter="cp313", platforms=platforms),
                ]
            ),
        )

    @classmethod
    def host(cls) -> Self:
        """The Python and the platform of this process."""
        major, minor = sys.version_info[:2]
        return cls(
            name=f"python{major}.{minor}-{sys.platform}-{platform.machine()}",
            version=f"{major}.{minor}",
            uv_options=("--python", sys.executable),
            tags=frozenset(sys_tags()),
        )


def check_wheels(layer: Path, runtime: Runtime) -> None:
    """Check that every distribution under *layer* runs on *runtime*.

    Raises:
        WrongWheelError: A distribution does not run on it, or has no WHEEL file.
    """
    for dist_info in sorted(layer.glob("*.dist-info")):
        wheel = dist_info / "WHEEL"
        lines = wheel.read_text(encoding="utf-8").splitlines() if wheel.exists() else []
        tags = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
        if not any(runtime.tags & parse_tags(tag) for tag in tags):
            raise WrongWheelError(dist_info.stem, tags or ["an unknown platform"], runtime.name)


class Build:
    """Stages code under *staging*, which the caller removes after synthesis.

    *cache* holds third-party layers between builds; concurrent builds may share it.
    """

    def __init__(self, root: Path, *, staging: Path, cache: Path) -> None:
        self._root = root
        self._staging = staging
        self._cache = cache

    def function(self, folder: str, runtime: Runtime) -> Path:
        """The code of `functions/<folder>`, importable as `functions.<folder>`."""
        asset = self._staging / f"function-{folder}"
        if not asset.exists():
            package = asset / "functions" / folder
            shutil.copytree(self._root / "functions" / folder, package, ignore=_IGNORED)
        return self._compiled(asset, runtime, at="/var/task")

    def first_party_layer(self, runtime: Runtime) -> Path:
        """The shared core, importable as `nextfire`, and `nextfire_job`, which scripts import."""
        asset = self._staging / "layer-nextfire"
        if not asset.exists():
            self._stage_core(asset / "python")
        return self._compiled(asset, runtime, at="/opt")

    def _compiled(self, asset: Path, runtime: Runtime, *, at: str) -> Path:
        """*asset* with bytecode, from the cache or newly compiled. *at*: where Lambda puts it."""
        compiler = _interpreter(runtime.version)
        if compiler is None:
            return asset
        digest = hashlib.sha256(runtime.name.encode())
        for file in sorted(each for each in asset.rglob("*") if each.is_file()):
            digest.update(f"\n{file.relative_to(asset)}\n".encode() + file.read_bytes())
        kept = self._cache / f"{asset.name}-{runtime.name}-{digest.hexdigest()[:16]}"
        if not kept.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            _forget(self._cache.glob(f"{asset.name}-{runtime.name}-*"))
            with tempfile.TemporaryDirectory(dir=self._cache, prefix="building-") as scratch:
                built = Path(shutil.copytree(asset, Path(scratch) / asset.name))
                _compile(compiler, built, at=at)
                _keep(built, kept)
        os.utime(kept)  # used now
        return kept

    def worker_image(self) -> Path:
        """The build context of the worker's image: the Dockerfile and the files that it copies."""
        context = self._staging / "image-worker"
        if not context.exists():
            worker = Path("functions") / "worker"
            self._stage_core(context / "layers")
            shutil.copytree(self._root / worker, context / worker, ignore=_IGNORED)
            for file in ("pyproject.toml", "uv.lock", "requirements-uv.txt"):
                shutil.copy2(self._root / file, context)
        return context

    def _stage_core(self, folder: Path) -> None:
        layers = self._root / "layers"
        core = layers / "nextfire"

        def ignored(at: str, names: list[str]) -> set[str]:
            callers = _NOT_DEPLOYED if Path(at) == core else set()
            return {*_IGNORED(at, names), *callers}

        shutil.copytree(core, folder / "nextfire", ignore=ignored)
        for module in layers.glob("*.py"):
            shutil.copy2(module, folder)

    def third_party_layer(self, runtime: Runtime, *, signatures: bool = False) -> Path:
        """The locked runtime dependencies for *runtime*, from the cache or newly built.

        *signatures*: whether to include the library that verifies signatures of scripts.

        Raises:
            WrongWheelError: A package does not run on *runtime*.
            subprocess.CalledProcessError: uv could not resolve or fetch a package. Its error is on
                stderr.
        """
        requirements = self._uv(
            "export", "--frozen", "--only-group", "functions", "--no-header", "--no-annotate",
            "--prune", "boto3", *(["--only-group", "signatures"] if signatures else []),
        )  # fmt: skip
        compiler = _interpreter(runtime.version)
        compiled = "bytecode for /opt" if compiler else "no bytecode"
        digest = hashlib.sha256(
            "\n".join([runtime.name, *runtime.uv_options, compiled, requirements]).encode()
        ).hexdigest()[:16]
        layer = self._cache / f"layer-{runtime.name}-{digest}"
        if not layer.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._cache, prefix="building-") as scratch:
                built = self._build_layer(Path(scratch), requirements, runtime, compiler)
                _keep(built, layer)
        check_wheels(layer / "python", runtime)
        return layer

    def _build_layer(
        self, scratch: Path, requirements: str, runtime: Runtime, compiler: str | None
    ) -> Path:
        listed = scratch / "requirements.txt"
        listed.write_text(requirements, encoding="utf-8")
        layer = scratch / "layer"
        packages = layer / "python"
        self._uv(
            "pip", "install", "--target", str(packages), "--requirements", str(listed),
            "--only-binary", ":all:", "--no-deps", "--require-hashes", "--link-mode", "copy",
            *runtime.uv_options,
        )  # fmt: skip
        for needless in [*packages.rglob("__pycache__"), packages / "bin", packages / ".lock"]:
            if needless.is_dir():
                shutil.rmtree(needless)
            else:
                needless.unlink(missing_ok=True)
        if compiler is not None:
            _compile(compiler, layer, at="/opt")
        return layer

    def _uv(self, *arguments: str) -> str:
        result = subprocess.run(
            [find_uv_bin(), "--quiet", *arguments],
            cwd=self._root,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return result.stdout


@cache
def _interpreter(version: str) -> str | None:
    """The path of a Python of *version*, to compile bytecode for that version. None if there is
    none; then functions compile their imports at each start.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = subprocess.run(
        [find_uv_bin(), "python", "find", version], check=False, capture_output=True, text=True
    )
    if found.returncode == 0:
        return found.stdout.strip()
    _log.warning(
        "Python %s is not installed, so the functions' code contains no bytecode and functions "
        "start slower. To fix this, run: %s python install %s",
        version,
        find_uv_bin(),
        version,
    )
    return None


def _compile(compiler: str, folder: Path, *, at: str) -> None:
    """Add bytecode to *folder*, which a function finds *at* a place in which it cannot write."""
    # Unchecked, because modification times of asset files change. -E: wherever the caller's
    # environment puts bytecode. The paths in it are the function's: builds elsewhere are the same.
    subprocess.run(
        [
            *(compiler, "-E", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(folder), "-p", at, str(folder)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _keep(built: Path, kept: Path) -> None:
    """Move *built* to *kept*, unless a concurrent build was faster."""
    try:
        built.rename(kept)
    except OSError:
        if not kept.exists():
            raise


def _forget(folders: Iterable[Path]) -> None:
    """Remove what no build has used for a day."""
    for folder in folders:
        with suppress(FileNotFoundError):  # a concurrent build removed it
            if time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
