from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

import pytest

from infra.app import ROOT
from infra.build import Build, Runtime, WrongWheelError, check_wheels

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

    packages = build.third_party_layer(Runtime.host()) / "python"

    for name in ("pydantic/main", "aws_lambda_powertools/logging/logger", "croniter/croniter"):
        bytecode = Path(cache_from_source(str(packages / f"{name}.py"))).read_bytes()
        assert bytecode[:4] == MAGIC_NUMBER
        assert int.from_bytes(bytecode[4:8], "little") == UNCHECKED_HASH


def test_layer_is_built_where_there_is_no_python_of_its_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infra.build.find_uv_bin", lambda: "false")

    assert Build._interpreter("3.99") is None  # noqa: SLF001
    assert "uv python install 3.99" in caplog.text


def test_first_party_layer_is_the_core(tmp_path: Path) -> None:
    layer = Build(ROOT, staging=tmp_path, cache=tmp_path).first_party_layer()

    core = layer / "python" / "nextfire"
    assert (core / "py.typed").is_file()
    assert {path.name for path in (ROOT / "layers" / "nextfire").iterdir() if path.is_dir()} - {
        path.name for path in core.iterdir()
    } <= {"client", "testing", "__pycache__"}, "except for the parts for its callers and for tests"
    assert not (core / "client").exists()
    assert not (core / "testing").exists()


def test_function_asset_keeps_the_import_path(tmp_path: Path) -> None:
    asset = Build(ROOT, staging=tmp_path, cache=tmp_path).function("api")

    assert [path.name for path in (asset / "functions").iterdir()] == ["api"]
