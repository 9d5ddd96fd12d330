"""Pipelines against the API's own handler: apply, change, remove, repeat, stop at every call."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

import nextfire
from nextfire import ApplyError, Client, ClientError, PipelineError
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.client.pipelines.document import OWNER, Pipeline, read
from nextfire.client.pipelines.export import export
from nextfire.client.pipelines.plan import Change
from nextfire_cli import confirmation
from nextfire_cli.main import app
from tests.integration.deployment import Deployment
from tests.integration.test_client import Handler

MANUAL: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "hello"}}


class Dying(Handler):
    """Lets a limited number of writes through. The one after them is lost: before it takes effect,
    or after.
    """

    writes = 10**6
    takes_effect = False

    def __init__(self, system: Deployment) -> None:
        super().__init__(system)
        self._one_at_a_time = threading.RLock()  # as a function handles requests

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        with self._one_at_a_time:
            return self._handle(request)

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        if request.method in {"POST", "PUT", "DELETE"}:
            self.writes -= 1
            if self.writes < 0:
                if self.writes == -1 and self.takes_effect:
                    super().handle_request(request)
                raise KeyboardInterrupt  # as if the process died
        return super().handle_request(request)


@pytest.fixture
def handler(system: Deployment) -> Dying:
    return Dying(system)


@pytest.fixture
def client(handler: Dying) -> Iterator[Client]:
    with Client(
        "https://api.example.com", auth=httpx2.Auth(), transport=handler, sleep=lambda _: None
    ) as client:
        yield client


def job(*parents: str, **fields: Any) -> dict[str, Any]:
    if parents:
        fields = {"type": "AFTER", "after": [{"job": each} for each in parents]} | fields
    return MANUAL | fields


def pipelines(name: str | None = "etl", /, **jobs: Any) -> Sequence[Pipeline]:
    return read({"pipeline": name, "jobs": [{"jobId": each, **jobs[each]} for each in jobs]})


def applied(client: Client, declared: Sequence[Pipeline], *, adopt: bool = False) -> list[str]:
    found = make_plan(client, declared, adopt=adopt)
    made: list[Change] = []
    apply_plan(client, found, report=made.append)
    return [f"{each.action} {each.job_id}" for each in made]


def stored(client: Client) -> dict[str, dict[str, Any]]:
    """The living jobs by id: what decides what they do."""
    return {
        job_id: definition.document() | {"owner": each.name}
        for each in export(client).pipelines
        for job_id, definition in each.jobs.items()
    }


BEFORE = {"a": job(), "b": job("a"), "gone": job("b"), "gone-too": job("gone")}
AFTER = {"new": job(), "a": job("new", name="A"), "b": job("a"), "c": job("a", "b")}


def test_apply_change_and_remove(client: Client) -> None:
    assert applied(client, pipelines(**BEFORE)) == [f"create {each}" for each in BEFORE]
    assert client.get_job("a").labels == {OWNER: "etl"}
    assert applied(client, pipelines(**BEFORE)) == []

    assert applied(client, pipelines(**AFTER)) == [
        *("create new", "update a", "create c"),
        *("remove gone-too", "remove gone"),
    ]
    assert applied(client, pipelines(**AFTER)) == []
    assert client.get_job("gone").state == "CANCELLED"

    assert applied(client, pipelines(**BEFORE))[0] == "update a"
    assert {*stored(client)} == {*BEFORE}
    assert applied(client, pipelines()) == [f"remove {each}" for each in reversed(BEFORE)]


def test_a_parent_is_removed_after_its_children_left_it(client: Client) -> None:
    applied(client, pipelines(old=job(), child=job("old")))

    assert applied(client, pipelines(new=job(), child=job("new"))) == [
        *("create new", "update child", "remove old"),
    ]


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("writes", range(5))
def test_an_apply_that_stops_at_any_write_is_completed_by_the_next(
    client: Client,
    handler: Dying,
    writes: int,
    takes_effect: bool,  # noqa: FBT001
) -> None:
    applied(client, pipelines(**BEFORE))
    handler.writes, handler.takes_effect = writes, takes_effect
    with pytest.raises(KeyboardInterrupt):
        applied(client, pipelines(**AFTER))
    handler.writes = 10**6

    steps = applied(client, pipelines(**AFTER))

    assert len(steps) == 5 - writes - takes_effect
    assert applied(client, pipelines(**AFTER)) == []
    assert {*stored(client)} == {*AFTER}
    assert client.get_job("c").revision == 1


def test_lost_responses_change_nothing(client: Client, handler: Dying) -> None:
    applied(client, pipelines(**BEFORE))
    found = make_plan(client, pipelines(**AFTER))
    send = handler.handle_request
    lost: list[bytes] = []

    def lose(request: httpx2.Request) -> httpx2.Response:
        response = send(request)
        sent = request.method.encode() + request.url.raw_path + request.content
        if request.method != "GET" and sent not in lost:
            lost.append(sent)
            raise httpx2.ReadError("the line went dead", request=request)
        return response

    handler.handle_request = lose  # type: ignore[method-assign]
    apply_plan(client, found)

    assert len(lost) == 5
    assert {*stored(client)} == {*AFTER}
    assert client.get_job("c").revision == 1


def test_a_job_that_changed_since_the_plan_is_not_overwritten(client: Client) -> None:
    applied(client, pipelines(**BEFORE))
    found = make_plan(client, pipelines(**AFTER))
    client.change_job("a", {"priority": "HIGH"})

    with pytest.raises(ApplyError) as error:
        apply_plan(client, found)

    assert error.value.problem.startswith("Job a (update): ")
    assert error.value.remedy.endswith(
        "1 of 5 changes are done. Apply again: it continues with the rest."
    )
    assert client.get_job("a").priority == "HIGH"
    assert applied(client, pipelines(**AFTER))[0] == "update a"


def test_a_job_that_someone_else_creates_meanwhile_is_not_overwritten(client: Client) -> None:
    found = make_plan(client, pipelines(**BEFORE))
    client.put_job("a", job(name="theirs"))

    with pytest.raises(ApplyError, match="already exists"):
        apply_plan(client, found)

    assert client.get_job("a").name == "theirs"


def test_only_own_jobs_are_touched(client: Client) -> None:
    client.put_job("theirs", MANUAL)
    applied(client, pipelines("other", other=job()))

    for job_id in ("theirs", "other"):
        with pytest.raises(PipelineError, match="add --adopt"):
            make_plan(client, pipelines(**{job_id: job()}))
    assert applied(client, pipelines(theirs=job(), other=job()), adopt=True) == [
        "update other",
        "update theirs",
    ]
    assert applied(client, pipelines("other")) == []
    assert applied(client, pipelines()) == ["remove theirs", "remove other"]


def test_nothing_is_written_if_a_check_fails(client: Client, handler: Dying) -> None:
    handler.writes = 0
    past = {"type": "ONCE", "schedule": "2020-01-01T00:00:00Z"}
    for invalid, message in (
        ({"a": job(), "b": job("x")}, "the parent 'x' does not exist"),
        ({"a": job(), "b": job(**past)}, "b.schedule: "),
        ({"a": job("b"), "b": job("a")}, "wait for each other"),
    ):
        with pytest.raises(PipelineError, match=message):
            applied(client, pipelines(**invalid))


def test_an_export_is_applied_without_a_change(client: Client) -> None:
    every = job(
        type="CRON",
        schedule="0 3 * * *",
        timezone="Europe/Berlin",
        payload={"no": ["1e3", None, 1.5]},
        retryPolicy={"initialDelayMs": 7_200_000, "maxDelayMs": 3_600_000},
        labels={"team": "no"},
    )
    applied(client, pipelines(a=every, b=job("a")))
    client.put_job("alone", MANUAL)
    client.pause_job("a")
    client.put_job("deleted", MANUAL)
    client.delete_job("deleted")

    found = export(client)

    assert [(each.name, [*each.jobs]) for each in found.pipelines] == [
        ("etl", ["a", "b"]),
        (None, ["alone"]),
    ]
    assert not make_plan(client, found.pipelines)
    assert client.get_job("a").state == "PAUSED"


def test_an_export_by_label_has_whole_pipelines(client: Client) -> None:
    applied(client, pipelines(a=job(labels={"team": "x"}), b=job()))

    found = export(client, labels={"team": "x"})

    assert [[*each.jobs] for each in found.pipelines] == [["a", "b"]]
    assert found.added == ["etl"]
    assert export(client, pipeline="etl").added == []
    with pytest.raises(ClientError, match="The pipeline 'none' has no jobs"):
        export(client, pipeline="none")


def test_python(client: Client) -> None:
    with nextfire.pipeline("etl") as p:
        a, b = (p.job(each, type=None, target={"handler": each}) for each in "ab")
        a.body["type"] = b.body["type"] = "MANUAL"
    made: list[Change] = []

    assert [each.job_id for each in p.plan(client).changes] == ["a", "b"]
    assert p.apply(client, report=made.append)
    assert [each.job_id for each in made] == ["a", "b"]
    assert not p.apply(client)


# The command


class Command:
    def __init__(self, handler: Dying, folder: Path) -> None:
        self._handler = handler
        self.folder = folder

    def __call__(self, *args: str, text: str | None = None) -> Result:
        environment = {
            "NEXTFIRE_ENDPOINT": "https://api.example.com",
            "NEXTFIRE_API_KEY": f"nf.000000000000.3f9c0a77d1e2b456.{'A' * 43}",
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
