"""Nothing that a user or a script wrote controls the terminal or is taken for markup."""

import io
import json
import sys

import pytest

from nextfire_cli import render
from nextfire_cli.output import to_json
from nextfire_cli.yaml_text import read_yaml, write_yaml
from tests.unit.cli.rendered import JOB, RUN, shown


def test_values_are_not_markup() -> None:
    assert "[red]nightly" in shown(render.jobs([JOB]))
    assert "[red]nightly" in shown(render.job(JOB))
    assert "hello [bold]you[/]" in shown(render.execution(RUN))


EVIL = "a\x1b[2J\x07\0\r\n\t\x9b\u202e\ud800z"
SHOWN = r"a\x1b[2J\x07\x00\r\n\t\x9b\u202e\ud800z"


def test_control_characters_are_shown_and_not_sent_to_the_terminal() -> None:
    run = RUN | {"state": "DEAD", "reason": EVIL, "worker": EVIL, "dispatchReason": EVIL}
    attempts = [{"number": n, "reason": EVIL, "worker": EVIL} for n in (1, 2)]
    job = JOB | {"name": EVIL, "pauseReason": EVIL, "pausedAt": "x", "labels": {EVIL: EVIL}}
    coming = {"at": "x", "local": "x", "offset": "x", "note": EVIL}
    script = {"pool": EVIL, "handler": EVIL, "size": 1, "modifiedAt": "2026-05-24T10:00:00Z"}
    for view in (
        render.jobs([job]),
        render.job(job),
        render.job(JOB | {"state": EVIL, "target": {"pool": EVIL}, "schedule": [EVIL]}),
        render.executions([run]),
        render.executions([], job | {"state": "PAUSED", "nextFireAt": EVIL}),
        render.execution(run | {"attempts": attempts}),
        render.execution_line(run),
        render.upcoming([coming]),
        render.upcoming([coming | {"executionId": EVIL}]),
        render.scripts([script]),
    ):
        text = shown(view, width=1000)
        assert SHOWN in text
        assert not {*EVIL} & {*text} - {*"a[2Jz\n"}


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_harmless_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    document = {"name": EVIL, EVIL: "é\x7f"}

    text = to_json(document, indent)

    assert not {*EVIL, "\x7f"} & {*text} - {*"a[2Jz\n"}
    assert "é" in text
    assert json.loads(text) == document


def test_yaml_is_harmless_to_a_terminal() -> None:
    text = f"{EVIL}\u2028\u2066"
    document = {"name": text, text: "é\x7f\u202e", "long": f"{text} \u202e" * 40}

    written = write_yaml([document])

    assert not {*text, "\x7f"} & {*written} - {*"a[2Jz\n "}
    assert "é" in written
    assert read_yaml(written) == [document]


def test_what_a_script_printed_keeps_its_lines_and_tabs() -> None:
    text = shown(render.execution(RUN | {"stdout": "a\tb\n\x1b[2Jc\n", "stderr": "\x07d\n"}))

    assert "\na       b\n\\x1b[2Jc\n" in text
    assert "\n\\x07d\n" in text


def test_an_execution_id_in_a_reason_is_kept_whole() -> None:
    other = "job-" + "x" * 60 + ".20260524T100000000Z-0123456789abcdef"
    run = RUN | {"state": "SKIPPED", "reason": f"overlap policy SKIP: {other} has not ended"}

    assert other in shown(render.executions([run]), width=200)


def test_lines_of_a_log_do_nothing_to_a_terminal() -> None:
    line = {"attempt": 1, "stream": "stderr", "text": "a\tb\x1b[2J\r[red]"}

    assert render.log_line(line, timestamps=False).plain == "a\tb\\x1b[2J\\r[red]"
    assert render.log_line(line, timestamps=True).plain.startswith("-  ")


def test_a_narrow_terminal_loses_no_column() -> None:
    named = JOB | {"jobId": "nightly-report-of-the-finance-team", "name": "Report of the team"}
    for wide in (False, True):
        narrow = shown(render.jobs([named], wide=wide), width=40)
        header = narrow.splitlines()[0].split()
        assert header[:6] == ["JOB", "NAME", "STATE", "SCHEDULE", "TARGET", "NEXT"]
        assert str(named["jobId"]) in narrow


@pytest.mark.parametrize(
    ("payload", "text"), [(0, "0"), (False, "false"), ("", '""'), ([], "[]"), (None, "null")]
)
def test_a_payload_is_shown_unless_it_is_the_default(payload: object, text: str) -> None:
    lines = shown(render.job(JOB | {"payload": payload})).splitlines()

    assert [line.split()[1:] for line in lines if line.startswith("Payload")] == [[text]]
    assert "Payload" not in shown(render.job(JOB | {"payload": {}}))
