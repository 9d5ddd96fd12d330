"""A planted file, link or folder selects nothing, and is not read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_file import StackFile
from tests.security.planted.conftest import SECRET, Recorder, calls, plant

# The key file


def outside(state: Path, home: Path) -> str:
    assert state.is_dir()
    return str(home / ".ssh" / "id_rsa")


def above(state: Path, home: Path) -> str:
    assert home.is_dir()
    return f"{state}/../../.ssh/id_rsa"


def linked(state: Path, home: Path) -> str:
    (state / "api-key").unlink()
    (state / "api-key").symlink_to(home / ".ssh" / "id_rsa")
    return str(state / "api-key")


def linked_folder(state: Path, home: Path) -> str:
    (state / "keys").symlink_to(home / ".ssh")
    return str(state / "keys" / "id_rsa")


def hard_link(state: Path, home: Path) -> str:
    (state / "api-key").unlink()
    (state / "api-key").hardlink_to(home / ".ssh" / "id_rsa")
    return str(state / "api-key")


def users_key(state: Path, home: Path) -> str:
    assert state.is_dir()
    return str(home / ".config" / "nextfire" / "keys" / "evil.example")


def a_folder(state: Path, home: Path) -> str:
    assert home.is_dir()
    return str(state)


def a_pipe(state: Path, home: Path) -> str:
    assert home.is_dir()
    os.mkfifo(state / "pipe", 0o600)
    return str(state / "pipe")


def open_to_others(state: Path, home: Path) -> str:
    assert home.is_dir()
    (state / "api-key").chmod(0o640)
    return str(state / "api-key")


KEY_FILES: list[Callable[[Path, Path], str]] = [
    outside, above, linked, linked_folder, hard_link, users_key, a_folder, a_pipe, open_to_others,
]  # fmt: skip


@calls
@pytest.mark.parametrize("place", KEY_FILES)
def test_only_the_stacks_own_key_file_is_read(
    clone: Path, home: Path, recorder: Recorder, calls: Callable[..., str],
    place: Callable[[Path, Path], str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NEXTFIRE_API_KEY")
    monkeypatch.delenv("NEXTFIRE_TOKEN")
    state = plant(clone, recorder.url)
    plant(clone, recorder.url, key_file=place(state, home))
    if place is open_to_others:
        (state / "api-key").chmod(0o640)
    if place is hard_link:
        (state / "api-key").write_text(SECRET)

    refused = calls()

    assert recorder.came == []
    assert refused
    assert SECRET not in refused


# Ownership of the files


@calls
@pytest.mark.parametrize(("name", "mode"), [("stack.json", 0o644), (".", 0o777), (".", 0o770)])
def test_files_that_others_could_have_written_select_nothing(
    clone: Path, recorder: Recorder, calls: Callable[..., str], name: str, mode: int
) -> None:
    state = plant(clone, recorder.url)
    (state / name).chmod(mode)

    refused = calls()

    assert recorder.came == []
    assert "nextfire up" in refused  # the remedy; also for a stack started by an older version


@calls
def test_files_of_another_user_select_nothing(
    clone: Path, recorder: Recorder, calls: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, recorder.url)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)

    refused = calls()

    assert recorder.came == []
    assert "another user" in refused


@calls
def test_a_folder_that_is_a_link_selects_nothing(
    clone: Path, home: Path, recorder: Recorder, calls: Callable[..., str]
) -> None:
    plant(clone, recorder.url).rename(home / "state")
    (clone / ".nextfire").symlink_to(home / "state")

    refused = calls()

    assert recorder.came == []
    assert "link" in refused


@calls
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"a"', "null", '{"endpoint": 1}', "\xff", "[" * 9**5]
)
def test_an_invalid_stack_file_is_reported(
    clone: Path, calls: Callable[..., str], text: str
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "stack.json").write_text(text, encoding="latin-1")

    assert "stack.json" in calls()


def test_up_closes_what_an_older_version_left_open(clone: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    stack = LocalStack(clone)
    info = stack.info()
    assert info is not None
    for name, mode in {"stack.json": 0o664, "api-key": 0o644, ".": 0o775}.items():
        (state / name).chmod(mode)

    stack._take_lock()  # noqa: SLF001 — the part of `up` that handles the folder
    StackFile(state).write(info)
    stack.stop()

    assert stat.S_IMODE(state.stat().st_mode) == 0o755
    stack._take_lock()  # noqa: SLF001
    StackFile(state).write(info)
    assert stat.S_IMODE((state / "stack.json").stat().st_mode) == 0o600
    stack.stop()
