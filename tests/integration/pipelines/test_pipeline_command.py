"""`nextfire apply` and `nextfire export` against the API's own handler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nextfire import Client
from nextfire_cli import confirmation
from nextfire_cli.main import app
from tests.builders import key_text
from tests.integration.pipelines.conftest import MANUAL, Dying, applied, job, pipelines, stored


class Command:
    def __init__(self, handler: Dying, folder: Path) -> None:
        self._handler = handler
        self.folder = folder

    def __call__(self, *args: str, text: str | None = None) -> Result:
        environment = {
            "NEXTFIRE_ENDPOINT": "https://api.example.com",
            "NEXTFIRE_API_KEY": key_text("000000000000"),
        }
        return CliRunner().invoke(app, [*args], input=text, env=environment, obj=self._handler)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name


@pytest.fixture
def call(handler: Dying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(handler, tmp_path)


PIPELINE = """\
pipeline: etl
jobs:
  - jobId: extract
    type: CRON
    schedule: 0 3 * * *
    target: {handler: extract}
    payload: {region: eu, day: 2026-05-24}
  - jobId: load
    type: AFTER
    after: [{job: extract}]
    target: {handler: load}
"""


def test_the_command_shows_a_plan_and_applies_it(call: Command, client: Client) -> None:
    call.write("p.yaml", PIPELINE)

    planned = call("apply", "-f", "p.yaml", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout == (
        "Pipeline etl\n"
        "  + extract  create\n"
        "      type: CRON\n"
        "      schedule: 0 3 * * *\n"
        '      target: {"handler": "extract"}\n'
        '      payload: {"region": "eu", "day": "2026-05-24"}\n'
        "  + load  create\n"
        "      type: AFTER\n"
        '      target: {"handler": "load"}\n'
        '      after: [{"job": "extract"}]\n'
        "2 to create.\n"
    )
    assert stored(client) == {}

    done = call("apply", "-f", "p.yaml", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("2 created.\n")
    *warnings, first, second = done.stderr.splitlines()
    assert (first, second) == ("extract: create", "load: create")
    scripts = [line.partition("was not found")[0] for line in warnings]
    assert scripts == ["Warning: The script 'extract' ", "Warning: The script 'load' "]

    again = call("apply", "-f", "p.yaml")
    assert again.exit_code == 0, again.output
    assert "No changes: 2 unchanged." in again.stdout

    changed = PIPELINE.replace("region: eu", "region: us").partition("  - jobId: load")[0]
    shown = call("apply", "-f", call.write("q.yaml", changed), "--dry-run").stdout
    assert shown == (
        "Pipeline etl\n"
        "  ~ extract  update\n"
        "      payload.region: eu -> us\n"
        "  - load  remove\n"
        "1 to update, 1 to remove.\n"
    )


def test_the_command_asks(call: Command, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call.write("p.yaml", PIPELINE)

    refused = call("apply", "-f", "p.yaml")
    assert refused.exit_code == 1
    assert "standard input is not a terminal" in refused.stderr
    assert "add --yes" in refused.stderr
    as_json = call("apply", "-f", "p.yaml", "--json")
    assert as_json.exit_code == 1
    assert "add --yes" in json.loads(as_json.stderr)["detail"]

    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)
    no = call("apply", "-f", "p.yaml", text="n\n")
    assert (no.exit_code, "Nothing was changed." in no.stderr) == (1, True)
    assert stored(client) == {}
    yes = call("apply", "-f", "p.yaml", text="y\n")
    assert yes.exit_code == 0, yes.output
    assert {*stored(client)} == {"extract", "load"}


def test_an_export_is_applied_by_the_command(call: Command, client: Client) -> None:
    client.put_job("alone", MANUAL)
    assert call("apply", "-f", "-", "--yes", text=PIPELINE).exit_code == 0
    before = stored(client)

    for options in ([], ["--json"], ["-o", "json"], ["--pipeline", "etl"]):
        exported = call("export", *options)
        assert exported.exit_code == 0, exported.output
        applied_again = call("apply", "-f", "-", "--json", text=exported.stdout)
        assert applied_again.exit_code == 0, applied_again.output
        found = json.loads(applied_again.stdout)
        assert found["applied"] is False
        assert {each["action"] for each in found["changes"]} == {"unchanged"}

    assert stored(client) == before
    assert call("export", "--pipeline", "etl").stdout == (
        "pipeline: etl\n"
        "jobs:\n"
        "  - jobId: extract\n"
        "    type: CRON\n"
        "    schedule: 0 3 * * *\n"
        "    target:\n"
        "      handler: extract\n"
        "    payload:\n"
        "      region: eu\n"
        "      day: '2026-05-24'\n"
        "  - jobId: load\n"
        "    type: AFTER\n"
        "    target:\n"
        "      handler: load\n"
        "    after:\n"
        "      - job: extract\n"
    )
    diagram = call("export", "--pipeline", "etl", "-o", "mermaid")
    assert "n0 --> n1" in diagram.stdout
    assert '"extract" -> "load"' in call("export", "-o", "dot").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: [", "is neither JSON nor YAML"),
        ("jobs: []\njobs: []\n", "twice"),
        ("- 1\n", "a pipeline has a list of jobs"),
        ("jobs: [{jobId: a, type: MANUAL, target: {handler: a}, x: 1}]", "a.x: unknown field"),
    ],
)
def test_a_file_that_cannot_be_read(call: Command, text: str, message: str) -> None:
    result = call("apply", "-f", call.write("p.yaml", text), "--yes")

    assert result.exit_code in {1, 2}
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert "p.yaml" in result.stderr


def test_a_schedule_of_a_file_is_corrected_in_the_file(call: Command) -> None:
    wrong = "jobs: [{jobId: a, type: CRON, schedule: '*/90 * * * *', target: {handler: a}}]"

    result = call("apply", "-f", call.write("p.yaml", wrong), "--yes")

    assert "For other periods use the type INTERVAL." in " ".join(result.stderr.split())


def test_several_files_and_documents_are_one_plan(call: Command, client: Client) -> None:
    one, other = PIPELINE.split("  - jobId: load")
    call.write("1.yaml", one)
    call.write("2.yaml", f"pipeline: etl\njobs:\n  - jobId: load{other}---\njobs: []\n")

    result = call("apply", "-f", "2.yaml", "-f", "1.yaml", "--yes")

    assert result.exit_code == 0, result.output
    assert result.stderr.endswith("\nextract: create\nload: create\n")
    assert {*stored(client)} == {"extract", "load"}


@pytest.mark.parametrize("form", ["yaml", "json", "mermaid"])
def test_an_export_has_the_form_that_is_asked_for(call: Command, client: Client, form: str) -> None:
    client.put_job("a", {"type": "MANUAL", "target": {"handler": "h"}})

    text = call("export", "-o", form).stdout

    assert text.startswith("{") == (form == "json"), text
    assert (form == "mermaid") == ("flowchart" in text or "graph" in text), text


def test_an_export_by_label_warns(call: Command, client: Client) -> None:
    applied(client, pipelines(a=job(labels={"team": "x"}), b=job()))

    result = call("export", "--label", "team=x")

    assert "The pipeline etl has jobs without these labels." in result.stderr
    assert "jobId: b" in result.stdout


def test_what_is_wrong_in_several_files_is_reported_at_once(call: Command) -> None:
    call.write("a.yaml", "pipeline: a!\njobs: []\n---\njobs: [{jobId: x}]\n")
    call.write("b.yaml", "pipeline: b\njobs: [{type: MANUAL}]\n")

    alone = call("apply", "-f", "a.yaml", "--dry-run")
    both = call("apply", "-f", "a.yaml", "-f", "b.yaml", "--dry-run")

    assert "a.yaml is invalid." in alone.stderr
    assert "  pipeline: not the name of a pipeline (got 'a!')." in alone.stderr
    assert "  x.type: " in alone.stderr
    assert "a.yaml, b.yaml are invalid." in both.stderr
    assert "  a.yaml: pipeline: not the name of a pipeline (got 'a!')." in both.stderr
    assert "  a.yaml: x.type: " in both.stderr
    assert "  b.yaml: jobs[0].jobId: not the id of a job." in both.stderr


def test_an_invalid_value_has_the_exit_code_of_one_that_the_api_rejects(call: Command) -> None:
    wrong = PIPELINE.replace("0 3 * * *", "0 25 * * *")
    assert wrong != PIPELINE
    result = call("apply", "-f", call.write("wrong.yaml", wrong), "--yes", "--json")

    assert result.exit_code == 2
    problem = json.loads(result.stderr)
    assert (problem["status"], problem["title"]) == (
        422,
        "The pipelines cannot be applied. Nothing was changed.",
    )
    assert "extract.schedule: '25' in the hour field" in problem["detail"]


def test_jobs_that_do_not_change_are_counted_and_listed_on_request(call: Command) -> None:
    call("apply", "-f", call.write("p.yaml", PIPELINE), "--yes")
    call.write("q.yaml", PIPELINE.replace("0 3 * * *", "0 4 * * *"))

    shown = call("apply", "-f", "q.yaml", "--dry-run").stdout
    assert "  ~ extract  update\n" in shown
    assert "load" not in shown
    assert shown.endswith("1 to update, 1 unchanged.\n")
    assert (
        "    load  unchanged\n" in call("apply", "-f", "q.yaml", "--dry-run", "-o", "wide").stdout
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n---\n", "[]", "null"])
def test_a_file_that_declares_nothing_is_an_error(call: Command, text: str) -> None:
    result = call("apply", "-f", call.write("empty.yaml", text), "--yes")

    assert result.exit_code == 2
    assert "empty.yaml is invalid." in result.stderr
    assert "the file is empty. Write `pipeline: NAME` and `jobs:`" in result.stderr


def test_anchors_at_the_top_of_a_file(call: Command, client: Client) -> None:
    text = """\
x-common: &common
  timeoutSec: 60
  target: {handler: hello}
pipeline: etl
jobs:
  - {<<: *common, jobId: a, type: MANUAL}
  - {<<: *common, jobId: b, type: AFTER, after: [{job: a}]}
---
"""
    done = call("apply", "-f", call.write("p.yaml", text), "--yes")

    assert done.exit_code == 0, done.output
    assert {job.document["timeoutSec"] for job in client.jobs()} == {60}


def test_an_export_of_no_jobs_can_be_applied(call: Command) -> None:
    for form in ("yaml", "json"):
        exported = call("export", "-o", form)
        again = call("apply", "-f", "-", text=exported.stdout)
        assert (again.exit_code, again.stdout) == (0, "No changes: 0 unchanged.\n"), again.output


def test_a_member_that_occurs_twice_is_named_with_its_file_and_line(call: Command) -> None:
    result = call("apply", "-f", call.write("p.yaml", "pipeline: etl\njobs: []\njobs: []\n"))

    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "'jobs' occurs twice in " in said
    assert "p.yaml, line 3, column 1" in said
    assert "unicode string" not in said
