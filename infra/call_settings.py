"""The settings of a pool that makes calls: what it may reach."""

from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from infra.setting_types import StrictSettings
from nextfire.targets.http.addresses import never_opens

if TYPE_CHECKING:
    from infra.pool_settings import PoolSettings


def _network(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"callNetworks: {text!r} is not a network ({error}): write 10.0.0.0/8 or fd00::/8"
        ) from error
    if never_opens(network):
        raise ValueError(
            f"callNetworks: {text} never opens: callbacks do not reach instance metadata, "
            "link-local, multicast, unspecified and IPv4-mapped addresses. Remove it, or write a "
            "private network such as 10.0.0.0/8"
        )
    return str(network)


_AWS_ACTION = r"^(\*|[a-z][a-z0-9-]*:(\*|[A-Z][A-Za-z0-9]*\*?))$"


class CallSettings(StrictSettings):
    """What the jobs of a pool are: scripts, or calls with their limits."""

    targets: Literal["scripts", "calls"] = "scripts"
    """What the pool runs: `scripts`, or `calls` for HTTP callbacks and AWS calls."""
    call_networks: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], Field(max_length=50)
    ] = ()
    """Networks that callbacks may reach although they are not public, such as `10.0.0.0/8`."""
    call_ports: Annotated[
        tuple[Annotated[int, Field(ge=0, le=65_535)], ...], Field(max_length=50)
    ] = ()
    """Ports of callbacks in addition to 443; 0: all."""
    call_http: bool = False
    """Whether callbacks may use plain HTTP."""
    aws_actions: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=_AWS_ACTION)], ...], Field(max_length=100)
    ] = ("*",)
    """The actions that AWS calls may use: `sqs:SendMessage`, `sqs:*`, or `*` for all except those
    of services that manage identities. Callbacks are signed for services with all actions only."""

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        of_scripts = {
            *("isolation", "packages", "package_index", "package_index_secret", "package_policy"),
            *("trusted_signers", "script_memory", "script_start", "egress", "metadata"),
        }
        of_calls = {"call_networks", "call_ports", "call_http", "aws_actions"}
        other = of_scripts if self.targets == "calls" else of_calls
        if wrong := sorted(self.model_fields_set & other):
            kind = "scripts" if self.targets == "calls" else "calls"
            raise ValueError(
                f"{to_camel(wrong[0])} applies to pools of {kind} only: remove it, or set "
                f'"targets": "{kind}"'
            )
        return self


def call_environment(pool: "PoolSettings") -> dict[str, str]:
    """Environment variables of an executor of calls."""
    settings = {
        "NEXTFIRE_TARGETS": pool.targets,
        "NEXTFIRE_SLOTS": str(pool.slots) if pool.executor == "worker" else None,
        "NEXTFIRE_CALL_NETWORKS": ",".join(pool.call_networks) or None,
        "NEXTFIRE_CALL_PORTS": ",".join(map(str, pool.call_ports)) or None,
        "NEXTFIRE_CALL_HTTP": "true" if pool.call_http else None,
        "NEXTFIRE_AWS_ACTIONS": ",".join(pool.aws_actions),
        "NEXTFIRE_JOB_ROLE_ARN": pool.job_role,
    }
    return {name: value for name, value in settings.items() if value is not None}


def call_facts(pool: "PoolSettings") -> dict[str, Any]:
    """What the API checks when a job of a pool of calls is stored; empty for scripts."""
    if pool.targets == "scripts":
        return {}
    return {
        "targets": pool.targets,
        "callNetworks": [*pool.call_networks],
        "callPorts": [*pool.call_ports],
        "callHttp": pool.call_http,
        "awsActions": [*pool.aws_actions],
        "hasJobRole": pool.job_role is not None,
    }
