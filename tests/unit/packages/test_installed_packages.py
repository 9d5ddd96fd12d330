"""Packages of a script are installed, kept for its tenant, and removed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from nextfire.adapters.packages import installer as packages
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.scripts.removal import remove
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptExit
from tests.indexes import Index, serving, wheel
from tests.supervisors import Watch
from tests.unit.packages.conftest import inline, run

# Packages


NAMED = inline("dependencies = ['demo-pkg']") + "import demo_pkg\nprint(demo_pkg.VALUE)\n"


@pytest.fixture
def index() -> Iterator[Index]:
    """A package index with one wheel and one source-only package."""
    with serving() as index:
        index.add("demo-pkg", wheel("demo-pkg"))
        index.add("built", ("built-1.0.tar.gz", b""))
        yield index


@pytest.fixture
def installing(folder: Path, index: Index) -> ProcessScriptRunner:
    return ProcessScriptRunner(
        packages="inline", package_index=PackageIndex(index.url), temp_root=folder / "work"
    )


def test_packages_are_installed_once_for_a_tenant(
    installing: ProcessScriptRunner, index: Index
) -> None:
    assert run(installing, NAMED) == ScriptExit(0, "42\n", "")
    index.status = 404

    assert run(installing, NAMED) == ScriptExit(0, "42\n", "")
    other = run(installing, NAMED, tenant="other")

    assert other.error is not None
    assert "Cannot install" in other.error
    assert not other.permanent


def test_packages_are_installed_again_after_their_folder_was_deleted(
    installing: ProcessScriptRunner, folder: Path
) -> None:
    assert run(installing, NAMED) == ScriptExit(0, "42\n", "")
    for kept in (folder / "work").glob("nextfire-sandbox-packages-*"):
        shutil.rmtree(kept)

    assert run(installing, NAMED) == ScriptExit(0, "42\n", "")


def test_a_file_of_a_package_is_kept_whole_however_many_pieces_it_is_read_in(
    installing: ProcessScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_PIECE", 3)

    assert run(installing, NAMED) == ScriptExit(0, "42\n", "")


def test_temporary_names_of_package_sets_are_unique() -> None:
    kept = Path("/kept/0123abcd")
    names = {packages._aside(kept) for _ in range(2)}  # noqa: SLF001 — a race cannot be provoked

    assert len(names) == 2
    assert all(name.parent == kept.parent and "." in name.name for name in names)


def test_cached_packages_are_private_to_their_tenant_and_read_only(
    installing: ProcessScriptRunner,
) -> None:
    if not installing._sandboxes.separate:  # noqa: SLF001
        pytest.skip("only root has users to give")
    tell = "print(demo_pkg.__file__)\n"
    place = run(installing, NAMED + tell).stdout.splitlines()[1]
    attack = f"""
import os
for mode in ("r", "w"):
    try:
        print(open({place!r}, mode).read())
    except OSError as error:
        print(type(error).__name__)
try:
    os.rename(os.path.dirname({place!r}), "mine")
except OSError as error:
    print(type(error).__name__)
"""
    own, neighbours = run(installing, NAMED + attack), run(installing, attack, tenant="other")

    # The tenant that owns the package can read it. For other tenants it does not exist, where the
    # host allows namespaces, or is not readable.
    assert own.stdout.splitlines()[1] == "VALUE = 42"
    assert {*own.stdout.splitlines()[3:]} <= {"PermissionError", "OSError"}
    assert len(own.stdout.splitlines()) == 5
    assert len(neighbours.stdout.splitlines()) == 3
    assert {*neighbours.stdout.splitlines()} <= {"PermissionError", "FileNotFoundError"}


def test_nothing_of_the_index_is_left_for_the_script(installing: ProcessScriptRunner) -> None:
    tell = """
import os
print(os.listdir("tmp"), [name for name in os.environ if name.startswith("UV_")])
"""
    assert run(installing, NAMED + tell).stdout == "42\n[] []\n"


def test_only_wheels_are_installed(installing: ProcessScriptRunner) -> None:
    end = run(installing, inline("dependencies = ['built']") + "print('ran')")

    assert end.error is not None
    assert "no usable wheels" in end.error


@pytest.mark.parametrize(
    "requirement",
    [
        *("--index-url=http://127.0.0.1:9/", "./here", "no such", "a\\nb"),
        f'a; {"(" * 1900}python_version > "3"{")" * 1900}',
    ],
    ids=range(5),
)
def test_invalid_requirement_is_rejected(installing: ProcessScriptRunner, requirement: str) -> None:
    end = run(installing, inline(f"dependencies = ['{requirement}']") + "print('ran')")

    assert (end.exit_code, end.stdout, end.permanent) == (None, "", True)
    assert end.error is not None
    assert "is not a requirement" in end.error


def test_installation_ends_when_the_supervisor_says(
    installing: ProcessScriptRunner, index: Index
) -> None:
    cancelled = threading.Event()
    index.before = lambda _: cancelled.wait(60)

    end = run(installing, NAMED, watch=Watch(lambda: Directive.CANCEL))
    cancelled.set()

    assert (end.stopped, end.exit_code, end.error) == (Directive.CANCEL, None, None)


@pytest.mark.parametrize("copied", [False, True])
def test_script_is_not_started_when_its_end_is_asked_for_while_packages_are_kept(
    installing: ProcessScriptRunner,
    folder: Path,
    copied: bool,  # noqa: FBT001
) -> None:
    def sets(*, whole: bool) -> set[Path]:
        found = (folder / "work").glob("nextfire-sandbox-packages-*/*/*")
        return {path for path in found if ("." not in path.name) is whole}

    before = sets(whole=True)

    def ask() -> Directive:
        new = sets(whole=True) - before if copied else sets(whole=False)
        return Directive.CANCEL if new else Directive.CONTINUE

    end = run(installing, NAMED, watch=Watch(ask))

    assert end == ScriptExit(None, "", "", stopped=Directive.CANCEL)
    assert len(sets(whole=True) - before) == copied
    assert sets(whole=False) == set()


def test_sets_are_removed_while_others_go_on(
    installing: ProcessScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = installing._files._packages  # noqa: SLF001
    assert kept is not None
    removed: list[tuple[Path, bool]] = []

    def spy(path: Path) -> None:
        removed.append((path, kept._lock.locked()))  # noqa: SLF001
        remove(path)

    monkeypatch.setattr(packages, "remove", spy)
    monkeypatch.setattr(packages, "_MAX_SETS", 0)

    assert run(installing, NAMED).stdout == "42\n"
    (path, locked) = removed[-1]
    assert (path.is_relative_to(kept._folder), locked) == (True, False)  # noqa: SLF001
    assert list(path.parent.iterdir()) == []
    assert run(installing, NAMED).stdout == "42\n"


@pytest.mark.parametrize(("free", "total", "kept"), [(3, 20, 1), (4, 20, 2), (3, 8, 2), (1, 8, 1)])
def test_fewer_sets_are_kept_if_the_disk_gets_full(
    installing: ProcessScriptRunner,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    total: int,
    kept: int,
) -> None:
    cache = installing._files._packages  # noqa: SLF001
    assert cache is not None
    assert run(installing, NAMED).stdout == "42\n"
    (first,) = cache._folder.glob("*/*")  # noqa: SLF001
    room = SimpleNamespace(total=total * 1024**3, free=free * 1024**3)
    monkeypatch.setattr("nextfire.adapters.packages.copy_meter.shutil.disk_usage", lambda _: room)

    assert run(installing, NAMED.replace("demo-pkg'", "demo-pkg>=0'")).stdout == "42\n"

    assert len([*cache._folder.glob("*/*")]) == kept  # noqa: SLF001
    assert first.exists() is (kept == 2), "the least recently used one is removed first"


def test_pool_without_packages_names_the_alternative(plain: ProcessScriptRunner) -> None:
    end = run(plain, NAMED)

    assert (end.exit_code, end.permanent) == (None, True)
    assert end.error is not None
    assert "Use a worker pool" in end.error


def test_metadata_without_dependencies_runs_anywhere(plain: ProcessScriptRunner) -> None:
    source = inline("requires-python = '>=3.11'", "dependencies = []") + "print(1)"

    assert run(plain, source) == ScriptExit(0, "1\n", "")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("requires-python = '>=3.99'", "requires Python >=3.99; this pool runs 3."),
        ("requires-python = 'new'", "invalid requires-python"),
        ("dependencies = 1", "not a list of strings"),
    ],
)
def test_unsatisfiable_metadata_fails_permanently(
    plain: ProcessScriptRunner, line: str, problem: str
) -> None:
    end = run(plain, inline(line) + "print(1)")

    assert (end.exit_code, end.permanent) == (None, True)
    assert end.error is not None
    assert problem in end.error


def test_packages_without_uv_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextfire.adapters.packages.installer.find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match="pip install uv"):
        ProcessScriptRunner(packages="inline")
