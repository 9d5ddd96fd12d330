"""The stack: connects the constructs and grants each of them only the permissions it needs."""

from datetime import timedelta

from aws_cdk import CfnOutput, Duration, IStackSynthesizer, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.build import Build
from infra.call_settings import call_environment, call_facts
from infra.constructs.api import Api
from infra.constructs.audit_log import AuditLogFeed
from infra.constructs.auditor import AuditorRules
from infra.constructs.code import Code
from infra.constructs.encryption import READ, TABLES, WRITE, Encryption
from infra.constructs.events import StackEventBus
from infra.constructs.executor_access import ExecutorAccess
from infra.constructs.function import Function
from infra.constructs.grants import allow, dynamodb, only_attributes
from infra.constructs.monitoring import Monitoring
from infra.constructs.pool import Pool
from infra.constructs.private_network import PrivateNetwork
from infra.constructs.projector_feed import ProjectorFeed
from infra.constructs.stores import DEAD_INDEX, Stores
from infra.constructs.watcher import WatcherRules
from infra.constructs.worker_service import WorkerService, create_vpc
from infra.constructs.worker_trust import worker_trust
from infra.pool_settings import LAMBDA_LIMIT, FargateSettings, PoolSettings
from infra.setting_types import iso8601
from infra.settings import Auth, Settings, StackTarget

_API_TIMEOUT = LAMBDA_LIMIT / 30  # API Gateway returns 503 after 30 s anyway
_AUDIT_LOG_TIMEOUT = timedelta(seconds=60)
_AUDIT_LOG_MEMORY = 512
_PROJECTOR_TIMEOUT = timedelta(minutes=2)
"""Of each call of a rebuild. A batch takes less than a second; one that hangs holds a concurrent
execution of the account."""
_AUTHORIZER_TIMEOUT = timedelta(seconds=8)  # API Gateway waits up to 10 s


def pascal(name: str) -> str:
    """A pool's name as part of a logical id or an output's key: `batch-etl` becomes `BatchEtl`."""
    return "".join(part.capitalize() for part in name.split("-"))


class NextfireStack(Stack):
    """The scheduler: stores, pools, executors, watcher, auditor, API, audit log and alarms."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        build: Build,
        synthesizer: IStackSynthesizer | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            synthesizer=synthesizer,
            description="nextfire: a serverless distributed job scheduler",
        )
        self._settings = settings
        self._shares = settings.concurrency if settings.target is StackTarget.AWS else None
        self._build = build
        self._encryption = Encryption(self, "Encryption", settings=settings)
        self._key = self._encryption.key
        self._stores = Stores(self, "Stores", settings=settings, key=self._key)
        self._events = StackEventBus(self, "Events")
        self._code = Code(
            self, "Code", build=build, target=settings.target, signatures=settings.signatures
        )
        self._pools = [
            Pool(
                self,
                f"Pool{pascal(name)}",
                name=name,
                settings=pool,
                target=settings.target,
                key=self._key,
            )
            for name, pool in settings.pools.items()
        ]
        self._executors: dict[str, Function] = {}
        self._worker_roles: dict[str, iam.Role] = {}
        self._worker_services: dict[str, WorkerService] = {}
        self._own_vpc: ec2.IVpc | None = None
        for pool in self._pools:
            if pool.settings.executor == "lambda":
                self._executors[pool.name] = self._create_executor(pool)
            else:
                self._worker_roles[pool.name] = self._create_worker_role(pool)
                if settings.target is StackTarget.AWS and (fargate := pool.settings.fargate):
                    self._worker_services[pool.name] = self._create_worker_service(pool, fargate)
        self._watcher = self._create_watcher()
        # Update the consumers of messages before the producer.
        self._watcher.function.node.add_dependency(
            *(executor.function for executor in self._executors.values()),
            *self._worker_services.values(),
        )
        self._auditor = self._create_auditor()
        self._audit_log_function = self._create_audit_log_function()
        self._audit_log = AuditLogFeed(
            self,
            "AuditLog",
            function=self._audit_log_function,
            tables={
                "jobs": self._stores.jobs,
                "runs": self._stores.runs,
                "keys": self._stores.keys,
                "requests": self._stores.requests,
            },
            settings=settings,
            key=self._key,
        )
        self._projector = self._create_projector()
        self._projector_feed = ProjectorFeed(
            self,
            "ProjectorFeed",
            function=self._projector,
            runs=self._stores.runs,
            settings=settings,
            key=self._key,
        )
        self._api_function = self._create_api_function()
        self._authorizer = self._create_authorizer() if settings.auth is Auth.KEYS else None
        self._api = Api(
            self,
            "Http",
            function=self._api_function,
            authorizer=self._authorizer,
            settings=settings,
            key=self._key,
        )
        Monitoring(
            self,
            "Monitoring",
            functions={
                "api": self._api_function,
                **({"authorizer": self._authorizer} if self._authorizer else {}),
                "watcher": self._watcher,
                "auditor": self._auditor,
                "auditlog": self._audit_log_function,
                "projector": self._projector,
                **{f"executor-{name}": function for name, function in self._executors.items()},
            },
            pools=self._pools,
            server_errors=self._api.http_api.metric_server_error(
                period=Duration.minutes(1), statistic="Sum"
            ),
            audit_failures=self._audit_log.failures,
            projector_failures=self._projector_feed.failures,
            settings=settings,
        )
        self._write_outputs()

    def _create_api_function(self) -> Function:
        stores = self._stores
        api = Function(
            self,
            "Api",
            folder="api",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=self._settings.api_memory,
            timeout=_API_TIMEOUT,
            audited=True,
            reserved=self._shares.api if self._shares else None,
            environment={
                **self._tables("jobs", "due", "runs", "control", "keys", "requests", "endpoints"),
                **self._tables("overview"),
                **self._shards(),
                **self._identity_environment(),
                "NEXTFIRE_POOLS": self._pools_json(),
                "NEXTFIRE_QUOTAS": self._settings.quotas_json,
                "NEXTFIRE_TENANT_WEIGHTS": self.to_json_string(self._settings.tenant_weights),
                "NEXTFIRE_SCRIPTS_BUCKET": stores.scripts.bucket_name,
                "NEXTFIRE_OUTPUTS_BUCKET": stores.outputs.bucket_name,
                "NEXTFIRE_RUN_RETENTION": self._run_retention(),
                "NEXTFIRE_WATCHER_FUNCTION": self._watcher.function.function_name,
                "NEXTFIRE_GROUPS": str(self._settings.groups),
            },
        )
        # It wakes a watcher when it stores an entry that is due soon.
        allow(api.role, ["lambda:InvokeFunction"], self._watcher.function.function_arn)
        # The API counts jobs of tenants with a job quota, and returns the counts.
        allow(
            api.role,
            dynamodb("GetItem", "BatchGetItem", "PutItem", "Query", "UpdateItem"),
            stores.jobs.table_arn,
        )
        # Before it drops data that watchers may need, it checks that they no longer need it.
        allow(api.role, dynamodb("PutItem", "Query"), stores.due.table_arn)
        # It cancels runs, and lists and redrives dead runs. Undoing a skip deletes a record.
        allow(
            api.role,
            dynamodb("GetItem", "BatchGetItem", "PutItem", "Query", "UpdateItem", "DeleteItem"),
            stores.runs.table_arn,
        )
        allow(api.role, dynamodb("Query"), f"{stores.runs.table_arn}/index/{DEAD_INDEX}")
        self._grant_read(api.role, stores.outputs)
        # Users upload scripts with URLs that the API presigned.
        allow(api.role, ["s3:PutObject"], stores.scripts.arn_for_objects("*"))
        allow(api.role, ["s3:ListBucket", "s3:ListBucketVersions"], stores.scripts.bucket_arn)
        allow(api.role, dynamodb("GetItem", "BatchGetItem", "PutItem"), stores.control.table_arn)
        allow(api.role, dynamodb("PutItem", "UpdateItem"), stores.requests.table_arn)
        allow(api.role, dynamodb("GetItem", "PutItem", "Query"), stores.endpoints.table_arn)
        allow(api.role, dynamodb("GetItem", "Query"), stores.overview.table_arn)
        if self._settings.auth is Auth.KEYS:
            allow(
                api.role,
                dynamodb("GetItem", "PutItem", "Query", "UpdateItem"),
                stores.keys.table_arn,
            )
        self._encryption.allow(api.role, "dynamodb", TABLES)
        # Uploads with presigned URLs use the KMS key with the API's permissions.
        self._encryption.allow(api.role, "s3", WRITE)
        return api

    def _identity_environment(self) -> dict[str, str]:
        """The API's environment variables for the authentication of callers."""
        jwt = self._settings.jwt
        auth = {"NEXTFIRE_AUTH": self._settings.auth.value}
        rules = [rule.model_dump(mode="json", by_alias=True) for rule in self._settings.iam or ()]
        return (
            auth
            | ({"NEXTFIRE_TENANT_CLAIM": jwt.tenant_claim} if jwt else {})
            | ({"NEXTFIRE_IAM_RULES": self.to_json_string(rules)} if rules else {})
        )

    def _create_authorizer(self) -> Function:
        authorizer = Function(
            self,
            "Authorizer",
            folder="authorizer",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=self._settings.authorizer_memory,
            timeout=_AUTHORIZER_TIMEOUT,
            environment=self._tables("keys"),
        )
        keys = self._stores.keys.table_arn
        allow(authorizer.role, dynamodb("GetItem"), keys)
        allow(
            authorizer.role,
            dynamodb("UpdateItem"),
            keys,
            conditions=only_attributes("tenant", "key_id", "last_used_on"),
        )
        self._encryption.allow(authorizer.role, "dynamodb", TABLES)
        return authorizer

    def _create_watcher(self) -> Function:
        stores = self._stores
        watcher = Function(
            self,
            "Watcher",
            folder="watcher",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=self._settings.watcher_memory,
            timeout=self._settings.watcher_timeout,
            reserved=self._shares.watcher if self._shares else None,
            environment={
                **self._tables("jobs", "due", "runs", "control"),
                **self._shards(),
                "NEXTFIRE_POOLS": self._pools_json(),
                "NEXTFIRE_GROUPS": str(self._settings.groups),
                "NEXTFIRE_TENANT_WEIGHTS": self.to_json_string(self._settings.tenant_weights),
                "NEXTFIRE_QUOTAS": self._settings.quotas_json,
                "NEXTFIRE_LIFE": iso8601(self._settings.life),
            },
        )
        allow(
            watcher.role,
            dynamodb("Query", "PutItem", "DeleteItem", "BatchWriteItem"),
            stores.due.table_arn,
        )
        # The watcher completes a job whose last occurrence does not run.
        allow(
            watcher.role,
            dynamodb("GetItem", "BatchGetItem", "PutItem", "UpdateItem"),
            stores.jobs.table_arn,
        )
        allow(
            watcher.role,
            dynamodb("GetItem", "Query", "PutItem", "UpdateItem"),
            stores.runs.table_arn,
        )
        # It counts runs of tenants with a run quota.
        allow(
            watcher.role,
            dynamodb("GetItem", "BatchGetItem", "PutItem", "UpdateItem"),
            stores.control.table_arn,
        )
        for pool in self._pools:
            pool.grant_send(watcher.role)
        self._encryption.allow(watcher.role, "dynamodb", TABLES)
        self._encryption.allow(watcher.role, "sqs", WRITE)
        WatcherRules(
            self,
            "WatcherRules",
            watcher=watcher,
            groups=self._settings.groups,
            bus=self._events.bus,
        )
        return watcher

    def _create_auditor(self) -> Function:
        stores = self._stores
        auditor = Function(
            self,
            "Auditor",
            folder="auditor",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=self._settings.auditor_memory,
            timeout=LAMBDA_LIMIT,
            environment={
                **self._tables("jobs", "due", "runs", "control"),
                **self._shards(),
                "NEXTFIRE_POOLS": self._pools_json(),
                "NEXTFIRE_AUDIT_EVERY": iso8601(self._settings.audit_every),
                "NEXTFIRE_AUDIT_SEGMENTS": str(self._settings.audit_segments),
                "NEXTFIRE_JOB_RETENTION": iso8601(self._settings.job_retention),
            },
        )
        # The auditor completes a job whose last run has ended, or that has no runs left, and
        # removes ended jobs.
        allow(
            auditor.role,
            dynamodb("Scan", "GetItem", "BatchGetItem", "UpdateItem", "DeleteItem"),
            stores.jobs.table_arn,
        )
        allow(
            auditor.role,
            dynamodb("Query", "BatchGetItem", "PutItem", "BatchWriteItem"),
            stores.due.table_arn,
        )
        allow(auditor.role, dynamodb("GetItem", "Query", "UpdateItem"), stores.runs.table_arn)
        allow(
            auditor.role, dynamodb("GetItem", "BatchGetItem", "PutItem"), stores.control.table_arn
        )
        for pool in self._pools:
            pool.grant_read_size(auditor.role)
        self._encryption.allow(auditor.role, "dynamodb", TABLES)
        AuditorRules(
            self,
            "AuditorRule",
            auditor=auditor,
            every=self._settings.auditor_wake_every,
            segments=self._settings.audit_segments,
        )
        return auditor

    def _create_audit_log_function(self) -> Function:
        audit_log = Function(
            self,
            "Auditlog",
            folder="auditlog",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=_AUDIT_LOG_MEMORY,
            timeout=_AUDIT_LOG_TIMEOUT,
            environment={
                **self._tables("jobs", "runs", "keys", "requests"),
                "NEXTFIRE_AUDIT_BUCKET": self._stores.audit.bucket_name,
            },
        )
        bucket = self._stores.audit
        allow(audit_log.role, ["s3:GetObject", "s3:PutObject"], bucket.arn_for_objects("chain/*"))
        allow(audit_log.role, ["s3:ListBucket"], bucket.bucket_arn)
        self._encryption.allow(audit_log.role, "dynamodb", READ)
        self._encryption.allow(audit_log.role, "s3", WRITE)
        self._encryption.allow(audit_log.role, "sqs", WRITE)
        return audit_log

    def _create_projector(self) -> Function:
        stores = self._stores
        projector = Function(
            self,
            "Projector",
            folder="projector",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=self._settings.projector_memory,
            timeout=_PROJECTOR_TIMEOUT,
            reserved=self._shares.projector if self._shares else None,
            environment={
                **self._tables("runs", "overview"),
                "NEXTFIRE_RUN_RETENTION": self._run_retention(),
            },
        )
        allow(
            projector.role,
            dynamodb("GetItem", "Query", "PutItem", "BatchWriteItem"),
            stores.overview.table_arn,
        )
        # A rebuild reads all records.
        allow(projector.role, dynamodb("Scan", "BatchGetItem"), stores.runs.table_arn)
        self._encryption.allow(projector.role, "dynamodb", TABLES)
        self._encryption.allow(projector.role, "sqs", WRITE)
        return projector

    def _create_executor(self, pool: Pool) -> Function:
        executor = Function(
            self,
            f"Executor{pascal(pool.name)}",
            folder="executor",
            code=self._code,
            settings=self._settings,
            key=self._key,
            memory=pool.settings.memory,
            timeout=pool.settings.work_limit,
            frequent=True,
            environment=self._hosted_environment(pool),
            network=self._private_network(pool),
        )
        self._grant_execution(executor.role, pool)
        pool.feed(executor, at_most=self._shares.pool if self._shares else None)
        return executor

    def _private_network(self, pool: Pool) -> PrivateNetwork | None:
        vpc = pool.settings.vpc
        if vpc and self._settings.target is StackTarget.AWS:
            return PrivateNetwork(self, f"Network{pascal(pool.name)}", pool=pool.name, settings=vpc)
        return None

    def _create_worker_role(self, pool: Pool) -> iam.Role:
        """The role of the pool's workers, on Fargate or on any other machine."""
        role = iam.Role(
            self,
            f"Worker{pascal(pool.name)}",
            assumed_by=worker_trust(self, pool.settings, self._settings.target),
        )
        self._grant_execution(role, pool)
        return role

    def _create_worker_service(self, pool: Pool, fargate: FargateSettings) -> WorkerService:
        if fargate.vpc_id is None and self._own_vpc is None:
            self._own_vpc = create_vpc(self, "WorkerVpc")
        return WorkerService(
            self,
            f"Workers{pascal(pool.name)}",
            pool=pool,
            role=self._worker_roles[pool.name],
            vpc=self._own_vpc,
            fargate=fargate,
            build=self._build,
            settings=self._settings,
            environment=self._hosted_environment(pool),
            key=self._key,
        )

    def _hosted_environment(self, pool: Pool) -> dict[str, str]:
        """Environment variables of an executor that logs to CloudWatch."""
        sample = {"NEXTFIRE_LOG_SAMPLE": f"{self._settings.log_sample:g}"}
        return self._execution_environment(pool) | sample

    def _execution_environment(self, pool: Pool) -> dict[str, str]:
        """Environment variables of an executor of *pool*, a function or a worker."""
        return {
            **self._tables("jobs", "due", "runs", "endpoints"),
            **self._target_environment(pool.settings),
            "NEXTFIRE_AWS_CLIENT": self._settings.aws_client,
            "NEXTFIRE_POOL": pool.name,
            "NEXTFIRE_QUEUE_URL": pool.queue.queue_url,
            "NEXTFIRE_DLQ_URL": pool.dead_letters.queue_url,
            "NEXTFIRE_SCRIPTS_BUCKET": self._stores.scripts.bucket_name,
            "NEXTFIRE_OUTPUTS_BUCKET": self._stores.outputs.bucket_name,
            "NEXTFIRE_EVENT_BUS": self._events.bus.event_bus_name,
            "NEXTFIRE_QUOTAS": self._settings.quotas_json,
            "NEXTFIRE_WRITE_SHARDS": str(self._settings.write_shards),
            "NEXTFIRE_LEASE": iso8601(self._settings.lease),
            "NEXTFIRE_RUN_RETENTION": self._run_retention(),
            "NEXTFIRE_CONTROL_TABLE": self._stores.control.table_name,
            "NEXTFIRE_GROUPS": str(self._settings.groups),
        }

    def _target_environment(self, pool: PoolSettings) -> dict[str, str]:
        """Environment variables of an executor for the scripts or calls that it runs."""
        if pool.targets == "calls":
            return call_environment(pool)
        on_aws = self._settings.target is StackTarget.AWS
        settings = {
            "NEXTFIRE_SLOTS": str(pool.slots) if pool.executor == "worker" else None,
            # The local target has no service that would start the next worker.
            "NEXTFIRE_ISOLATION": pool.isolation if pool.isolation == "task" and on_aws else None,
            "NEXTFIRE_SCRIPT_MEMORY": str(pool.script_memory_or_default),
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

    def _grant_execution(self, role: iam.Role, pool: Pool) -> None:
        wide = self._settings.pool_access == "all"
        ExecutorAccess(role, pool, self._stores, wide=wide).grant()
        self._events.grant_publish(role)
        if index_secret := pool.settings.package_index_secret:
            kind = (
                "ssm:GetParameter" if ":ssm:" in index_secret else "secretsmanager:GetSecretValue"
            )
            allow(role, [kind], index_secret)
        pool.grant_consume(role)
        self._encryption.allow(role, "dynamodb", TABLES)
        self._encryption.allow(role, "s3", WRITE)
        self._encryption.allow(role, "sqs", WRITE)

    @staticmethod
    def _grant_read(role: iam.Role, bucket: s3.IBucket) -> None:
        allow(role, ["s3:GetObject"], bucket.arn_for_objects("*"))
        # Without ListBucket, S3 returns 403 instead of 404 for absent objects.
        allow(role, ["s3:ListBucket"], bucket.bucket_arn)

    def _tables(self, *names: str) -> dict[str, str]:
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

    def _shards(self) -> dict[str, str]:
        return {
            "NEXTFIRE_WRITE_SHARDS": str(self._settings.write_shards),
            "NEXTFIRE_READ_SHARDS": str(self._settings.read_shards),
        }

    def _run_retention(self) -> str:
        return self._settings.run_retention.model_dump_json(by_alias=True)

    def _pools_json(self) -> str:
        pools = {
            pool.name: {
                "queueUrl": pool.queue.queue_url,
                "maxTimeout": iso8601(pool.settings.longest_run),
                "maxBacklog": pool.settings.max_backlog,
                **call_facts(pool.settings),
            }
            for pool in self._pools
        }
        return self.to_json_string(pools)

    def _write_outputs(self) -> None:
        stores = self._stores
        outputs = {
            "ApiUrl": self._api.url,
            "ApiId": self._api.http_api.api_id,
            "JobsTable": stores.jobs.table_name,
            "DueTable": stores.due.table_name,
            "RunsTable": stores.runs.table_name,
            "ControlTable": stores.control.table_name,
            "KeysTable": stores.keys.table_name,
            "RequestsTable": stores.requests.table_name,
            "EndpointsTable": stores.endpoints.table_name,
            "OverviewTable": stores.overview.table_name,
            "Auth": self._settings.auth.value,
            "ScriptsBucket": stores.scripts.bucket_name,
            "OutputsBucket": stores.outputs.bucket_name,
            "AuditBucket": stores.audit.bucket_name,
            "EventBus": self._events.bus.event_bus_name,
            "ApiFunction": self._api_function.function.function_name,
            "ApiRoleArn": self._api_function.role.role_arn,
            "WatcherFunction": self._watcher.function.function_name,
            "WatcherRoleArn": self._watcher.role.role_arn,
            "AuditorFunction": self._auditor.function.function_name,
            "AuditorRoleArn": self._auditor.role.role_arn,
            "AuditLogFunction": self._audit_log_function.function.function_name,
            "AuditLogRoleArn": self._audit_log_function.role.role_arn,
            "ProjectorFunction": self._projector.function.function_name,
            "ProjectorRoleArn": self._projector.role.role_arn,
            "WatcherGroups": str(self._settings.groups),
            "Pools": self.to_json_string(
                {pool.name: pool.settings.executor for pool in self._pools}
            ),
        }
        if self._authorizer is not None:
            outputs["AuthorizerFunction"] = self._authorizer.function.function_name
            outputs["AuthorizerRoleArn"] = self._authorizer.role.role_arn
        for pool in self._pools:
            outputs[f"QueueUrl{pascal(pool.name)}"] = pool.queue.queue_url
            outputs[f"DlqUrl{pascal(pool.name)}"] = pool.dead_letters.queue_url
            key = pascal(pool.name)
            if executor := self._executors.get(pool.name):
                outputs[f"ExecutorFunction{key}"] = executor.function.function_name
                outputs[f"ExecutorRoleArn{key}"] = executor.role.role_arn
            if role := self._worker_roles.get(pool.name):
                outputs[f"WorkerRoleArn{key}"] = role.role_arn
                # Read by `nextfire worker`.
                outputs[f"WorkerEnvironment{key}"] = self.to_json_string(
                    self._execution_environment(pool)
                )
            if service := self._worker_services.get(pool.name):
                outputs[f"WorkerCluster{key}"] = service.cluster_name
                outputs[f"WorkerService{key}"] = service.service_name
        for key, value in outputs.items():
            CfnOutput(self, key, value=value)
