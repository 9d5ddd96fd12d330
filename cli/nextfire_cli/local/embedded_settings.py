"""The settings of the parts of an embedded stack: names of fields of `nextfire.settings`."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

_SLOTS = 16
_CALL_SLOTS = 64
"""Calls mostly wait."""
_MAX_TIMEOUT = "PT11H"
_JOB_RETENTION = "P90D"
_TABLES = ("jobs", "due", "runs", "control", "keys", "requests", "endpoints")
_CALLS = {
    "targets": "calls",
    "call_networks": "127.0.0.0/8,::1/128",
    "call_ports": "0",
    "call_http": "true",
    "aws_actions": "",
}
"""As the pool `calls` of the local settings in cdk.json, without AWS."""


def worker_settings(pools: Sequence[str], lease: timedelta | None) -> dict[str, dict[str, str]]:
    """Settings of the workers of each pool: *pools*, which run scripts, and `calls`."""
    shared = {} if lease is None else {"lease": f"PT{int(lease.total_seconds())}S"}
    found = {name: {"slots": str(_SLOTS)} for name in pools}
    found["calls"] = {"slots": str(_CALL_SLOTS), **_CALLS}
    return {
        name: {**shared, **pool, "pool": name, "queue_url": name, "dlq_url": f"{name}-dlq"}
        for name, pool in found.items()
    }


def shared_settings(pools: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Settings of all parts. *pools*: as from `worker_settings`."""
    deployed = {name: _deployed(name, pool) for name, pool in pools.items()}
    return {
        **{f"{name}_table": name for name in _TABLES},
        "scripts_bucket": "scripts",
        "outputs_bucket": "outputs",
        "event_bus": "events",
        "write_shards": "1",
        "read_shards": "1",
        "job_retention": _JOB_RETENTION,
        # None: so workers send the runs of children themselves, not with the watcher's next poll.
        "quotas": "{}",
        "pools": json.dumps(deployed),
    }


def _deployed(name: str, pool: Mapping[str, str]) -> dict[str, object]:
    """The pool as the API and the watcher know it."""
    found: dict[str, object] = {"queueUrl": name, "maxTimeout": _MAX_TIMEOUT}
    if pool.get("targets") != "calls":
        return found
    return {
        **found,
        "targets": "calls",
        "callNetworks": pool["call_networks"].split(","),
        "callPorts": [int(port) for port in pool["call_ports"].split(",")],
        "callHttp": pool["call_http"] == "true",
        "awsActions": [],
    }
