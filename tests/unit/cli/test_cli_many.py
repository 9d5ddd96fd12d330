"""The commands that create or change many jobs."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire_cli import confirmation
from tests.unit.cli import answers
from tests.unit.cli.conftest import Api, Call

DONE: dict[str, Any] = {"matched": 2, "changed": 1, "failed": []}
PROBLEM = {
    "title": "Conflict",
    "status": 409,
    "detail": "It is \x1b[2J taken. Change it with PATCH.",
}
CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


@pytest.mark.parametrize(
    ("what", "route"), [("pause", "pause"), ("resume", "resume"), ("delete", "cancel")]
)
def test_all_with_some_labels_call_by_call(
    call: Call,
    api: Api,
    what: str,
    route: str,
) -> None:
    api.routes[f"POST /v1/jobs:{route}"] = [DONE | {"progressToken": "t"}, DONE]
    yes = ["--yes"] if what == "delete" else []

    result = call("jobs", what, "--label", "team=etl", "--label", "a=b=c", *yes, "--json")

    assert result.exit_code == 0, result.output
    labels = {"labels": {"team": "etl", "a": "b=c"}}
    assert api.bodies == [labels, labels | {"progressToken": "t"}]
    assert json.loads(result.stdout) == {"matched": 4, "changed": 2, "failed": []}
    assert "2 met, 1 changed so far" in result.stderr


NONE = {"matched": 0, "changed": 0, "failed": []}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["pause", "--label", "team=typo"], "No ACTIVE or PAUSED job found with team=typo."),
        (
            ["resume", "--label", "team=typo", "--label", "a=b=c"],
            "No ACTIVE or PAUSED job found with team=typo a=b=c.",
        ),
        (["delete", "--label", "team=typo", "--yes"], "No job found with team=typo."),
        (["pause", "--all", "--yes"], "No ACTIVE or PAUSED job found."),
    ],
)
def test_a_change_that_matches_no_job_says_so_and_succeeds(
    call: Call, api: Api, args: list[str], said: str
) -> None:
    for route in ("pause", "resume", "cancel"):
        api.routes[f"POST /v1/jobs:{route}"] = [NONE | {"progressToken": "t"}, NONE]

    result = call("jobs", *args, "--json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == NONE
    assert said in result.stderr


def test_jobs_that_could_not_be_read_are_not_taken_for_none(call: Call, api: Api) -> None:
    failed = {"jobId": "a", "problem": PROBLEM}
    api.routes["POST /v1/jobs:pause"] = [NONE | {"failed": [failed]}]

    result = call("jobs", "pause", "--label", "team=etl")

    assert result.exit_code == 1
    assert "No ACTIVE" not in result.stderr


@pytest.mark.parametrize("what", ["pause", "resume"])
def test_all_jobs_after_a_confirmation(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    api.routes[f"POST /v1/jobs:{what}"] = [DONE | {"progressToken": "t"}, DONE]

    refused = call("jobs", what, "--all")

    assert (refused.exit_code, api.requests) == (1, [])
    assert "add --yes" in refused.stderr
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)
    asked = call("jobs", what, "--all", input="y\n")
    assert asked.exit_code == 0, asked.output
    assert f"{what.capitalize()} all " in asked.stderr
    assert asked.stdout.endswith("Jobs: 4. Changed: 2.\n")
    assert api.bodies == [{"allJobs": True}, {"allJobs": True, "progressToken": "t"}]
    assert call("jobs", what, "--all", "--yes", "--json").exit_code == 0


def test_a_list_is_of_what_is_asked_for(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs"] = [{"items": []}]
    asked = ["--state", "paused", "--label", "team=etl", "--label", "a=b=c", "--name", "night"]

    result = call("jobs", "list", *asked)

    assert result.exit_code == 0, result.output
    [request] = api.requests
    assert request.url.params["label"] == "team:etl,a:b=c"
    assert (request.url.params["state"], request.url.params["name"]) == ("PAUSED", "night")


def test_pause_says_why_and_until(call: Call, api: Api) -> None:
    api.routes["POST /v1/jobs:pause"] = [DONE]

    call("jobs", "pause", "--label", "a=b", "--reason", "why", "--until", "2030-01-01T00:00:00Z")

    asked = {"reason": "why", "until": "2030-01-01T00:00:00Z"}
    assert api.bodies == [{"labels": {"a": "b"}, **asked}]


@pytest.mark.parametrize(
    ("until", "sent"),
    [
        ("2h", "2026-05-24T14:00:00Z"),
        ("08:00", "2026-05-25T08:00:00Z"),
        ("2026-05-25T08:00:00+02:00", "2026-05-25T06:00:00Z"),
    ],
)
def test_a_pause_ends_after_a_span_or_at_a_time(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch, until: str, sent: str
) -> None:
    noon = datetime.fromisoformat("2026-05-24T12:00:00Z").timestamp()
    monkeypatch.setattr("nextfire_cli.durations.time.time", lambda: noon)
    api.routes["POST /v1/jobs/job_1/pause"] = [answers.JOB]

    result = call("jobs", "pause", "job_1", "--until", until)

    assert result.exit_code == 0, result.output
    assert api.body == {"until": sent}


def test_a_pause_until_something_else_is_rejected(call: Call) -> None:
    result = call("jobs", "pause", "job_1", "--until", "tomorrow")

    assert result.exit_code == 2
    assert "'tomorrow' is not a time. Write an instant" in result.stderr


def test_jobs_that_could_not_be_changed_are_reported(call: Call, api: Api) -> None:
    failed = {"jobId": "job_1", "problem": PROBLEM}
    api.routes["POST /v1/jobs:resume"] = [DONE | {"failed": [failed]}]

    result = call("jobs", "resume", "--label", "team=etl")

    assert result.exit_code == 1
    assert "Not changed: job_1: It is \\x1b[2J taken." in result.stdout


def test_delete_of_many_asks(
    call: Call,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)
    result = call("jobs", "delete", "--label", "team=etl")

    assert result.exit_code == 1
    assert "Cancel all jobs labelled team=etl for good?" in result.stderr
    assert not api.requests


@pytest.mark.parametrize(
    "args",
    [
        ["list", "--label", "team"],
        ["list", "--label", "a:b=c"],
        ["list", "--label", "a=b,c"],
        ["list", "--state", "DONE"],
        ["create", "--in", "5s", "--handler", "h", "--payload", "NaN"],
        ["create", "--in", "5s", "--handler", "h", "--payload", "[1e999]"],
        ["create", "--in", "5s", "--handler", "h", "--payload", '"\\ud800"'],
        ["create", "--in", "5s", "--handler", "h", "--payload", '{"a": 1, "a": 2}'],
        ["create", "--in", "5s", "--handler", "h", "--payload", "[" * 90_000 + "]" * 90_000],
        ["create-many", "-f", "nan.yaml"],
        ["pause"],
        ["pause", "job_1", "--label", "a=b"],
        ["pause", "job_1", "--all"],
        ["resume", "--label", "a=b", "--all"],
        ["delete", "--all"],
        ["resume"],
        ["resume", "--label", "a"],
        ["delete"],
        ["delete", "job_1", "--label", "a=b"],
        ["create-many", "-f", "nothing"],
        ["create-many", "-f", "empty.json"],
    ],
)
def test_wrong_usage(call: Call, api: Api, args: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "nan.yaml").write_text("- {type: MANUAL, payload: .nan}")

    result = call("jobs", *args)

    assert result.exit_code == 2, result.output
    assert not api.requests


@pytest.mark.parametrize("label", ["a:b=c", "a=b,c"])
def test_an_export_takes_no_label_that_a_listing_would_read_as_another(
    call: Call, api: Api, label: str
) -> None:
    result = call("export", "--label", label)

    assert result.exit_code == 2, result.output
    assert not api.requests


@pytest.mark.parametrize("form", ["[{}]", '{{"jobs": [{}]}}'])
def test_many_are_created_a_few_at_a_time(
    call: Call,
    api: Api,
    form: str,
    tmp_path: Path,
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        count = len(json.loads(request.content)["jobs"])
        results = [{"status": 201, "job": {"jobId": f"job_{n}"}} for n in range(count)]
        results[-1] = {"status": 409, "problem": PROBLEM}
        return httpx2.Response(200, json={"results": results})

    api.routes["POST /v1/jobs:batch"] = [answer]
    (tmp_path / "jobs.json").write_text(form.format(", ".join([json.dumps(CRON)] * 30)))

    result = call("jobs", "create-many", "-f", "jobs.json")

    assert result.exit_code == 1
    assert [len(body["jobs"]) for body in api.bodies] == [25, 5]
    assert "25 of 30" in result.stderr
    assert "job_3" in result.stdout
    assert "It is \\x1b[2J taken. Change it with nextfire jobs update." in result.stdout


def _created(request: httpx2.Request) -> httpx2.Response:
    jobs = json.loads(request.content)["jobs"]
    results = [{"status": 201, "job": {"jobId": each["jobId"]}} for each in jobs]
    return httpx2.Response(200, json={"results": results})


def test_a_request_has_no_more_jobs_than_its_body_may_have_bytes(
    call: Call, api: Api, tmp_path: Path
) -> None:
    api.routes["POST /v1/jobs:batch"] = [_created] * 3
    jobs = [CRON | {"jobId": f"j{n}", "payload": "ä" * 30_000} for n in range(10)]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))

    result = call("jobs", "create-many", "-f", "jobs.json")

    assert result.exit_code == 0, result.output
    assert [len(body["jobs"]) for body in api.bodies] == [4, 4, 2]
    assert all(len(request.content) <= 256 * 1024 for request in api.requests)


def test_parents_are_in_an_earlier_request_than_their_children(
    call: Call, api: Api, tmp_path: Path
) -> None:
    api.routes["POST /v1/jobs:batch"] = [_created] * 2
    child: dict[str, Any] = {
        "jobId": "child",
        "type": "AFTER",
        "after": [{"job": "j39"}, {"job": "elsewhere"}],
    }
    cycle = [CRON | {"jobId": name, "after": [{"job": name}]} for name in ("a", "b")]
    jobs: list[dict[str, Any]] = [child, *cycle, *(CRON | {"jobId": f"j{n}"} for n in range(40))]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))

    result = call("jobs", "create-many", "-f", "jobs.json", "--json")

    sent = [job["jobId"] for body in api.bodies for job in body["jobs"]]
    assert sent == [*(f"j{n}" for n in range(40)), "child", "a", "b"]
    shown = [each["job"]["jobId"] for each in json.loads(result.stdout)["results"]]
    assert shown == [job["jobId"] for job in jobs]


def test_many_from_yaml(call: Call, api: Api, tmp_path: Path) -> None:
    api.routes["POST /v1/jobs:batch"] = [{"results": [{"status": 201, "job": {"jobId": "a"}}]}]
    (tmp_path / "jobs.yaml").write_text("- taskId: a\n  cron: '0 3 * * *'\n")

    result = call("jobs", "create-many", "-f", "jobs.yaml")

    assert result.exit_code == 0, result.output
    assert api.bodies == [{"jobs": [{"taskId": "a", "cron": "0 3 * * *"}]}]


def test_numbers_of_jobs_are_shown(call: Call, api: Api) -> None:
    api.routes["POST /v1/jobs:resume"] = [DONE]

    result = call("jobs", "resume", "--label", "team=etl")

    assert result.stdout == "Jobs with these labels: 2. Changed: 1.\n"


@pytest.mark.parametrize(
    ("command", "text", "named"),
    [
        ("create", "pipeline: etl\njobs: [{jobId: a}]\n", "nextfire apply (a pipeline) or"),
        ("create", "- {jobId: a}\n- {jobId: b}\n", "nextfire jobs create-many"),
        ("create", "", '{"type": "MANUAL", "target": {"handler": "hello"}}'),
        ("create-many", "type: MANUAL\n", "For one job use nextfire jobs create"),
    ],
)
def test_a_file_for_another_command_names_it(
    call: Call, api: Api, tmp_path: Path, command: str, text: str, named: str
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)

    result = call("jobs", command, "-f", str(file))

    assert result.exit_code == 2
    assert named in " ".join(result.stderr.replace("│", "").split())
    assert not api.requests


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["create-many", "-f", "nothing"], "Invalid value for --file: cannot read nothing"),
        (["pause", "a", "--label", "b=c"], "give only one of JOB_ID, --label and --all"),
        (["delete", "a", "--label", "b=c"], "give only one of JOB_ID and --label"),
        (["pause"], "give a JOB_ID, or --label for many jobs or --all"),
    ],
)
def test_wrong_usage_names_the_flag(call: Call, typed: list[str], said: str) -> None:
    result = call("jobs", *typed)

    assert said in " ".join(result.stderr.replace("│", " ").split())
