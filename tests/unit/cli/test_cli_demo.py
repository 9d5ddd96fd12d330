"""The demo, against a fake service whose clock moves while the demo sleeps."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import httpx2
import pytest
from rich.console import Console

from nextfire import Client
from nextfire.domain.instants import isoformat, parse_instant
from nextfire_cli.demo import Demo, Display, report
from nextfire_cli.errors import CliError

BEGIN = datetime(2026, 5, 24, 10, 0, 30, 250_000, tzinfo=UTC)


class Service:
    """Ends each run half a second after it is due, with its state in `states` or SUCCEEDED."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.jobs: dict[str, tuple[dict[str, Any], datetime]] = {}
        self.cancelled: list[str] = []
        self.states: dict[str, str] = {}
        self.interrupt = ""
        self.cold_start = 0.0

    @property
    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def monotonic(self) -> float:
        return self.seconds

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/health":  # open to all, so no key has to be checked
            self.seconds += self.cold_start
            self.cold_start = 0
        match request.method, request.url.path.removeprefix("/v1/").split("/"):
            case "GET", ["health"]:
                return httpx2.Response(200, json={"status": "ok", "time": isoformat(self.now)})
            case "POST", ["jobs"]:
                job = json.loads(request.content)
                due = {
                    "ONCE": lambda: parse_instant(job["schedule"]),
                    "DELAY": lambda: self.now + timedelta(seconds=8),
                    "CRON": lambda: BEGIN.replace(second=0, microsecond=0) + timedelta(minutes=1),
                }[job["type"]]()
                self.jobs[job["jobId"]] = job, due
                if self.interrupt == job["name"]:
                    raise KeyboardInterrupt  # the job is stored, but the client gets no answer
                return httpx2.Response(201, json={"nextFireAt": isoformat(due)})
            case "GET", ["jobs"]:
                return httpx2.Response(200, json={"items": []})
            case "GET", ["jobs", job_id, "executions"]:
                due = self.jobs[job_id][1]
                return httpx2.Response(200, json={"items": [self.run(job_id)] * (self.now >= due)})
            case "GET", ["executions", job_id]:
                name = self.jobs[job_id][0]["name"]
                return httpx2.Response(200, json=self.run(job_id) | {"stdout": f"hello {name}\n"})
            case "DELETE", ["jobs", job_id]:
                self.cancelled.append(self.jobs[job_id][0]["name"])
                return httpx2.Response(200, json={})
        raise AssertionError(f"{request.method} {request.url}")

    def run(self, job_id: str) -> dict[str, Any]:
        job, due = self.jobs[job_id]
        over = self.now >= due + timedelta(seconds=0.5)
        state = self.states.get(job["name"], "SUCCEEDED") if over else "RUNNING"
        return {
            "executionId": job_id,
            "state": state,
            "scheduledAt": isoformat(due),
            "startedAt": isoformat(due + timedelta(milliseconds=31)),
            "stderr": "no such file",
            "reason": "exit code 1",
        }


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def demo(service: Service, output: StringIO) -> Demo:
    client = Client(
        "http://127.0.0.1:1", auth=httpx2.Auth(), transport=httpx2.MockTransport(service.answer)
    )
    display = Display(Console(file=output, width=100), service.monotonic)
    return Demo(client, display, service.monotonic, service.sleep)


def test_each_type_is_followed_until_it_has_run(demo: Demo, service: Service) -> None:
    runs = demo.play()

    assert [(run["job"], run["scheduledAt"]) for run in runs] == [
        ("demo-once", "2026-05-24T10:00:35Z"),
        ("demo-delay", "2026-05-24T10:00:38.250Z"),
        ("demo-cron", "2026-05-24T10:01:00Z"),
    ]
    assert {job["type"] for job, _ in service.jobs.values()} == {"ONCE", "DELAY", "CRON"}
    assert service.cancelled == ["demo-cron"]


def test_the_first_request_that_carries_a_key_may_take_long(demo: Demo, service: Service) -> None:
    service.cold_start = 9

    assert demo.play()[0]["scheduledAt"] == "2026-05-24T10:00:44Z"


def test_the_report_shows_lateness_and_what_the_scripts_printed(demo: Demo) -> None:
    out = StringIO()
    Console(file=out, width=100).print(report(demo.play()))

    assert out.getvalue().count("+31 ms") == 3
    assert "hello demo-cron" in out.getvalue()


def test_without_a_terminal_each_piece_of_news_is_one_line(demo: Demo, output: StringIO) -> None:
    demo.play()

    lines = output.getvalue().splitlines()
    assert len(lines) == 9  # three jobs: created, RUNNING, SUCCEEDED
    assert lines[0].split() == ["0.0", "s", "demo-once", "ONCE,", "due", "2026-05-24T10:00:35Z"]


@pytest.mark.parametrize("state", ["DEAD", "CANCELLED", "SKIPPED"])
def test_a_run_that_ends_badly_fails_the_demo_and_leaves_no_job(
    demo: Demo, service: Service, state: str
) -> None:
    service.states["demo-delay"] = state

    with pytest.raises(CliError, match=f"demo-delay: its run .* is {state}") as failed:
        demo.play()

    assert failed.value.remedy == "exit code 1\nno such file"
    assert service.cancelled == ["demo-delay", "demo-cron"]


def test_a_run_that_never_starts_fails_the_demo(demo: Demo, service: Service) -> None:
    service.states["demo-cron"] = "RUNNING"

    with pytest.raises(CliError, match="demo-cron: no run succeeded within 150 s"):
        demo.play()

    assert 150 <= service.seconds < 152


def test_an_interrupt_leaves_no_job(demo: Demo, service: Service) -> None:
    sleep: Callable[[float], None] = service.sleep

    def interrupted(seconds: float) -> None:
        sleep(seconds)
        if service.seconds > 10:
            raise KeyboardInterrupt

    demo.sleep = interrupted
    with pytest.raises(KeyboardInterrupt):
        demo.play()

    assert service.cancelled == ["demo-cron"]


def test_an_interrupt_in_mid_creation_leaves_no_job(demo: Demo, service: Service) -> None:
    service.interrupt = "demo-cron"

    with pytest.raises(KeyboardInterrupt):
        demo.play()

    assert service.cancelled == ["demo-once", "demo-delay", "demo-cron"]
