"""The projector: keeps the overview up to date from the stream of the table `runs`."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.run_stream import steps_in
from nextfire.settings import ProjectorSettings
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.wiring.projector import project_runs, rebuild_overview
from nextfire.wiring.telemetry import Telemetry

_FEW = timedelta(seconds=5)
"""How long earlier records are read with the first batch; all of a new stack take less."""

telemetry = Telemetry("projector")


@cache
def _project_runs() -> ProjectRuns:
    return project_runs(ProjectorSettings.read())


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Add a batch of stream records to the overview, or rebuild it.

    Args:
        event: Records of the stream of the table `runs`, in order; or ``{"rebuild": {}}``, which
            adds what the records of all runs say.
        context: The Lambda context, for the remaining time of a rebuild.

    Returns:
        For records, the first of them that has to be delivered again, as `batchItemFailures`. For a
        rebuild, the number of runs, and of items that do not decode; and, if it is not complete,
        `next`, the event that continues it.
    """
    if "rebuild" in event:
        return _rebuild(event["rebuild"], context)
    records = event["Records"]
    seen, undecodable = steps_in(records)
    projector = _project_runs()
    failed = {*projector.apply(seen)}
    if projector.lost:
        telemetry.logger.error("open runs were lost: rebuild the overview", problems=projector.lost)
        projector.lost.clear()
    if projector.begun:
        _complete_begun()
        projector.begun.clear()
    if undecodable:
        telemetry.logger.error("stream records do not decode", records=undecodable)
    telemetry.logger.info("projected", records=len(records), steps=len(seen), failed=len(failed))
    # Lambda delivers everything again from the first one on: the others are added twice.
    first = [each for each in records if each["eventID"] in failed][:1]
    return {
        "batchItemFailures": [
            {"itemIdentifier": each["dynamodb"]["SequenceNumber"]} for each in first
        ]
    }


@cache  # once in a process: a large stack needs the rebuild of its operator
def _complete_begun() -> None:
    """Add records from before the first batch: all of them, if they are read in time."""
    try:
        rebuild_overview(ProjectorSettings.read()).run(SystemClock().now() + _FEW)
    except Exception as error:  # noqa: BLE001 - the batch itself is stored
        telemetry.logger.warning("earlier runs were not added", problem=str(error))


def _rebuild(asked: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    left = timedelta(milliseconds=context.get_remaining_time_in_millis())
    until = SystemClock().now() + left / 2  # the rest is for what was read by then
    done = rebuild_overview(ProjectorSettings.read()).run(
        until, after=asked.get("after"), tenants=asked.get("tenants", [])
    )
    telemetry.logger.info("rebuilt", runs=done.runs, undecodable=done.undecodable)
    answer: dict[str, Any] = {"runs": done.runs, "undecodable": done.undecodable}
    if not done.done:
        answer["next"] = {"rebuild": {"after": done.after, "tenants": sorted(done.tenants)}}
    return answer
