"""What new users typed or sent, the earlier message, and the message now.

Each row calls the command or the API of a whole stack in memory.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from functions.api.areas import include_all
from nextfire.domain.document import Document
from nextfire.domain.invalid_fields import invalid_fields
from nextfire.domain.message import RunMessage, SkippedRange
from nextfire.testing import Stack
from nextfire_cli.main import app

URL = "https://nextfire.test"
JOB: dict[str, Any] = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "report"}}
CREATE = "jobs create --handler report"
SHORT = {"taskId": "report", "cron": "0 3 * * *"}
ADD = "Add this field."
LATER = {"from": "2026-06-01", "to": "2026-12-01"}


class Site:
    """A stack with the jobs `nightly` and `report`, its command and its API."""

    def __init__(self, folder: Path) -> None:
        stack = Stack(start="2027-01-01T00:00:00Z")
        stack.put("nightly", JOB)
        stack.put("report", JOB)
        # The client has no public way to send what it would not send itself.
        transport = stack.client._caller._connections()._transport  # noqa: SLF001
        self._transport = transport
        self.api = httpx2.Client(transport=transport, base_url=URL)
        none = str(folder / "none")
        self._environment = {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_CONFIG_FILE": none,
            "AWS_SHARED_CREDENTIALS_FILE": none,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_PROFILE": None,
            "AWS_REGION": "eu-west-1",
            "NEXTFIRE_ENDPOINT": URL,
        }

    def typed(self, words: list[str]) -> str:
        """What the command prints for *words*, on one line."""
        found = CliRunner().invoke(app, words, env=self._environment, obj=self._transport)
        assert found.exit_code != 0, found.output
        return re.sub(r"[\s│╭╮╰╯─]+", " ", found.output)

    def sent(self, path: str, body: dict[str, Any]) -> str:
        """What the API answers to *body*."""
        answer = self.api.post(f"/v1/{path}", json=body)
        assert answer.is_client_error, answer.text
        return str(answer.json()["detail"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield Site(folder)


TYPED = [
    # Durations
    (
        f"{CREATE} --every 1M",
        "next run",  # it was read as one minute
        (
            "--every: '1M' is not a duration from 1 s to 1830 days. Write 5s, 90m, 1h30m, 2d "
            "or PT5S. A minute is a small m."
        ),
    ),
    (
        f"{CREATE} --every 5s --relevancy-window 31d",
        "20h",
        "from 1 s to 30 days. Write 30, 30s, 10m, 2h, 30d or PT10M.",
    ),
    (f"{CREATE} --every 5s --timeout 1M", "next run", "A minute is a small m."),
    (
        f"{CREATE} --every 5s --timeout 20h",
        "30d",
        (
            "--timeout: '20h' is not a duration in whole seconds from 1 s to 11 hours. Write 30, "
            "30s, 10m, 2h or PT10M."
        ),
    ),
    # Flags, as they were typed
    ("runs list --since yesterday", "value for --from", "--since (--from): 'yesterday' is not a"),
    ("runs list --until yesterday", "value for --to", "--until (--to): 'yesterday' is not a time"),
    (
        "runs list --from 2027-02-02 --to 2027-01-01",
        " from: later",
        "--from: later than --to, which is 2027-01-01T00:00:00Z (got '2027-02-02T00:00:00Z').",
    ),
    (
        f"{CREATE} --after 'a b'",
        "the message names",
        (
            "--after: String should match pattern '^[A-Za-z0-9_-]{1,64}$' (got 'a b'). Id of the "
            "parent, a job of the same tenant. For example `extract`."
        ),
    ),
    (
        f"{CREATE} --cron '0 3 * * *' --except 25.12.2030",
        "the message names",
        "--except: not a date (got '25.12.2030'). Use a list of at most 100 dates, each as YYYY",
    ),
    (
        f"{CREATE} --cron '0 3 * * *' --except 2030-02-29",
        "exceptDates",
        "--except: this date does not exist (got '2030-02-29'). Write year, month and day. For",
    ),
    (f"{CREATE} --after none", "after.0", "--after: job not found (got 'none'). Create the parent"),
    # Schedules
    (
        f"{CREATE} --cron '0 3 * * mond'",
        "schedule:",
        (
            "--cron: 'mond' is not valid in the day of week field (got '0 3 * * mond'). Use "
            "numbers, names, ranges, steps, n#k and nL. The names are sun, mon, tue, wed, thu, "
            "fri, sat. For example `0 3 * * mon`."
        ),
    ),
    (
        f"{CREATE} --cron '0 3 * * monday-friday'",
        "1-5",
        "For example `0 3 * * mon-fri`.",
    ),
    (f"{CREATE} --cron 5m", "has 1 fields", "For an interval, use --every. For example `PT5M`."),
    (f"{CREATE} --cron 'every 5m'", "1-5", "For an interval, use --every. For example `PT5M`."),
    (f"{CREATE} --cron '* * * * * 2027'", "Without", "seconds and years are not supported."),
    (f"{CREATE} --cron 'rate(5 minutes)'", "seconds", "For an interval, use --every."),
    (f"{CREATE} --cron 'at(2027-02-01T00:00:00)'", "seconds", "at an instant, use --at."),
    (f"{CREATE} --cron 'TZ=Asia/Tokyo 0 3 * * *'", "seconds", "Give the time zone as --timezone."),
    (f"{CREATE} --cron '0 3 * *'", "1 field", "has 4 fields (got '0 3 * *'). Give five: minute"),
    (f"{CREATE} --cron '*/90 * * * *'", "INTERVAL", "For other periods use --every."),
    (f"{CREATE} --cron '@every 5m'", "unknown macro", "For an interval, use --every."),
    (
        f"{CREATE} --cron 2027-02-01T00:00:00Z",
        "For example `0 3",
        "For one run at an instant, use --at. For example `2030-05-24T10:00:00Z`.",
    ),
    (
        f"{CREATE} --at 2027-02-30T00:00:00Z",
        "not an ISO 8601 instant",
        (
            "--at: this date does not exist: 2027-02 has 28 days (got '2027-02-30T00:00:00Z'). For "
            "example `2027-02-28`."
        ),
    ),
    (f"{CREATE} --at 2027-01-02T25:00", "8601", "this date or time does not exist"),
    (f"{CREATE} --date 2027-02-30", "schedule.0", "--date: this date does not exist"),
    (f"{CREATE} --at tomorrow", "of the timezone", "in the time zone of the job (--timezone)."),
    # Zones
    *(
        (f"schedules preview --cron @daily --timezone '{typed}'", "Use an IANA", meant)
        for typed, meant in (
            ("Europe/Berln", "--timezone: time zone not found (got 'Europe/Berln'). Did you mean"),
            ("Berlin", "Did you mean `Europe/Berlin`?"),
            ("new york", "Did you mean `America/New_York`?"),
            ("tokio", "Did you mean `Asia/Tokyo`?"),
            ("US/Eastrn", "Did you mean `US/Eastern`?"),
            ("utc", "Did you mean `UTC`?"),
            ("GMT+1", "The name of a fixed offset has the opposite sign. For example `Etc/GMT-1`."),
        )
    ),
    (
        "schedules preview --cron @daily --timezone CEST",
        "Did you mean",  # EST
        "Abbreviations are ambiguous: use an IANA name. For example `Europe/Berlin`.",
    ),
    (f"{CREATE} --cron @daily --id 'my job'", "jobId", "--id: not a job id (got 'my job')."),
    # Commands instead of requests
    (
        f"{CREATE} --cron @daily --id nightly",
        "PATCH",
        "Job 'nightly' already exists (ACTIVE). Change it with nextfire jobs update, or use",
    ),
    (
        "jobs backfill nightly --from 2020-01-01 --to 2026-12-01",
        "max",
        (
            "--from: from 2020-01-01T03:00:00Z to 2026-11-30T03:00:00Z there are 2526 occurrences "
            "(got '2020-01-01T00:00:00Z'). Narrow --from and --to: a backfill runs 1000 at most."
        ),
    ),
    (
        "jobs backfill nightly --from 2026-06-01 --to 2026-12-01 --max 10",
        " max: from",
        (
            "--max: from 2026-06-01T03:00:00Z to 2026-11-30T03:00:00Z there are 183 occurrences "
            "(got 10). Narrow --from and --to, or raise --max, to 1000 at most."
        ),
    ),
    # Callbacks
    (
        "jobs create --every 1h --pool calls --http https://example.com --method get",
        "of the type that the message names",
        "or 'HEAD' (got 'get'). Did you mean `GET`?",
    ),
    (
        "jobs create --every 1h --pool calls --http https://example.com --body '[\"{{b}}\"]'",
        "the template",
        '--body: unknown placeholder {{b}}: available: job, payload, run (got ["{{b}}"]).',
    ),
    # Pools of the other kind
    (
        "endpoints pause api.example.com",
        "PAUSED",
        "--pool: the pool runs scripts, not calls (got 'default'). Pools for calls: calls.",
    ),
    (
        f"{CREATE} --in 5s --env 'A B=c'",
        "[key]",
        "--env: not the name of a variable (got 'A B'). Use letters, digits and `_`;",
    ),
    (
        "jobs create --in 5s --pool calls --http https://a.example --success 9xx",
        "target.http",
        "--success: '9xx' is not a status code, a class or a range",
    ),
    (
        "jobs create --in 5s --pool calls --http https://a.example --header Authorization=x",
        "target.http",
        "--header: Authorization usually has a credential",
    ),
    (
        "keys create ci --cidr 203.0.113.0/99",
        "cidrs",
        "--cidr: not a network (got '203.0.113.0/99').",
    ),
    (
        "jobs get team/nightly",
        "The API is older",
        "does not exist. An id cannot contain a slash or a line feed. Otherwise the API is older",
    ),
    # Confirmations
    ("jobs delete nightly", "Aborted", "To confirm it in advance, add --yes."),
    ("jobs delete nightly --json", "Aborted", "To confirm it in advance, add --yes."),
    # Scripts that do not exist
    (
        f"{CREATE} --cron @daily --strict",
        "next run",
        (
            "Nothing was changed. The script 'report' was not found in the pool default: runs will "
            "fail. Upload it: nextfire scripts push report.py"
        ),
    ),
]


@pytest.mark.parametrize(("words", "before", "now"), TYPED, ids=[each[0] for each in TYPED])
def test_typed(site: Site, words: str, before: str, now: str) -> None:
    said = site.typed(shlex.split(words))

    assert before not in said
    assert now in said


def with_(**changes: Any) -> dict[str, Any]:
    """The job with *changes*; None: without the field."""
    return {name: value for name, value in (JOB | changes).items() if value is not None}


def http(**changes: Any) -> dict[str, Any]:
    return with_(target={"http": {"url": "https://example.com", **changes}})


SENT = [
    # Missing fields
    (
        "jobs",
        with_(type=None),
        ADD,
        (
            "type: required field is missing. Use one of ONCE, DELAY, CRON, INTERVAL, DATES, "
            "MANUAL, AFTER. For example `CRON`."
        ),
    ),
    (
        "jobs",
        with_(schedule=None),
        "not a text",
        "schedule: required field is missing. For example `0 3 * * 1-5`.",
    ),
    (
        "jobs",
        with_(target=None),
        ADD,
        'target: required field is missing. For example `{"handler": "report"}`.',
    ),
    (
        "jobs",
        with_(target={"http": {}}),
        ADD,
        "target.http.url: required field is missing. URL to call: https, and a public address",
    ),
    (
        "jobs",
        http(auth={}),
        "extract tag",
        "target.http.auth: `type` is missing (got hidden). Use a `type`: bearer, basic, apiKey,",
    ),
    (
        "jobs",
        http(auth={"type": "Bearer"}),
        "found using 'type'",
        "target.http.auth: unknown `type` (got hidden). Use a `type`: bearer, basic, apiKey,",
    ),
    (
        "jobs",
        http(auth={"type": "bearer"}),
        "bearer.token",
        'target.http.auth.token: required field is missing. The token. For example `{"secret":',
    ),
    (
        "jobs",
        http(sign=[{}]),
        "secret.secret",
        (
            "target.http.sign.0.secret: required field is missing. Name of the secret, below the "
            "tenant's prefix. For example `billing/api-key`."
        ),
    ),
    (
        "jobs",
        with_(type="AFTER", schedule=None, after=[{}]),
        ADD,
        (
            "after.0.job: required field is missing. Id of the parent, a job of the same tenant. "
            "For example `extract`."
        ),
    ),
    (
        "jobs:pause",
        {},
        ADD,
        'labels: required field is missing. Name at least one. For example `{"team": "billing"}`.',
    ),
    (
        "jobs/nightly/backfill",
        {},
        ADD,
        (
            "from: required field is missing. Start of the range, inclusive. ISO 8601. UTC if it "
            "has no offset. For example `2026-05-01T00:00:00Z`."
        ),
    ),
    # Lists, unknown fields
    (
        "jobs:batch",
        {"jobs": []},
        "List should have at least 1 item",
        "jobs: an empty list (got []). Use a list of 1 to 100 jobs",
    ),
    (
        "jobs",
        with_(retryPolicy={"retryOn": {"exitCodes": []}}),
        "Tuple should have at least 1 item",
        "retryPolicy.retryOn.exitCodes: an empty list (got []). Use a list of 1 to 64 exit codes",
    ),
    (
        "jobs",
        with_(timeuotSec=5),
        "Extra inputs are not permitted",
        "timeuotSec: unknown field (got 5). Did you mean `timeoutSec`?",
    ),
    ("jobs", with_(handler="x"), "Omit", "handler: unknown field (got 'x'). Did you mean `target."),
    ("jobs", with_(maxAttempts=2), "Omit", "Did you mean `retryPolicy.maxAttempts`?"),
    ("jobs", with_(tz="UTC"), "Omit", "tz: unknown field (got 'UTC'). Did you mean `timezone`?"),
    ("jobs", with_(tags={}), "target", "Did you mean `labels`?"),
    ("jobs", with_(command="ls"), "Omit", "name it as target.handler."),
    ("jobs", with_(zzz=1), "Did you", "Omit this field, or check its spelling"),
    # The short form
    (
        "jobs",
        {"cron": "0 3 * * *"},
        ADD,
        (
            "taskId: required field is missing. It is the id of the job and names its script. For "
            "example `daily-report`."
        ),
    ),
    (
        "jobs",
        SHORT,
        "taskId: required",
        (
            "Job 'report' already exists (ACTIVE). Change it with PATCH, or use another id. taskId "
            "is the id of the job: for another schedule of the same script, give another taskId, "
            "and the script as `target`."
        ),
    ),
    (
        "jobs",
        SHORT | {"cron": "0 0 3 * * 1"},
        "1-5",
        (
            "cron: has 6 fields (got '0 0 3 * * 1'). Give five: minute, hour, day of month, month, "
            "day of week. For example, without its seconds: `0 3 * * 1`."
        ),
    ),
    (
        "jobs",
        SHORT | {"cron": "2027-02-01 00:00"},
        "1-5",
        (
            "cron: has 2 fields (got '2027-02-01 00:00'). For one run at an instant, write a job "
            "with `type` ONCE, and the instant as its `schedule`. For example "
            "`2030-05-24T10:00:00Z`."
        ),
    ),
    (
        "jobs",
        SHORT | {"cron": "PT5M"},
        "1 fields",
        (
            "cron: has 1 field (got 'PT5M'). For an interval, write a job with `type` INTERVAL, "
            "and the duration as its `schedule`. For example `PT5M`."
        ),
    ),
    (
        "jobs",
        {"taskId": "report"},
        "not a text",
        "cron: required field is missing. For example `0 3 * * 1-5`.",
    ),
    # The rest
    (
        "jobs/nightly/backfill",
        LATER | {"max": 10},
        "to 1000 occurrences",
        (
            "max: from 2026-06-01T03:00:00Z to 2026-11-30T03:00:00Z there are 183 occurrences (got "
            "10). Narrow `from` and `to`, or raise `max`, to 1000 at most."
        ),
    ),
]


@pytest.mark.parametrize(("path", "body", "before", "now"), SENT)
def test_sent(site: Site, path: str, body: dict[str, Any], before: str, now: str) -> None:
    said = site.sent(path, body)

    assert before not in said
    assert now in said


def test_a_short_form_in_a_batch_says_what_its_id_is(site: Site) -> None:
    answer = site.api.post("/v1/jobs:batch", json={"jobs": [SHORT]})
    [result] = answer.json()["results"]

    assert "taskId is the id of the job" in json.dumps(result["problem"])


def _documents(model: type[BaseModel] = Document) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _documents(each)


def test_each_required_field_says_what_it_is_for() -> None:
    include_all()  # imports the models of all routes
    sent_by_us = {RunMessage, SkippedRange}
    # The description of the API makes models of responses.
    models = [
        each
        for each in _documents()
        if each not in sent_by_us and each.__module__ != "functions.api.response_schemas"
    ]
    missing = [
        f"{model.__name__}.{found.field}"
        for model in models
        for name, field in model.model_fields.items()
        if field.is_required() and not name.startswith("type")
        for found in invalid_fields([_absent(field.alias or name)], model)
        if found.remedy == ADD
    ]

    assert len(models) > 20
    assert missing == []


def _absent(name: str) -> Any:
    return {"type": "missing", "loc": (name,), "msg": "", "input": {}}
