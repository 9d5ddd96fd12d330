"""Archives are unpacked inside their folder and run."""

from __future__ import annotations

import errno
import io
import struct
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.scripts import program_files, unpack
from nextfire.adapters.scripts.sandbox import ProgramEnd, Sandbox
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptExit
from tests.supervisors import Watch
from tests.unit.packages.conftest import run

MAIN = {"__main__.py": "print(1)"}
NOT_BZ2 = b"PK\1\2\x14\3\x14\0\0\0\x0c"
"""The beginning of the description of a file that is packed in another way."""


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
        (archive(**MAIN, a="", **{"a/b": ""}), "Not a directory"),
        (archive(**MAIN, **{"n" * 300: ""}), "File name too long"),
        (archive(**MAIN).replace(b"PK\1\2\x14\3\x14\0\0\0\x08", NOT_BZ2), "Invalid data stream"),
    ],
    ids=[
        *("empty", "no archive", "no main", "main too deep", "cut", "too many files"),
        *("a file and a folder", "a long name", "not what was packed"),
    ],
)
def test_archive_that_cannot_be_run_is_refused_for_good(
    plain: ProcessScriptRunner, data: bytes, problem: str
) -> None:
    end = run(plain, data, name="report.zip")

    assert (end.exit_code, end.permanent) == (None, True)
    assert end.error is not None
    assert "The archive report.zip cannot be run: " in end.error
    assert problem in end.error


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left"), 1, "[Errno 28] No space left"),
        (OSError("Invalid data stream"), unpack.REFUSED, "Invalid data stream"),
        (struct.error(), unpack.REFUSED, "error"),
        (MemoryError(), 1, "it needs more memory than a script may have"),
    ],
)
def test_only_what_is_wrong_with_an_archive_is_refused_for_good(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: Exception,
    code: int,
    said: str,
) -> None:
    def fails(*_: object) -> None:
        raise raised

    monkeypatch.setattr(unpack, "unpack", fails)
    with pytest.raises(SystemExit) as ended:
        unpack.main(["a.zip", "folder", "1", "1"])

    assert (ended.value.code, capsys.readouterr().err) == (code, said)


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
