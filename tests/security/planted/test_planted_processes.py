"""No process or folder is harmed by `up` and `down` in a planted folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire_cli.local.processes import Processes, started
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.state import LocalStackError
from tests.security.planted.conftest import SECRET, SLEEP, call, plant

_NO_TIME = timedelta(0)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user that has nothing to do with a stack."""
    folder = tmp_path / "home" / "project" / "of" / "mine"
    folder.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP], cwd=folder, start_new_session=True, stdin=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.wait()


def planted_processes(state: Path, *records: dict[str, Any]) -> None:
    (state / "processes.json").write_text(json.dumps(records))
    (state / "processes.json").chmod(0o600)


def is_up(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_down_ends_no_process_that_a_planted_file_names(
    clone: Path, victim: subprocess.Popen[bytes]
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    planted_processes(
        state, {"name": "ministack", "pid": victim.pid, "started": started(victim.pid)}
    )

    assert call("down", "--yes").exit_code == 0

    assert is_up(victim)


def test_down_ends_no_group_whose_leader_is_gone(clone: Path, tmp_path: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    script = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);"
        "print(child.pid, flush=True)"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.wait()
    planted_processes(state, {"name": "worker", "pid": leader.pid, "started": "1"})

    assert call("down", "--yes").exit_code == 0
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline and started(child):
        time.sleep(0.02)

    assert started(child)
    os.kill(child, 9)
    leader.stdout.close()


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_ids_that_mean_many_processes_are_never_taken(
    clone: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    sent: list[tuple[int, int]] = []
    # Does not call them for real: a broken guard would end all processes of the machine.
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    monkeypatch.setattr(os, "killpg", lambda *args: sent.append(args))
    planted_processes(state, {"name": "worker", "pid": pid, "started": started(1) or "1"})

    assert call("down", "--yes").exit_code == 0

    assert sent == []


def test_down_ends_nothing_below_a_folder_that_a_link_names(
    clone: Path, home: Path, victim: subprocess.Popen[bytes]
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "tmp").symlink_to(home / "project")

    assert call("down", "--yes").exit_code == 1

    assert is_up(victim)
    assert (home / "project").is_dir()


def test_down_deletes_nothing_where_the_folder_is_a_link(clone: Path, home: Path) -> None:
    for name in ("tmp", "logs", "aws", "ministack"):
        (home / name).mkdir()
        (home / name / "dear.txt").touch()
    (clone / ".nextfire").symlink_to(home)

    assert call("down", "--yes").exit_code == 1

    assert len([*home.glob("*/dear.txt")]) == 4


def test_up_and_down_leave_the_folder_of_another_user_alone(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "logs").mkdir()
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)

    refused = call("down", "--yes")
    with pytest.raises(LocalStackError, match="another user"):
        LocalStack(clone).start(print)

    assert (refused.exit_code, (state / "logs").is_dir()) == (1, True)


def test_up_writes_through_no_link(clone: Path, home: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    dear = home / ".ssh" / "id_rsa"
    (state / "lock").symlink_to(dear)

    with pytest.raises(LocalStackError, match="link"):
        LocalStack(clone).start(print)

    assert dear.read_text() == SECRET


def test_what_a_killed_up_left_is_still_ended(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    record = tmp_path / "processes.json"
    left = Processes(record, folder=folder).spawn(
        "worker",
        [sys.executable, "-c", SLEEP],
        environment={},
        cwd=folder,
        log=tmp_path / "log",
    )
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    later = Processes(record, folder=folder)

    later.end(later.recorded(), grace=_NO_TIME)

    assert left.wait(20) != 0
    assert not record.exists()
