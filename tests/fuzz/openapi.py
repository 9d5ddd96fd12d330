"""The API's description with values that exist: with arbitrary job ids and schedules, most requests
would be rejected or find nothing.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from functions.api.openapi import description
from tests.fuzz.items import SCHEDULES

JOBS: list[dict[str, Any]] = [
    each | {"target": {"handler": "hello"}}
    for each in [*SCHEDULES, {"type": "CRON", "schedule": "0 0 1 1 *", "name": "yearly"}]
]
EXAMPLES: dict[str, list[Any]] = {
    "JobRequest": JOBS,
    "JobPatch": [{"name": "n"}, {"schedule": "0 0 * * *", "type": "CRON"}, {"target": None}],
    "PreviewRequest": [{**each, "count": 3} for each in SCHEDULES],
    "RedrivePoolRequest": [{}, {"limit": 3, "from": "2026-05-24T00:00:00Z"}],
    "ResumeRequest": [{}],
    "UploadRequest": [{"handler": "report", "size": 1, "sha256": "0" * 64}],
    "BatchRequest": [{"jobs": JOBS[:3]}, {"jobs": [{**JOBS[0], "jobId": "living"}, {}, 5]}],
    "PauseManyRequest": [{"labels": {"team": "web"}, "reason": "r"}, {"allJobs": True}],
    "ResumeManyRequest": [{"labels": {"team": "web"}}, {"allJobs": True}],
    "CancelManyRequest": [{"labels": {"team": "web"}}],
}
REASONS: list[Any] = [{}, {"reason": "the ledger is closed"}]
PARAMETERS: dict[str, list[Any]] = {
    "limit": [1, 100, 0, -1, "1e3"],
    "count": [1, 100, 101],
    "attempt": [1, 2, 999_999_999, 0],
    "state": ["DEAD", "RUNNING", "ACTIVE"],
    "pool": ["default", "gone", "%2F"],
    "from": ["2026-05-24T00:00:00Z", "2026-05-24"],
    "to": ["2099-05-24T00:00:00Z", "0001-01-01T00:00:00+14:00"],
    "cursor": ["x", "====", "bGl2aW5n", "living.", "living.x", "."],
    "handler": ["report", "report.zip", "%2e%2e", "a%2Fb"],
    "jobId": ["deleted", "theirs", "a.b", "%00"],
    "executionId": [
        *("living.20260524T120000000Z-k3x9m2ab", "x", "living.20261324T120000000Z-k3x9m2ab"),
        "theirs.20260524T120000000Z-k3x9m2ab",
    ],
}
"""Values that exist or are odd; the existing ids are added."""


def openapi(ids: dict[str, list[str]]) -> dict[str, Any]:
    """The API's description, with few values of parameters and mostly valid bodies. *ids*: existing
    values of path parameters.
    """
    document = deepcopy(description())
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                name = parameter["name"]
                if name in PARAMETERS:
                    parameter["schema"] = {"enum": [*ids.get(name, []), *PARAMETERS[name]]}
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                content["schema"] = _mostly_valid(content["schema"])
    return document


def _mostly_valid(schema: dict[str, Any]) -> dict[str, Any]:
    model = schema.get("anyOf", [schema])[0].get("$ref", "").rpartition("/")[2]
    return {"anyOf": [{"enum": EXAMPLES.get(model, REASONS)}, schema]}
