"""Whether the roles of a stack allow what the processes of a flow ask of DynamoDB.

Evaluated here: moto has no policies, and the IAM of the local stack knows neither the attributes of
a request nor its leading keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.crashes.process import Process
from tests.infra.conftest import Template
from tests.infra.policies import Policies, of_request

_ROLES = {
    "api": "ApiRoleArn",
    "auditlog": "AuditLogRoleArn",
    "auditor": "AuditorRoleArn",
    "projector": "ProjectorRoleArn",
    "supervisor": "WorkerRoleArnDefault",
    "watcher": "WatcherRoleArn",
    "worker": "WorkerRoleArnDefault",
}
"""The output with the role of each process. Processes of the tests themselves have none."""
_PARTITIONS = {
    "control": "id",
    "due": "bucket",
    "endpoints": "owner",
    "jobs": "tenant",
    "keys": "tenant",
    "overview": "log",
    "requests": "request",
    "runs": "job",
}


class Permissions:
    """Collects requests of processes, and checks that *template* allows them."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._policies = {output: Policies(template, output) for output in {*_ROLES.values()}}
        self.requests: list[tuple[str, str, Any]] = []

    def recording(self, begin: Callable[..., None]) -> Callable[..., None]:
        """*begin*, a method of `Process`, which collects the requests in addition."""

        def record(process: Process, model: Any, params: Any, **more: Any) -> None:
            if model.service_model.service_name == "dynamodb" and process.what in _ROLES:
                self.requests.append((process.what, model.name, json.loads(params["body"])))
            begin(process, model, params, **more)

        return record

    def check(self) -> None:
        """Check that all collected requests are allowed.

        Raises:
            AssertionError: One is not.
        """
        for process, operation, body in self.requests:
            policies = self._policies[_ROLES[process]]
            for action, table, request in _parts(operation, body):
                resource = self._resource(table, request.get("IndexName"))
                context = of_request(request, _PARTITIONS[table])
                allowed = policies.allow(f"dynamodb:{action}", resource, context)
                assert allowed, f"{process} may not {action} in {table}: {context}"

    def _resource(self, table: str, index: str | None) -> str:
        name = self._template["Outputs"][f"{table.capitalize()}Table"]["Value"]["Ref"]
        return f"<{name}.Arn>" if index is None else f"<{name}.Arn>/index/{index}"


def _parts(operation: str, body: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """For each item that a call is about: the action that IAM checks, the table, the request."""
    match operation:
        case "TransactWriteItems":
            for part in body["TransactItems"]:
                [(kind, request)] = part.items()
                yield f"{kind}Item", request["TableName"], request
        case "BatchWriteItem":
            for table, writes in body["RequestItems"].items():
                for write in writes:
                    [request] = write.values()
                    yield operation, table, request
        case "BatchGetItem":
            for table, read in body["RequestItems"].items():
                for key in read["Keys"]:
                    yield operation, table, {**read, "Key": key}
        case _:
            yield operation, body["TableName"], body
