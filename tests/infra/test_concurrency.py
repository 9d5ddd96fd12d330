"""The shares of the account's Lambda concurrency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.concurrency import MIN_UNRESERVED, share
from infra.settings import Settings
from tests.infra.conftest import Template, synthesize


def executors_at_most(template: Template) -> list[Any]:
    return [
        resource["Properties"]["ScalingConfig"]["MaximumConcurrency"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::EventSourceMapping"
        and "StartingPosition" not in resource["Properties"]
    ]


def reserved(template: Template) -> dict[str, int]:
    """The reserved concurrency by folder of the function."""
    return {
        properties["Handler"].split(".")[1]: properties["ReservedConcurrentExecutions"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
        and "ReservedConcurrentExecutions" in (properties := resource["Properties"])
    }


def test_a_new_account_keeps_enough_for_watcher_and_api(template: Template) -> None:
    # Two groups need 6 of 10, and Lambda accepts no less than 2 for a queue.
    assert executors_at_most(template) == [2]
    assert reserved(template) == {}, "Lambda rejects reservations in a small account"


def test_a_large_account_reserves_for_watcher_and_api(tmp_path: Path) -> None:
    template = synthesize(tmp_path, {"accountConcurrency": 1000})[2]

    assert reserved(template) == {"watcher": 3, "api": 100, "projector": 20}
    assert executors_at_most(template) == [50]


def test_a_pool_without_a_limit_gets_at_most_what_an_event_source_may_use(tmp_path: Path) -> None:
    """Lambda rejects a maximum concurrency of more than 1,000."""
    pools = '{"default": {"executor": "lambda", "maxConcurrency": null}}'

    template = synthesize(tmp_path, {"accountConcurrency": 10_000, "pools": pools})[2]

    assert executors_at_most(template) == [1000]


@pytest.mark.parametrize("groups", [1, 2, 10])
@pytest.mark.parametrize("pools", [0, 1, 2, 7])
@pytest.mark.parametrize("account", [10, 40, 99, 114, 150, 1000, 10_000])
def test_executors_never_use_it_up(account: int, groups: int, pools: int) -> None:
    try:
        shares = share(account, groups=groups, pools=pools)
    except ValueError:
        assert 3 * groups + 2 * pools >= account
        return
    others = account - shares.pool * pools
    if shares.watcher is not None and shares.api is not None and shares.projector is not None:
        parts = shares.watcher + shares.api + shares.projector
        assert account - parts >= MIN_UNRESERVED
        assert others >= parts or shares.pool == 2
    else:
        assert others > 3 * groups, "the watchers and one request"
        assert others >= 3 * groups + 3 or shares.pool == 2, "and a batch of the projector"


def test_an_account_that_is_too_small_is_rejected_with_the_setting_to_change() -> None:
    with pytest.raises(ValidationError, match="set accountConcurrency"):
        Settings.from_context({"groups": 4})


@pytest.mark.parametrize("account", [16, 40, 99, 150, 1000])
@pytest.mark.parametrize("auditors", [2, 7, 40])
def test_auditors_do_not_use_it_up_either(account: int, auditors: int) -> None:
    try:
        shares = share(account, groups=1, pools=1, auditors=auditors)
    except ValueError:
        assert 3 + 1 + 2 + auditors > account
        return
    assert account - shares.pool - auditors > 3, "the watchers and one request"


def test_too_many_segments_of_the_audit_are_rejected() -> None:
    """They would stop the watcher of a new account for minutes."""
    with pytest.raises(ValidationError, match="or lower auditSegments"):
        Settings.from_context({"auditSegments": 7})


def test_the_local_stack_has_no_limit() -> None:
    assert Settings.from_context({"groups": 4, "target": "local"}).groups == 4
