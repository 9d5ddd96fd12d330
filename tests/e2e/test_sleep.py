"""Watchers sleep, and are woken by what is due soon. EventBridge's ticks are off meanwhile."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nextfire.adapters.aws.wakers import WAKE_DETAIL, WAKE_SOURCE
from tests.e2e.conftest import FEW, Stack

_FALLS_ASLEEP_WITHIN = 240
_A_WHILE = 60


@pytest.fixture
def asleep(stack: Stack) -> Iterator[None]:
    """All watchers sleep, and no tick wakes them."""
    events = stack.client("events")
    rules = [
        rule["Name"]
        for rule in events.list_rules()["Rules"]
        if "minute)" in rule.get("ScheduleExpression", "")
    ]
    assert rules
    for name in rules:
        events.disable_rule(Name=name)
    remove_what_is_due(stack)
    try:
        deadline = time.monotonic() + _FALLS_ASLEEP_WITHIN
        while not lease_of(stack).get("released"):
            assert time.monotonic() < deadline, "the watchers do not fall asleep"
            time.sleep(1)
        yield
    finally:
        for name in rules:
            events.enable_rule(Name=name)


def remove_what_is_due(stack: Stack) -> None:
    """Pause the jobs that other tests left, and delete their entries: a watcher stays awake as long
    as one is due soon. Those of `held_back` are over after some minutes.
    """
    table, dynamodb = stack.outputs()["DueTable"], stack.client("dynamodb")
    keys: dict[str, str] = {}
    for page in dynamodb.get_paginator("scan").paginate(TableName=table):
        for item in page["Items"]:
            tenant, job_id = (item.get(name, {}).get("S", "") for name in ("tenant", "job_id"))
            if tenant in {"", FEW}:
                continue
            if tenant not in keys:
                keys[tenant] = stack.key_of(tenant)
            with stack.api_with(keys[tenant]) as api:
                api.post(f"/v1/jobs/{job_id}/pause")
            key = {name: item[name] for name in ("bucket", "entry")}
            dynamodb.delete_item(TableName=table, Key=key)


def lease_of(stack: Stack) -> dict[str, Any]:
    table = stack.outputs()["ControlTable"]
    key = {"id": {"S": "lease#0"}}
    item: dict[str, Any] = stack.client("dynamodb").get_item(TableName=table, Key=key)["Item"]
    return item


@pytest.mark.usefixtures("asleep")
def test_a_delay_of_five_seconds_is_served_without_a_tick(stack: Stack) -> None:
    stack.put_script("default", "hello", "print('awake')")
    due = {"type": "DELAY", "schedule": "PT5S", "target": {"handler": "hello"}}
    with stack.api() as api:
        job = api.post("/v1/jobs", json=due).raise_for_status().json()
        path = f"/v1/jobs/{job['jobId']}/executions"
        deadline = time.monotonic() + _A_WHILE
        runs: list[dict[str, Any]] = []
        while not runs and time.monotonic() < deadline:
            items = api.get(path).raise_for_status().json()["items"]
            runs = [run for run in items if run["state"] == "SUCCEEDED"]
            time.sleep(0.2)
    assert [run["stdout"] for run in runs] == ["awake\n"]


@pytest.mark.usefixtures("asleep")
def test_an_executor_wakes_a_watcher(stack: Stack) -> None:
    before = lease_of(stack)["epoch"]
    detail = json.dumps({"group": 0})
    entry = {
        "EventBusName": stack.outputs()["EventBus"],
        "Source": WAKE_SOURCE,
        "DetailType": WAKE_DETAIL,
        "Detail": detail,
    }
    answer = stack.client("events", role="worker-default").put_events(Entries=[entry])
    assert not answer["FailedEntryCount"]
    deadline = time.monotonic() + _A_WHILE
    while lease_of(stack)["epoch"] == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert lease_of(stack)["epoch"] != before
