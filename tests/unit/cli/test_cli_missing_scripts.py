"""Scripts that were not uploaded are reported when a job is created or changed."""

import httpx2
import pytest

from tests.unit.cli.conftest import Api, Call

JOB = {"jobId": "job_1", "state": "ACTIVE", "type": "MANUAL", "target": {"handler": "hello"}}
VERSIONS = "GET /v1/scripts/default/hello/versions"
CREATE = ("jobs", "create", "--in", "5s", "--handler", "hello")


def requests(api: Api) -> list[str]:
    return [f"{each.method} {each.url.path}" for each in api.requests]


@pytest.mark.parametrize(
    "answer",
    [{"items": []}, httpx2.Response(404, json={"title": "Not Found", "status": 404, "detail": ""})],
)
@pytest.mark.parametrize("command", [CREATE, ("jobs", "update", "job_1", "--handler", "hello")])
def test_a_missing_script_is_a_warning_or_strictly_an_error(
    call: Call,
    api: Api,
    command: tuple[str, ...],
    answer: object,
) -> None:
    api.routes |= {VERSIONS: [answer], "POST /v1/jobs": [JOB]}
    api.routes["PATCH /v1/jobs/job_1"] = [JOB]
    advice = "Upload it: nextfire scripts push hello.py"

    warned, strict = call(*command), call(*command, "--strict")

    assert (warned.exit_code, strict.exit_code) == (0, 1)
    problem = "The script 'hello' was not found in the pool default: runs will fail."
    assert f"Warning: {problem} {advice}" in warned.stderr
    assert "Nothing was changed. The script 'hello' was not found" in strict.stderr
    assert advice in strict.stderr
    changed = requests(api)[0]
    assert requests(api) == [changed, VERSIONS, VERSIONS], "with --strict nothing is changed"


@pytest.mark.parametrize(
    ("handler", "advice"),
    [
        ("app.zip", "Upload it: nextfire scripts push app.zip\n"),
        ("app", "Upload it: nextfire scripts push app.py (the name of an archive ends in .zip"),
        ("app.py", "A script's name is that of its file without .py: use 'app'."),
    ],
)
def test_the_warning_names_the_file_to_upload(
    call: Call, api: Api, handler: str, advice: str
) -> None:
    versions = f"GET /v1/scripts/default/{handler}/versions"
    api.routes |= {versions: [{"items": []}], "POST /v1/jobs": [JOB]}

    assert advice in call(*CREATE[:-1], handler).stderr


def test_a_rejected_job_is_not_warned_of(call: Call, api: Api) -> None:
    detail = "target.pool: no such pool. Available: default."
    api.routes["POST /v1/jobs"] = [
        httpx2.Response(422, json={"title": "Invalid", "status": 422, "detail": detail})
    ]

    result = call(*CREATE, "--pool", "absent")

    assert "--pool: no such pool" in result.stderr
    assert "Warning" not in result.stderr


@pytest.mark.parametrize(
    "answer",
    [
        {"items": [{"version": "v1"}]},
        httpx2.Response(403, json={"message": "no"}),
        httpx2.Response(404, json={"message": "no such route"}),
    ],
)
def test_a_script_that_is_there_or_may_not_be_seen_is_not_warned_of(
    call: Call,
    api: Api,
    answer: object,
) -> None:
    api.routes |= {VERSIONS: [answer], "POST /v1/jobs": [JOB]}

    result = call(*CREATE[:-1], f"hello@sha256:{'0' * 64}", "--strict")

    assert result.exit_code == 0, result.output
    assert "Warning" not in result.stderr


def test_calls_and_changes_without_a_target_need_no_script(
    call: Call,
    api: Api,
) -> None:
    api.routes |= {"POST /v1/jobs": [JOB], "PATCH /v1/jobs/job_1": [JOB]}

    call("jobs", "create", "--in", "5s", "--http", "https://example.com/", "--strict")
    call("jobs", "update", "job_1", "--overlap", "SKIP", "--strict")

    assert requests(api) == ["POST /v1/jobs", "PATCH /v1/jobs/job_1"]


def test_output_for_programs_has_no_warning(call: Call, api: Api) -> None:
    api.routes |= {VERSIONS: [{"items": []}], "POST /v1/jobs": [JOB]}

    result = call(*CREATE, "--json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert requests(api) == ["POST /v1/jobs"]


@pytest.mark.parametrize("typed", ["hello.py", "examples/hello.py"])
def test_a_file_instead_of_a_script_is_named(call: Call, api: Api, typed: str) -> None:
    api.routes |= {f"GET /v1/scripts/default/{typed}/versions": {"items": []}}
    api.routes |= {"POST /v1/jobs": [JOB]}

    result = call(*CREATE[:-1], typed)

    assert "A script's name is that of its file without .py: use 'hello'." in result.stderr
