"""`nextfire jobs create-many` when a request fails after others."""

import json
from pathlib import Path

import httpx2
import pytest

from tests.unit.cli.conftest import Api, Call

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


def _created(request: httpx2.Request) -> httpx2.Response:
    jobs = json.loads(request.content)["jobs"]
    results = [{"status": 201, "job": {"jobId": each["jobId"]}} for each in jobs]
    return httpx2.Response(200, json={"results": results})


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_was_created_before_a_failure_is_shown_and_how_to_continue(
    call: Call, api: Api, form: str, tmp_path: Path
) -> None:
    problem = {"title": "Forbidden", "status": 403, "detail": "The key has expired."}
    refused = httpx2.Response(403, json=problem)
    api.routes["POST /v1/jobs:batch"] = [_created, refused]
    jobs = [CRON | {"jobId": f"j{n}"} for n in range(60)]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))

    result = call("jobs", "create-many", "-f", "jobs.json", "-o", form)

    assert result.exit_code == 4
    if form == "json":
        results = json.loads(result.stdout)["results"]
        assert [each and each["job"]["jobId"] for each in results] == [
            *(f"j{n}" for n in range(25)),
            *[None] * 35,
        ]
        assert json.loads(result.stderr.partition("\n")[2])["title"] == "Forbidden (403)."
    else:
        assert "j24" in result.stdout
        assert "j25" not in result.stdout
    assert "25 of 60 jobs have a result above." in result.stderr
    assert "jobs that have one from jobs.json" in result.stderr
