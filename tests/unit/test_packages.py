"""Archives and inline dependencies of scripts, with real processes and a file-based index."""

from __future__ import annotations

import io
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.packages import installer as packages
from nextfire.adapters.packages.inline_metadata import (
    InlineMetadata,
    parse_inline_metadata,
    python_satisfies,
)
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.scripts import program_files, unpack
from nextfire.adapters.scripts.removal import remove
from nextfire.adapters.scripts.sandbox import ProgramEnd, Sandbox
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.indexes import Index, serving, wheel
from tests.supervisors import Watch


def inline(*lines: str) -> str:
    return "\n".join(["# /// script", *(f"# {line}" for line in lines), "# ///", ""])


# Inline metadata


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(1)", InlineMetadata()),
        ("# /// script\n# dependencies = ['a']\nprint(1)", InlineMetadata()),  # no end marker
        ("# /// other\n# dependencies = ['a']\n# ///\n", InlineMetadata()),
        ("# /// script\n# ///\n", InlineMetadata()),
        (inline("dependencies = ['a>=1', 'b']"), InlineMetadata(("a>=1", "b"))),
        (
            inline("requires-python = '>=3.11'", "#", "dependencies = []"),
            InlineMetadata((), ">=3.11"),
        ),
        ("#!python\n\n" + inline("dependencies = ['a']") + "print(1)\n", InlineMetadata(("a",))),
        ("# /// script\n#\n# dependencies = [\n#   'a',\n# ]\n# ///\n", InlineMetadata(("a",))),
        (
            inline("dependencies = ['a']", "[tool.uv]", "exclude-newer = '2026'"),
            InlineMetadata(("a",)),
        ),
    ],
    ids=range(9),
)
def test_inline_metadata(source: str, said: InlineMetadata) -> None:
    assert parse_inline_metadata(source.encode()) == said
    assert parse_inline_metadata(source.replace("\n", "\r\n").encode()) == said


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (inline() + "\n" + inline(), "several blocks"),
        (inline("dependencies = ["), "is not valid TOML"),
        (inline("dependencies = " + "[" * 20_000), "is not valid TOML"),
        (inline("dependencies = 'a'"), "not a list of strings"),
        (inline("dependencies = [1]"), "not a list of strings"),
        (inline("requires-python = 3"), "not a string"),
    ],
    ids=range(6),
)
def test_malformed_metadata_is_refused(source: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_inline_metadata(source.encode())


@pytest.mark.parametrize(
    ("required", "suited"),
    [
        ("", True),
        (">=3.11", True),
        (">=3.11.5", False),
        (">3.11", True),
        (">=3.11,<3.14", True),
        ("<3.11", False),
        ("<=3.11.2", True),
        ("==3.11.*", True),
        ("==3.12.*", False),
        ("==3.11.2", True),
        ("!=3.11.2", False),
        ("!=3.12.*", True),
        ("~=3.11", True),
        ("~=3.10", True),
        ("~=3.11.0", True),
        ("~=3.12.0", False),
        ("~=2.7", False),
        (">= 3.8 , < 4", True),
    ],
)
def test_required_pythons(required: str, suited: bool) -> None:  # noqa: FBT001
    assert python_satisfies((3, 11, 2), required) is suited


@pytest.mark.parametrize("required", ["3.11", ">=three", ">=3.11;", "=>3.11"])
def test_malformed_requirement_of_a_python_is_refused(required: str) -> None:
    with pytest.raises(ValueError, match="invalid requires-python"):
        python_satisfies((3, 11, 2), required)


# Archives


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="test-packages-"))
    path.chmod(0o755)
    (path / "work").mkdir(mode=0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def plain(folder: Path) -> ProcessScriptRunner:
    """A runner that does not install packages."""
    return ProcessScriptRunner(temp_root=folder / "work")


def run(
    runner: ProcessScriptRunner,
    source: str | bytes,
    *,
    name: str = "script.py",
    tenant: str = "acme",
    watch: Watch | None = None,
    timeout: float = 20,
) -> ScriptExit:
    data = source.encode() if isinstance(source, str) else source
    call = ScriptCall(name, data, '{"n": 1}', timedelta(seconds=timeout), tenant)
    return runner.run(call, watch or Watch())


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return data.getvalue()


def test_archive_is_run_with_its_packages(plain: ProcessScriptRunner) -> None:
    main = """
import sys, nextfire_job
from helpers import greet
from pathlib import Path
print(greet(nextfire_job.payload()), Path(__file__).with_name("data.txt").read_text())
nextfire_job.result(1)
"""
    files = {
        "__main__.py": main,
        "helpers/__init__.py": "def greet(n): return f'hello {n}'",
        "data.txt": "data",
    }

    assert run(plain, archive(**files), name="report.zip") == ScriptExit(
        0, "hello {'n': 1} data\n", "", result=b"1"
    )


def test_archive_paths_that_escape_are_unpacked_inside(plain: ProcessScriptRunner) -> None:
    main = "import os; print(sorted(os.listdir(os.path.dirname(__file__))), os.path.exists('out'))"
    end = run(plain, archive(**{"__main__.py": main, "../out": "", "/out2": ""}), name="a.zip")

    assert end.stdout == "['__main__.py', '__pycache__', 'out', 'out2'] False\n"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a zip file"),
        (b"print(1)", "not a zip file"),
        (archive(main="1"), "no __main__.py at the top level. Create it inside"),
        (archive(**{"sub/__main__.py": "1"}), "no __main__.py at the top level"),
        (archive(**{"__main__.py": "x" * 999})[:-9], "not a zip file"),
        (archive(**{f"{n}": "" for n in range(20_001)}), "the maximum is 20000 files"),
    ],
    ids=["empty", "no archive", "no main", "main too deep", "cut", "too many files"],
)
def test_archive_that_cannot_be_run_is_refused_for_good(
    plain: ProcessScriptRunner, data: bytes, problem: str
) -> None:
    end = run(plain, data, name="report.zip")

    assert (end.exit_code, end.permanent) == (None, True)
    assert end.error is not None
    assert "The archive report.zip cannot be run: " in end.error
    assert problem in end.error


def test_archive_that_unpacks_too_large_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "a.zip"
    packed.write_bytes(archive(**{"__main__.py": "x" * 1001}))

    with pytest.raises(ValueError, match="the maximum is 9 files of 1000 bytes"):
        unpack.unpack(str(packed), str(tmp_path), 1000, 9)


def test_unpacking_counts_as_the_scripts_time(
    plain: ProcessScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[timedelta] = []
    really = Sandbox.run

    def spy(self: Sandbox, *arguments: Any, **options: Any) -> ProgramEnd:
        given.append(options["timeout"])
        return really(self, *arguments, **options)

    monkeypatch.setattr(Sandbox, "run", spy)
    end = run(plain, archive(**{"__main__.py": "print(1)"}), name="a.zip", timeout=50)

    assert end.stdout == "1\n"
    assert given[0] == timedelta(seconds=50)
    assert given[1] < timedelta(seconds=50)


def test_script_whose_time_is_up_when_it_is_unpacked_timed_out(
    plain: ProcessScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain._files, "_unpack", "import time; time.sleep(60)")  # noqa: SLF001
    end = run(plain, archive(**{"__main__.py": ""}), name="a.zip", timeout=0.2)

    assert end == ScriptExit(None, "", "", timed_out=True)


def test_archive_that_takes_long_to_unpack_is_refused(
    plain: ProcessScriptRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain._files, "_unpack", "import time; time.sleep(60)")  # noqa: SLF001
    monkeypatch.setattr(program_files, "_UNPACK_WITHIN", timedelta(seconds=0.2))
    end = run(plain, archive(**{"__main__.py": ""}), name="a.zip")

    assert (end.timed_out, end.permanent) == (False, False)
    assert end.error is not None
    assert "unpacking took longer than" in end.error


def test_script_is_not_started_when_its_end_is_asked_for_while_it_is_unpacked(
    plain: ProcessScriptRunner,
) -> None:
    # Unpacking a small archive takes less time than the first question to the supervisor.
    end = run(
        plain,
        archive(**{"__main__.py": "print(1, flush=True); import time; time.sleep(9)"}),
        name="a.zip",
        watch=Watch(lambda: Directive.HAND_BACK),
    )

    assert end == ScriptExit(None, "", "", stopped=Directive.HAND_BACK)


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
    "requirement", ["--index-url=http://127.0.0.1:9/", "./here", "no such", "a\\nb"]
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
