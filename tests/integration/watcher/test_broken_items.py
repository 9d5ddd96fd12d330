"""Due entries and jobs that cannot be read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.domain.instants import to_ms
from nextfire.domain.job import Job
from tests.builders import a_fire, at
from tests.integration.deployment import SHARDS
from tests.integration.watcher.conftest import Stand, minutely, run_ids


def spoil(stand: Stand, job: Job, **values: str) -> None:
    entry = a_fire(job, at("12:00"))
    item = entry_item(entry, stand.clock.now(), SHARDS)
    item |= {name: {"S": value} for name, value in values.items()}
    stand.system.database.put_item(TableName=stand.system.due_table, Item=item)


def test_broken_entry_is_set_aside_and_its_chain_goes_on(stand: Stand) -> None:
    broken, fine = minutely("broken"), minutely("fine")
    stand.store(broken, fine)
    spoil(stand, broken, kind="NOTHING")

    stand.go_to(at("12:01:01"))

    quarantined = [i for i in stand.system.due_items() if i["bucket"]["S"] == "quarantine"]
    [item] = quarantined
    assert "NOTHING" in item["error"]["S"]
    assert (item["kind"]["S"], item["job_id"]["S"]) == ("NOTHING", "broken")
    assert sum(report.quarantined for report in stand.reports) == 1
    assert Counter(m.job_id for m in stand.received()) == {"broken": 2, "fine": 2}
    assert stand.fires(broken) == [a_fire(broken, at("12:02")).sort_key]


def test_an_orphaned_broken_entry_blocks_nothing(stand: Stand) -> None:
    fine = minutely("fine")
    stand.store(fine)
    item = entry_item(a_fire(fine, at("12:00")), stand.clock.now(), SHARDS)
    for key in (f"{to_ms(at('12:00'))}#rubbish", "9#", "rubbish", "~"):
        orphan = {"bucket": item["bucket"], "entry": {"S": key}}
        stand.system.database.put_item(TableName=stand.system.due_table, Item=orphan)

    stand.go_to(at("12:01:35"))

    assert [m.run_id for m in stand.received()] == run_ids(fine, "12:00", "12:01")
    items = stand.system.due_items()
    assert Counter(item["bucket"]["S"] == "quarantine" for item in items) == {
        True: 4,
        False: 1,
    }


def test_broken_job_keeps_its_entry_and_blocks_nothing(stand: Stand) -> None:
    broken, fine = minutely("broken"), minutely("fine")
    stand.store(broken, fine)
    key: Any = {"tenant": {"S": "acme"}, "job_id": {"S": "broken"}}
    table = stand.system.jobs_table
    item: Any = stand.system.database.get_item(TableName=table, Key=key)["Item"]
    spoilt = item | {"definition": {"S": "{"}}
    stand.system.database.put_item(TableName=table, Item=spoilt)

    stand.go_to(at("12:00:10"))

    assert [m.job_id for m in stand.received()] == ["fine"]
    assert stand.fires(broken) == [a_fire(broken, at("12:00")).sort_key]
    assert sum(report.quarantined for report in stand.reports) == 1
    assert any("cannot decide" in note for note in stand.notes)

    stand.system.database.put_item(TableName=table, Item=item)
    stand.go_to(at("12:01:30"))

    runs = [m.run_id for m in stand.received() if m.job_id == "broken"]
    assert runs == run_ids(broken, "12:00", "12:01"), "its runs continue once repaired"
