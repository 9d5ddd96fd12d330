"""The adapters of the projector."""

from __future__ import annotations

from nextfire.adapters.aws.clients import SystemClock, dynamodb
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.adapters.dynamodb.run_scan import DynamoDbRunScan
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.settings import ProjectorSettings
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.usecases.rebuild_overview import RebuildOverview


def project_runs(settings: ProjectorSettings) -> ProjectRuns:
    """The use case that adds what the stream delivers."""
    database = dynamodb()
    store = DynamoDbSegmentStore(database, table=settings.overview_table)
    runs = DynamoDbRunStore(database, table=settings.runs_table)
    return ProjectRuns(store, runs, SystemClock())


def rebuild_overview(settings: ProjectorSettings) -> RebuildOverview:
    """The use case that adds the steps of all records."""
    database = dynamodb()
    store = DynamoDbSegmentStore(database, table=settings.overview_table)
    runs = DynamoDbRunStore(database, table=settings.runs_table)
    scan = DynamoDbRunScan(database, table=settings.runs_table)
    return RebuildOverview(scan, store, runs, SystemClock())
