"""Attempts to install packages that the pool's policy excludes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextfire.domain.packages import PackagePolicy
from tests.indexes import Index, sdist, sha256, wheel
from tests.security.packages.conftest import refused, run, runner, script


def test_a_dependency_that_is_a_url_or_a_path_is_refused(folder: Path, index: Index) -> None:
    of = runner(folder, index)
    for dependency in (
        f"demo-pkg @ {index.url}/x.whl",
        "demo-pkg @ https://127.0.0.1:9/demo_pkg-1.0-py3-none-any.whl",
        "demo-pkg @ git+https://127.0.0.1:9/repo",
        "demo-pkg @ file:///etc/passwd",
    ):
        refused(run(of, script(dependency)), "names a URL or a path")
    assert index.asked == []


@pytest.mark.parametrize(
    "line",
    [
        "-r /etc/passwd",
        "--index-url=http://127.0.0.1:9/",
        "--extra-index-url http://127.0.0.1:9/",
        "-e .",
        "./here",
        "demo-pkg --no-binary :all:",
    ],
)
def test_a_dependency_that_is_an_option_is_refused(folder: Path, index: Index, line: str) -> None:
    digest = sha256(wheel("demo-pkg"))
    good = f"demo-pkg==1.0 --hash=sha256:{digest}"

    refused(run(runner(folder, index), script(line)), "is not a requirement")
    for locked in ([good, line], [f"{good} {line}"], [f"{good}\\n{line}"]):
        end = run(runner(folder, index), script("demo-pkg", locked=locked))
        assert (end.exit_code, end.permanent) == (None, True)
    assert index.asked == []


@pytest.mark.parametrize("builds", [False, True])
def test_nothing_is_built_so_no_code_of_a_package_runs(
    folder: Path,
    index: Index,
    builds: bool,  # noqa: FBT001
) -> None:
    """The counterpart: where the pool allows builds, the same archive runs its code."""
    index.add("built", sdist("built", "raise SystemExit('its ' + 'code ' + 'ran')"))

    end = run(runner(folder, index, builds=builds), script("built"))

    refused(end, "Cannot install", permanent=False)
    assert ("its code ran" in str(end.error)) is builds


def test_a_transitive_package_that_is_not_allowed_is_refused(folder: Path, index: Index) -> None:
    """Dependency confusion: an allowed package requires one that anyone could upload."""
    index.add("friend", wheel("friend", requires=["acme-internal"]))
    index.add("acme-internal", wheel("acme-internal", "99.0", module="print('owned')\n"))
    body = "import acme_internal"

    open_pool = run(runner(folder, index), script("friend", body=body))
    end = run(runner(folder, index, allow=["Friend"]), script("friend", body=body))

    assert open_pool.stdout == "owned\n", "without the list it is installed"
    refused(end, "the pool does not allow the package acme-internal")


def test_a_package_that_is_not_allowed_is_refused(folder: Path, index: Index) -> None:
    of = runner(folder, index, allow=["friend"])
    digest = sha256(wheel("demo-pkg"))

    for source in (
        script("demo-pkg"),
        script("Demo.PKG>=1"),
        script("friend", locked=[f"demo-pkg==1.0 --hash=sha256:{digest}"]),
    ):
        refused(run(of, source), "the pool does not allow the package demo-pkg")
    assert index.asked == []


def test_a_package_with_another_hash_than_the_locked_is_not_installed(
    folder: Path, index: Index
) -> None:
    good = f"demo-pkg==1.0 --hash=sha256:{sha256(wheel('demo-pkg'))}"
    body = "import demo_pkg; print(demo_pkg.VALUE)"
    of = runner(folder, index, require_hashes=True)

    assert run(of, script("demo-pkg", locked=[good], body=body)).stdout == "42\n"
    index.add("demo-pkg", wheel("demo-pkg", module="print('owned')\n"))
    fresh = runner(folder, index, require_hashes=True)
    end = run(fresh, script("demo-pkg", locked=[good], body=body))

    refused(end, "Hash mismatch", permanent=False)


def test_a_lock_is_all_that_is_installed(folder: Path, index: Index) -> None:
    friend = wheel("friend", requires=["acme-internal"])
    index.add("friend", friend)
    index.add("acme-internal", wheel("acme-internal"))
    locked = [f"friend==1.0 --hash=sha256:{sha256(friend)}"]
    body = "import importlib.util as u; print(u.find_spec('acme_internal'))"

    end = run(runner(folder, index), script("friend", locked=locked, body=body))

    assert end.stdout == "None\n"
    assert not any("acme-internal" in path for path in index.asked)


def test_a_lock_has_a_hash_for_each_file_of_a_package(folder: Path, index: Index) -> None:
    """Some have 140 files."""
    digests = [f"{n:064x}" for n in range(300)] + [sha256(wheel("demo-pkg"))]
    locked = ["demo-pkg==1.0" + "".join(f" --hash=sha256:{digest}" for digest in digests)]

    end = run(runner(folder, index), script("demo-pkg", locked=locked, body="print('ran')"))

    assert (end.error, end.stdout) == (None, "ran\n")


def test_blanks_of_a_lock_take_no_time(folder: Path, index: Index) -> None:
    locked = ["demo-pkg==1.0" + " " * 300_000 + "."]

    end = run(runner(folder, index), script("demo-pkg", locked=locked))

    refused(end, "is not a requirement")


def test_a_pool_that_requires_hashes_refuses_a_script_without_a_lock(
    folder: Path, index: Index
) -> None:
    of = runner(folder, index, require_hashes=True)

    refused(run(of, script("demo-pkg")), "nextfire scripts lock")
    refused(run(of, script("demo-pkg", locked=[])), "does not hold the dependency")
    refused(run(of, script("demo-pkg", locked=["demo-pkg==1.0"])), "--hash=sha256:DIGEST")
    assert index.asked == []


@pytest.mark.parametrize("also", [{"builds": True}, {"urls": True}])
def test_hashes_exclude_what_has_none(also: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        PackagePolicy(require_hashes=True, **also)
