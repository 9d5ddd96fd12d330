import marshal
import os
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

import pytest

from infra.app import ROOT
from infra.build import Build, Runtime, WrongWheelError, _interpreter, check_wheels

UNCHECKED_HASH = 1
"""PEP 552: Python does not compare the bytecode with its source."""


def _distribution(layer: Path, name: str, *tags: str) -> None:
    dist_info = layer / f"{name}-1.0.dist-info"
    dist_info.mkdir(parents=True)
    lines = ["Wheel-Version: 1.0", *(f"Tag: {tag}" for tag in tags)]
    (dist_info / "WHEEL").write_text("\n".join(lines))


@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-any",
        "py2.py3-none-any",
        "cp313-cp313-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp313-cp313-manylinux_2_28_aarch64",
        "cp39-abi3-manylinux2014_aarch64",
    ],
)
def test_wheel_that_lambda_can_run_is_accepted(tmp_path: Path, tag: str) -> None:
    _distribution(tmp_path, "fine", tag)

    check_wheels(tmp_path, Runtime.lambda_arm64())


@pytest.mark.parametrize(
    "tag",
    [
        "cp313-cp313-manylinux_2_17_x86_64",
        "cp312-cp312-manylinux_2_17_aarch64",
        "cp313-cp313-manylinux_2_39_aarch64",
        "cp313-cp313-musllinux_1_2_aarch64",
        "cp313-cp313-macosx_11_0_arm64",
    ],
)
def test_wheel_that_lambda_cannot_run_is_refused_by_name(tmp_path: Path, tag: str) -> None:
    _distribution(tmp_path, "fine", "py3-none-any")
    _distribution(tmp_path, "broken", tag)

    with pytest.raises(WrongWheelError, match=r"broken-1\.0"):
        check_wheels(tmp_path, Runtime.lambda_arm64())


def test_distribution_without_tags_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd-1.0.dist-info").mkdir()

    with pytest.raises(WrongWheelError, match="unknown platform"):
        check_wheels(tmp_path, Runtime.lambda_arm64())


@pytest.mark.parametrize("runtime", [Runtime.host(), Runtime.lambda_arm64()], ids=lambda r: r.name)
def test_third_party_layer_has_what_the_functions_import_and_not_boto3(
    tmp_path: Path, runtime: Runtime
) -> None:
    build = Build(ROOT, staging=tmp_path, cache=ROOT / ".nextfire" / "build")

    packages = build.third_party_layer(runtime) / "python"

    imported = ("aws_lambda_powertools", "croniter", "pydantic", "pydantic_core", "tzdata")
    assert all((packages / name).is_dir() for name in imported)
    assert not any((packages / name).exists() for name in ("boto3", "botocore", "s3transfer"))
    compiled = [*packages.rglob("__pycache__/*.pyc")]
    assert {path.name.split(".")[1] for path in compiled} <= {
        f"cpython-{runtime.version.replace('.', '')}"
    }


def test_packages_have_bytecode_that_is_valid_whatever_their_files_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function cannot write bytecode, and would compile all of its imports at each start."""
    monkeypatch.setattr("sys.pycache_prefix", None)  # where a function looks
    build = Build(ROOT, staging=tmp_path, cache=ROOT / ".nextfire" / "build")
    runtime = Runtime.host()

    packages = build.third_party_layer(runtime) / "python"
    core = build.first_party_layer(runtime) / "python"
    function = build.function("watcher", runtime)

    for file, at in (
        (packages / "pydantic" / "main.py", "/opt/python/pydantic/main.py"),
        (packages / "croniter" / "croniter.py", "/opt/python/croniter/croniter.py"),
        (core / "nextfire" / "domain" / "job.py", "/opt/python/nextfire/domain/job.py"),
        (core / "nextfire_job.py", "/opt/python/nextfire_job.py"),
        (
            function / "functions" / "watcher" / "handler.py",
            "/var/task/functions/watcher/handler.py",
        ),
    ):
        bytecode = Path(cache_from_source(str(file))).read_bytes()
        assert bytecode[:4] == MAGIC_NUMBER
        assert int.from_bytes(bytecode[4:8], "little") == UNCHECKED_HASH
        assert marshal.loads(bytecode[16:]).co_filename == at  # noqa: S302


def test_changed_code_gets_other_bytecode(tmp_path: Path) -> None:
    """The bytecode is not checked, so a folder of the cache has one version of the code."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    handler = root / "functions" / "watcher" / "handler.py"
    handler.parent.mkdir(parents=True)
    found: list[Path] = []
    for number in (1, 2, 1):
        handler.write_text(f"x = {number}")
        build = Build(root, staging=tmp_path / f"staging-{len(found)}", cache=cache)
        found.append(build.function("watcher", Runtime.host()))

    assert found[0] == found[2] != found[1]
    assert len([*cache.iterdir()]) == 2


def test_code_that_no_build_used_for_a_day_is_forgotten(tmp_path: Path) -> None:
    runtime, cache = Runtime.host(), tmp_path / "cache"
    old, recent = (cache / f"function-watcher-{runtime.name}-{each}" for each in ("old", "recent"))
    for folder in (old, recent):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))

    Build(ROOT, staging=tmp_path, cache=cache).function("watcher", runtime)

    assert (old.exists(), recent.exists()) == (False, True)


def test_layer_is_built_where_there_is_no_python_of_its_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infra.build.find_uv_bin", lambda: "false")

    assert _interpreter("3.99") is None
    assert "false python install 3.99" in caplog.text


def test_first_party_layer_is_the_core(tmp_path: Path) -> None:
    layer = Build(ROOT, staging=tmp_path, cache=tmp_path).first_party_layer(Runtime.host())

    core = layer / "python" / "nextfire"
    assert (core / "py.typed").is_file()
    assert {path.name for path in (ROOT / "layers" / "nextfire").iterdir() if path.is_dir()} - {
        path.name for path in core.iterdir()
    } <= {"client", "testing", "__pycache__"}, "except for the parts for its callers and for tests"
    assert not (core / "client").exists()
    assert not (core / "testing").exists()


def test_function_asset_keeps_the_import_path(tmp_path: Path) -> None:
    asset = Build(ROOT, staging=tmp_path, cache=tmp_path).function("api", Runtime.host())

    assert [path.name for path in (asset / "functions").iterdir()] == ["api"]
