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
    database, store = dynamodb(), _store(settings)
    runs = DynamoDbRunStore(database, table=settings.runs_table)
    return ProjectRuns(store, runs, SystemClock())


def rebuild_overview(settings: ProjectorSettings) -> RebuildOverview:
    """The use case that adds the steps of all records."""
    database, store = dynamodb(), _store(settings)
    runs = DynamoDbRunStore(database, table=settings.runs_table)
    scan = DynamoDbRunScan(database, table=settings.runs_table)
    return RebuildOverview(scan, store, runs, SystemClock())


def _store(settings: ProjectorSettings) -> DynamoDbSegmentStore:
    kept = settings.run_retention.longest
    return DynamoDbSegmentStore(dynamodb(), table=settings.overview_table, kept=kept)
