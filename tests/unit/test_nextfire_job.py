"""The module `nextfire_job` outside of nextfire. Tests of the script runner cover it inside."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

import nextfire_job


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run outside of nextfire, in a dedicated folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEXTFIRE_CHANNEL", raising=False)
    monkeypatch.setattr(nextfire_job, "_payload", [])


def test_context_has_stand_ins() -> None:
    here = nextfire_job.context()

    assert (here.execution_id, here.attempt, here.job_id, here.tenant) == (
        "local",
        1,
        *2 * ["local"],
    )
    assert here.deadline is None
    assert abs(here.scheduled_at - datetime.now(UTC)) < timedelta(hours=1)  # noqa: TID251


def test_context_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "EXECUTION_ID": "report.20260505T100000000Z-ab",
        "SCHEDULED_AT": "2026-05-05T10:00:00Z",
        "ATTEMPT": "3",
        "DEADLINE": "2026-05-05T10:00:30.500Z",
        "JOB_ID": "report",
        "TENANT": "acme",
    }.items():
        monkeypatch.setenv(f"NEXTFIRE_{name}", value)

    assert nextfire_job.context() == nextfire_job.Context(
        execution_id="report.20260505T100000000Z-ab",
        scheduled_at=datetime(2026, 5, 5, 10, tzinfo=UTC),
        attempt=3,
        deadline=datetime(2026, 5, 5, 10, 0, 30, 500_000, tzinfo=UTC),
        job_id="report",
        tenant="acme",
    )


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": [1]}', {"a": [1]}), ("", {}), ("\n", {}), ("null", None), ("0", 0)]
)
def test_payload_is_read_once(monkeypatch: pytest.MonkeyPatch, text: str, value: object) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    assert [nextfire_job.payload(), nextfire_job.payload()] == [value, value]


def test_payload_of_a_terminal_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO('{"never": "read"}')
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)

    assert nextfire_job.payload() == {}


def test_checkpoint_is_kept_in_a_file() -> None:
    assert nextfire_job.checkpoint() is None
    nextfire_job.save_checkpoint({"done": 1})
    nextfire_job.save_checkpoint({"done": 2, "name": "Köln"})

    assert nextfire_job.checkpoint() == {"done": 2, "name": "Köln"}
    assert [path.name for path in Path().iterdir()] == [".nextfire-checkpoint.json"]


def test_an_interrupted_save_keeps_the_old_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    nextfire_job.save_checkpoint("first")
    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        nextfire_job.save_checkpoint("second")

    assert nextfire_job.checkpoint() == "first"
    assert all(path.name.startswith(nextfire_job.LOCAL_CHECKPOINT) for path in Path().iterdir())


def test_a_checkpoint_above_the_limit_is_rejected_outside_nextfire_too() -> None:
    most = "x" * (1024 * 1024 - 2)  # plus two quotes

    nextfire_job.save_checkpoint(most)
    for keep in (nextfire_job.save_checkpoint, nextfire_job.result):
        with pytest.raises(nextfire_job.NotKeptError, match="1048577 bytes"):
            keep(most + "x")
    assert nextfire_job.checkpoint() == most


def test_a_value_nested_too_deeply_is_rejected_outside_nextfire_too() -> None:
    value: list[object] = []
    for _ in range(199):
        value = [value]

    for keep in (nextfire_job.save_checkpoint, nextfire_job.result):
        keep(value)
        with pytest.raises(nextfire_job.NotKeptError, match="more than 200 levels"):
            keep({"a": (value,)})


def test_result_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    nextfire_job.result({"rows": 3, "city": "Köln"})

    assert capsys.readouterr() == ("", 'result: {"rows": 3, "city": "Köln"}\n')


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", object()])
def test_values_that_are_not_json_are_rejected(value: object) -> None:
    for keep in (nextfire_job.save_checkpoint, nextfire_job.result):
        with pytest.raises((TypeError, ValueError)):
            keep(value)


def test_a_closed_channel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTFIRE_CHANNEL", "9999")

    with pytest.raises(nextfire_job.NotKeptError, match="cannot be reached"):
        nextfire_job.result(1)


def test_an_answer_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    class Channel(socket.socket):
        pieces: ClassVar = [b'the rest of another}\n{"ok": tr', b"ue}", b"\n"]

        def recv(self, _size: int, _flags: int = 0) -> bytes:
            return self.pieces.pop(0)

    near, far = socket.socketpair()
    with far, Channel(fileno=near.detach()) as channel:
        far.send(b"ready to read")
        monkeypatch.setenv("NEXTFIRE_CHANNEL", "9999")
        monkeypatch.setattr(nextfire_job, "_channel", channel)

        nextfire_job.result(1)

    assert Channel.pieces == []


def test_calls_have_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may call within a call: it must not get the answer of the other one."""
    near, far = socket.socketpair()
    with near, far:
        monkeypatch.setenv("NEXTFIRE_CHANNEL", "9999")
        monkeypatch.setattr(nextfire_job, "_channel", near)
        far.send(b'{"ok": true}\n')
        nextfire_job.result(1)
        far.send(b'{"ok": true}\n')
        nextfire_job.result(2)

        first, second = (json.loads(line)["id"] for line in far.recv(65536).splitlines())

    assert first != second
    assert first.partition("-")[0] == second.partition("-")[0]


def test_its_own_example_runs() -> None:
    example = nextfire_job.__doc__ or ""
    code = [line[4:] for line in example.splitlines() if line.startswith("    ")]
    source = "def import_page(*_, **__): pass\n" + "\n".join(code)
    end = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONPATH": str(Path(nextfire_job.__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert end.stderr == 'result: {"pages": 100}\n'
    assert json.loads(Path(nextfire_job.LOCAL_CHECKPOINT).read_text()) == {"done": 100}
