"""The adapters of an executor of calls: HTTP callbacks and AWS APIs."""

from __future__ import annotations

import logging
from typing import Any

from nextfire.adapters.aws.calls import RoleClients, RoleIdentity
from nextfire.domain.ports.access import Secrets
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.target import TargetKind
from nextfire.settings import ExecutorSettings, region_environment
from nextfire.targets.aws.runner import AwsTarget
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.http.transport import Transport
from nextfire.targets.role import RoleCredentials
from nextfire.usecases.endpoint_gate import EndpointGate

_log = logging.getLogger(__name__)


def call_target(
    settings: ExecutorSettings,
    secrets: Secrets,
    role: RoleCredentials | None,
    clock: Clock,
    endpoints: EndpointStore | None,
) -> TargetRunner:
    """The runner of the targets of a pool of calls. *endpoints*: None if the stack is older than
    the table of endpoints.

    Raises:
        ValueError: A network of `call_networks` is invalid.
    """
    rules = AddressRules.of(settings.call_networks, settings.call_ports, http=settings.call_http)
    region: Any = region_environment().get("AWS_REGION")
    clients = RoleClients(role, region)
    runners: dict[TargetKind, TargetRunner] = {
        TargetKind.HTTP: HttpTarget(
            transport=Transport(rules),
            secrets=secrets,
            authentication=Authentication(
                secrets, role, RoleIdentity(clients), aws_actions=settings.aws_actions
            ),
            clock=clock,
            gate=_gate(settings, clock, endpoints),
        ),
        TargetKind.AWS: AwsTarget(clients, settings.aws_actions),
    }
    return TargetsByKind(runners)


def _gate(
    settings: ExecutorSettings, clock: Clock, endpoints: EndpointStore | None
) -> EndpointGate | None:
    if endpoints is None:
        return None
    return EndpointGate(
        endpoints,
        settings.pool,
        clock,
        on_error=lambda error: _log.warning("endpoint not read or written: %s", error),
    )
