"""The environment variables of functions and workers."""

import json
from collections.abc import Sequence

from aws_cdk import Stack

from infra.call_settings import call_environment, call_facts
from infra.constructs.events import StackEventBus
from infra.constructs.pool import Pool
from infra.constructs.stores import Stores
from infra.pool_settings import PoolSettings
from infra.setting_types import iso8601
from infra.settings import Settings, StackTarget


class Environment:
    """Environment variables of the functions and workers of *stack*, by their names."""

    def __init__(
        self,
        stack: Stack,
        *,
        settings: Settings,
        stores: Stores,
        events: StackEventBus,
        pools: Sequence[Pool],
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._stores = stores
        self._events = events
        self._pools = pools

    def tables(self, *names: str) -> dict[str, str]:
        """The names of tables."""
        stores = self._stores
        tables = {
            "jobs": stores.jobs,
            "due": stores.due,
            "runs": stores.runs,
            "control": stores.control,
            "keys": stores.keys,
            "requests": stores.requests,
            "endpoints": stores.endpoints,
            "overview": stores.overview,
        }
        return {f"NEXTFIRE_{name.upper()}_TABLE": tables[name].table_name for name in names}

    def shards(self) -> dict[str, str]:
        """The numbers of shards of the due table."""
        return {
            "NEXTFIRE_WRITE_SHARDS": str(self._settings.write_shards),
            "NEXTFIRE_READ_SHARDS": str(self._settings.read_shards),
        }

    def run_retention(self) -> str:
        """The setting `runRetention`, as JSON."""
        return self._settings.run_retention.model_dump_json(by_alias=True)

    def tenant_weights(self) -> str:
        """The setting `tenantWeights`, as JSON."""
        return self._stack.to_json_string(self._settings.tenant_weights)

    def pools(self) -> str:
        """What the API, the watcher and the auditor know of the pools, as JSON."""
        pools = {
            pool.name: {
                "queueUrl": pool.queue.queue_url,
                "maxTimeout": iso8601(pool.settings.longest_run),
                "maxBacklog": pool.settings.max_backlog,
                **call_facts(pool.settings),
                **({"signed": True} if pool.settings.trusted_signers else {}),
                **({"tenants": [*tenants]} if (tenants := pool.settings.tenants) else {}),
            }
            for pool in self._pools
        }
        return self._stack.to_json_string(pools)

    def identity(self) -> dict[str, str]:
        """The API's environment variables for the authentication of callers."""
        jwt = self._settings.jwt
        auth = {"NEXTFIRE_AUTH": self._settings.auth.value}
        rules = [rule.model_dump(mode="json", by_alias=True) for rule in self._settings.iam or ()]
        return (
            auth
            | ({"NEXTFIRE_TENANT_CLAIM": jwt.tenant_claim} if jwt else {})
            | ({"NEXTFIRE_IAM_RULES": self._stack.to_json_string(rules)} if rules else {})
        )

    def hosted(self, pool: Pool) -> dict[str, str]:
        """Environment variables of an executor that logs to CloudWatch."""
        sample = {"NEXTFIRE_LOG_SAMPLE": f"{self._settings.log_sample:g}"}
        return self.execution(pool) | sample

    def execution(self, pool: Pool) -> dict[str, str]:
        """Environment variables of an executor of *pool*, a function or a worker."""
        tenants = pool.settings.tenants
        return {
            **self.tables("jobs", "due", "runs", "endpoints"),
            **self._target(pool.settings),
            "NEXTFIRE_AWS_CLIENT": self._settings.aws_client,
            "NEXTFIRE_POOL": pool.name,
            "NEXTFIRE_QUEUE_URL": pool.queue.queue_url,
            "NEXTFIRE_DLQ_URL": pool.dead_letters.queue_url,
            "NEXTFIRE_SCRIPTS_BUCKET": self._stores.scripts.bucket_name,
            "NEXTFIRE_OUTPUTS_BUCKET": self._stores.outputs.bucket_name,
            "NEXTFIRE_EVENT_BUS": self._events.bus.event_bus_name,
            "NEXTFIRE_QUOTAS": self._settings.quotas_json,
            "NEXTFIRE_WRITE_SHARDS": str(self._settings.write_shards),
            "NEXTFIRE_LEASE": iso8601(pool.settings.lease or self._settings.lease),
            "NEXTFIRE_RUN_RETENTION": self.run_retention(),
            "NEXTFIRE_CONTROL_TABLE": self._stores.control.table_name,
            "NEXTFIRE_GROUPS": str(self._settings.groups),
        } | ({"NEXTFIRE_TENANTS": json.dumps(tenants)} if tenants else {})

    def _target(self, pool: PoolSettings) -> dict[str, str]:
        """Environment variables of an executor for the scripts or calls that it runs."""
        if pool.targets == "calls":
            return call_environment(pool)
        on_aws = self._settings.target is StackTarget.AWS
        settings = {
            "NEXTFIRE_SLOTS": str(pool.slots) if pool.executor == "worker" else None,
            # The local target has no service that would start the next worker.
            "NEXTFIRE_ISOLATION": pool.isolation if pool.isolation == "task" and on_aws else None,
            "NEXTFIRE_SCRIPT_MEMORY": str(pool.script_memory_or_default),
            "NEXTFIRE_SCRIPT_START": "exec" if pool.script_start == "exec" else None,
            "NEXTFIRE_PACKAGES": pool.packages_or_default,
            "NEXTFIRE_PACKAGE_INDEX": pool.package_index,
            # The ARN, not the secret: the executor reads it with its role.
            "NEXTFIRE_PACKAGE_INDEX_SECRET": pool.package_index_secret,
            "NEXTFIRE_PACKAGE_POLICY": pool.package_policy_json,
            "NEXTFIRE_TRUSTED_SIGNERS": pool.trusted_signers_json,
            "NEXTFIRE_JOB_ROLE_ARN": pool.job_role,
            "NEXTFIRE_EGRESS": str(pool.egress),
            "NEXTFIRE_METADATA": pool.metadata_or_default,
        }
        return {name: value for name, value in settings.items() if value is not None}
