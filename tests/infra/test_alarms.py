"""Alarms: whom they notify, and the runbook that they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click import Group

from infra.app import ROOT, STACK_NAME
from infra.constructs.alarms import RUNBOOK
from nextfire_cli.cost.model import ALARMS, DUE_ALARMS, monitoring
from nextfire_cli.cost.prices import costs
from nextfire_cli.main import whole_command
from tests.infra.conftest import Template, synthesize
from tests.infra.resources import properties

_RUNBOOK = (ROOT / RUNBOOK).read_text()
_SECTIONS = {
    re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-"): body
    for title, body in re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", _RUNBOOK, re.MULTILINE)
}
_COMMANDS = sorted(set(re.findall(r"(?<![\w./-])nextfire ([a-z][a-z -]*[a-z])", _RUNBOOK)))


@pytest.fixture(scope="module")
def mailed(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The template with a mail address and all optional alarms."""
    context = {
        "alarmEmail": "ops@example.com",
        "groups": 2,
        "alarmOnDeadRuns": True,
        "dueCapacity": {"writes": 30, "reads": 10},
    }
    return synthesize(tmp_path_factory.mktemp("mailed"), context)[2]


def alarms(template: Template) -> dict[str, Any]:
    """The properties of the alarms by logical id without its hash."""
    return {
        re.sub(r"^Monitoring|[0-9A-F]{8}$", "", name): resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] in {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"}
    }


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def test_every_alarm_has_its_section_of_the_runbook(template: Template) -> None:
    for name, alarm in alarms(template).items():
        _, _, section = alarm["AlarmDescription"].rpartition(f" Runbook: {RUNBOOK}#")
        assert section in _SECTIONS, name
        for part in ("**Means.**", "**Check.**", "**Fix.**"):
            assert part in _SECTIONS[section], (section, part)


def test_every_section_about_an_alarm_has_an_alarm(mailed: Template) -> None:
    named = {each["AlarmDescription"].rpartition("#")[2] for each in alarms(mailed).values()}

    assert named == {name for name, body in _SECTIONS.items() if "**Means.**" in body}


def test_every_alarm_that_the_pages_name_exists(mailed: Template) -> None:
    known = {_letters(name) for name in alarms(mailed)}
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts]
    named = {
        (page.name, name)
        for page in pages
        for sentence in re.findall(r"\balarms?\b[^.|]*", page.read_text(), re.IGNORECASE)
        for name in re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", sentence)
    }

    assert ("audit.md", "auditlog-behind") in named
    assert [(page, name) for page, name in named if _letters(name) not in known] == []


def test_an_alarm_has_the_name_by_which_the_runbook_routes_it(mailed: Template) -> None:
    """A notification shows the name only, and the runbook says which ones wake people."""
    names = {alarm["AlarmName"] for alarm in alarms(mailed).values()}
    rows = re.search(r"^\| alarm \| act .*\n((?:\|.*\n)+)", _RUNBOOK, re.MULTILINE)
    assert rows is not None
    routed = re.findall(r"`([a-z…-]+)`", rows[1])

    assert len(routed) >= 6
    for name in routed:
        pattern = re.escape(f"{STACK_NAME}-{name}").replace("…", "[a-z-]+")
        assert any(re.fullmatch(pattern, each) for each in names), name


def test_a_run_of_hours_is_not_one_that_waits(tmp_path: Path) -> None:
    """SQS counts the message of a running job for the age; workers run jobs of 11 hours."""
    pools = {"default": {"executor": "lambda"}, "batch": {"executor": "worker"}}
    found = alarms(synthesize(tmp_path, {"pools": pools})[2])

    expression = next(m for m in found["poolbatchwaits"]["Metrics"] if "Expression" in m)
    assert expression["Expression"] == "IF(waiting > 0, oldest, 0)"
    assert found["pooldefaultwaits"]["MetricName"] == "ApproximateAgeOfOldestMessage"


@pytest.mark.parametrize("words", _COMMANDS)
def test_every_command_of_the_runbook_exists(words: str) -> None:
    command: Any = whole_command()
    for word in words.split():
        if not isinstance(command, Group):
            break
        assert word in command.commands, words
        command = command.commands[word]


@pytest.mark.parametrize(
    "line",
    [
        '{"level":"ERROR","message":"stays in the queue"}',
        '{"level":"WARNING","message":"the watcher retries a step"}',
        "2026-11-27T03:00:00.000Z 5d1f Task timed out after 145.00 seconds",
        "RequestId: 5d1f Error: Runtime exited with error: signal: killed",
        "REPORT RequestId: 5d1f Status: error Error Type: Runtime.OutOfMemory",
        '{"type":"platform.report","record":{"requestId":"5d1f","status":"timeout"}}',
    ],
)
def test_the_filter_of_the_logs_shows_the_lines_to_look_for(line: str) -> None:
    """Filter patterns are case-sensitive (CloudWatch Logs user guide, "Filter pattern syntax")."""
    [pattern] = re.findall(r"--filter-pattern '(.+)'", _RUNBOOK)

    assert any(term.strip('"') in line for term in re.findall(r'\?("[^"]+"|\S+)', pattern))


def test_every_make_target_of_the_runbook_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", Path(ROOT, "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?m)(?:`|^)make ([a-z-]+)", _RUNBOOK)) <= targets


def test_one_composite_alarm_notifies_about_jobs_that_are_late(mailed: Template) -> None:
    by_name = alarms(mailed)
    [topic] = [
        name
        for name, resource in mailed["Resources"].items()
        if resource["Type"] == "AWS::SNS::Topic"
    ]
    summary = by_name["jobsnotontime"]

    assert summary["AlarmActions"] == [{"Ref": topic}]
    rule = json.dumps(summary["AlarmRule"])
    for member in ("watcherlate", "watcher0silent", "watcher1silent", "watcherundelivered"):
        assert f"Monitoring{member}" in rule
        assert "AlarmActions" not in by_name[member]
    for member in ("executordefaultthrottled", "duewritesthrottled", "duereadsthrottled"):
        assert f"Monitoring{member}" in rule
    for alone in ("apiservererrors", "auditorerrors", "defects", "auditlogbehind"):
        assert by_name[alone]["AlarmActions"] == [{"Ref": topic}]


def test_a_pool_whose_runs_wait_for_hours_hides_no_other_alarm(mailed: Template) -> None:
    """An operator need not act if runs wait for their turn ("pool-waits"). The composite alarm
    notifies only when it changes to ALARM ("PutCompositeAlarm", `AlarmActions`).
    """
    by_name = alarms(mailed)

    assert "pooldefaultwaits" not in json.dumps(by_name["jobsnotontime"]["AlarmRule"])
    assert by_name["pooldefaultwaits"]["AlarmActions"]


def test_an_address_gets_mails(mailed: Template) -> None:
    [subscription] = [
        resource["Properties"]
        for resource in mailed["Resources"].values()
        if resource["Type"] == "AWS::SNS::Subscription"
    ]

    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


def test_cloudwatch_may_publish_to_the_topic(mailed: Template) -> None:
    """A policy replaces the default one of a topic, which lets the owner's alarms publish."""
    [policy] = properties(mailed, "SNS::TopicPolicy")
    [allowed] = [
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]

    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Action"] == "sns:Publish"
    of_account = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert allowed["Condition"] == {"StringEquals": of_account}


def test_a_users_failing_script_notifies_only_if_enabled(
    mailed: Template, template: Template
) -> None:
    assert "AlarmActions" in alarms(mailed)["pooldefaultdeadletters"]
    assert "pooldefaultdeadletters" not in alarms(template)


def test_a_script_that_kills_its_function_once_notifies_no_one(template: Template) -> None:
    [errors] = [each for name, each in alarms(template).items() if name.endswith("defaulterrors")]

    assert errors["EvaluationPeriods"] == 3


def test_alarms_and_dashboard_of_a_default_stack_cost_at_most_5_usd(tmp_path: Path) -> None:
    """The bill counts the alarms of the template. Each of them reads one metric."""
    found = alarms(synthesize(tmp_path, {})[2])
    single = [alarm for alarm in found.values() if "MetricName" in alarm]

    assert len(single) == ALARMS, "the number in nextfire_cli/cost/model.py is another one"
    assert len(found) == ALARMS + 1, "and the composite alarm"
    assert round(sum(cost.usd for cost in costs(monitoring(busy=False))), 6) <= 5


def test_the_gateway_publishes_no_metrics_of_routes(template: Template) -> None:
    """Each is charged as a custom metric, and nothing reads them. Those of the API are free."""
    [stage] = properties(template, "ApiGatewayV2::Stage")
    [alarm] = [each for name, each in alarms(template).items() if name == "apiservererrors"]

    assert not stage["DefaultRouteSettings"].get("DetailedMetricsEnabled")
    assert [each["Name"] for each in alarm["Dimensions"]] == ["ApiId"]


def test_throttles_of_a_provisioned_due_table_are_an_alarm(
    mailed: Template, template: Template
) -> None:
    """DynamoDB publishes nothing without throttles. Alarms on its metrics may keep their state
    then, whatever they say of missing data ("PutMetricAlarm", `TreatMissingData`). So zeros are
    filled in.
    """
    found = {name: alarm for name, alarm in alarms(mailed).items() if name.startswith("due")}
    metrics = {}
    for name, alarm in found.items():
        filled, raw = sorted(alarm["Metrics"], key=lambda each: "Expression" not in each)
        assert filled["Expression"] == f"FILL({raw['Id']}, 0)"
        assert (filled.get("ReturnData", True), raw["ReturnData"]) == (True, False)
        metrics[name] = raw["MetricStat"]["Metric"]

    [table] = {metric["Dimensions"][0]["Value"]["Ref"] for metric in metrics.values()}
    assert table.startswith("StoresDue")
    assert {name: metric["MetricName"] for name, metric in metrics.items()} == {
        "duewritesthrottled": "WriteThrottleEvents",
        "duereadsthrottled": "ReadThrottleEvents",
    }
    assert len(found) == DUE_ALARMS
    assert not [name for name in alarms(template) if name.startswith("due")]


def test_without_a_topic_nothing_is_notified(template: Template) -> None:
    assert all("AlarmActions" not in alarm for alarm in alarms(template).values())


def test_the_local_stack_has_no_composite_alarm_and_no_expression(
    local_template: Template,
) -> None:
    """MiniStack rejects a template with one."""
    assert not any("Metrics" in alarm for alarm in alarms(local_template).values())
    kinds = {resource["Type"] for resource in local_template["Resources"].values()}
    assert "AWS::CloudWatch::Alarm" in kinds
    assert "AWS::CloudWatch::CompositeAlarm" not in kinds
