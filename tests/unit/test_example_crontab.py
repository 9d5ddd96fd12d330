"""The examples for moving from cron: a crontab as a pipeline, and the script that runs commands."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nextfire.client.pipelines.document import read
from nextfire.domain.recurrence import check
from tests.unit.test_examples import EXAMPLES, NOW, run

CRONTAB = r"""
# nightly
MAILTO=ops@example.com
CRON_TZ=Europe/Berlin
STAGE="prod"
0 3 * * *   /opt/backup --all >> /tmp/log 2>&1
@daily	cd /opt/app && ./report.sh "a b"
CRON_TZ=UTC
*/15 * * * mon-fri /opt/backup --name $(date +\%F)
30 4 1 * * mail root%Hello%there
@reboot /opt/start
0 3 * *
"""


def from_crontab(text: str) -> dict[str, Any]:
    found: dict[str, Any] = runpy.run_path(str(EXAMPLES / "from_crontab.py"))["pipeline"](
        text.splitlines()
    )
    return found


def test_each_line_of_a_crontab_is_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    document = from_crontab(CRONTAB)

    [pipeline] = read(document)
    jobs = document["jobs"]
    assert pipeline.name == "crontab"
    assert [(each["jobId"], each["schedule"], each["timezone"]) for each in jobs] == [
        ("backup", "0 3 * * *", "Europe/Berlin"),
        ("cd", "@daily", "Europe/Berlin"),
        ("backup-2", "*/15 * * * mon-fri", "UTC"),
        ("mail", "30 4 1 * *", "UTC"),
    ]
    assert [each["payload"] for each in jobs] == [
        {"command": "/opt/backup --all >> /tmp/log 2>&1"},
        {"command": 'cd /opt/app && ./report.sh "a b"'},
        {"command": "/opt/backup --name $(date +%F)"},
        {"command": "mail root", "input": "Hello\nthere"},
    ]
    for definition in pipeline.jobs.values():
        assert check(definition.schedule_from(NOW)) is not None
        assert definition.target.env == {"STAGE": "prod"}
        assert (EXAMPLES / f"{definition.target.handler}.py").exists()
    assert capsys.readouterr().err.splitlines() == [
        "line 3: MAILTO is left out",
        "line 11 is left out: @reboot /opt/start",
        "line 12 is left out: 0 3 * *",
    ]


def test_no_two_lines_have_the_same_id() -> None:
    lines = "0 1 * * * backup-2\n0 2 * * * backup a\n0 3 * * * backup b\n0 4 * * * backup-2 c"

    ids = [each["jobId"] for each in from_crontab(lines)["jobs"]]
    assert ids == ["backup-2", "backup", "backup-3", "backup-2-2"]


def test_a_line_without_a_command_is_left_out() -> None:
    assert from_crontab("* * * * * %input")["jobs"] == []


def test_a_crontab_without_jobs_is_a_pipeline_without_jobs() -> None:
    assert json.dumps(from_crontab("# none\n")) == '{"pipeline": "crontab", "jobs": []}'


@pytest.mark.parametrize(
    ("payload", "code", "stdout"),
    [
        ({"command": "echo a; exit 3"}, 3, "a\n"),
        ({"command": "cat", "input": "Hello\nthere"}, 0, "Hello\nthere"),
        ({"command": "kill -9 $$"}, 137, ""),
        ({"command": "no-such-program-here"}, 127, ""),
    ],
)
def test_a_command_ends_as_its_run(payload: dict[str, str], code: int, stdout: str) -> None:
    end = run("command", payload)

    assert (end.exit_code, end.stdout) == (code, stdout)


def test_a_file_as_an_argument_is_refused_and_writes_no_pipeline_without_jobs(
    tmp_path: Path,
) -> None:
    command = [sys.executable, str(EXAMPLES / "from_crontab.py"), str(tmp_path / "crontab")]

    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "It reads standard input: crontab -l |" in done.stderr
