"""Jobs that are stored are exported as pipelines, and applied without a change."""

from __future__ import annotations

import pytest

from nextfire import Client
from nextfire.client.errors import MissingError
from nextfire.client.pipelines.apply import make_plan
from nextfire.client.pipelines.export import export
from tests.integration.pipelines.conftest import MANUAL, applied, job, pipelines


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
    with pytest.raises(MissingError, match="The pipeline 'none' has no jobs"):
        export(client, pipeline="none")
