"""The stack: connects the constructs and grants each of them only the permissions it needs."""

from aws_cdk import Annotations, CfnOutput, Duration, IStackSynthesizer, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.auth_settings import Auth
from infra.build import Build
from infra.constructs.api import Api
from infra.constructs.audit_log import AuditLogFeed
from infra.constructs.code import Code
from infra.constructs.encryption import TABLES, WRITE, Encryption
from infra.constructs.events import StackEventBus
from infra.constructs.executor_access import ExecutorAccess
from infra.constructs.function import Function
from infra.constructs.grants import allow
from infra.constructs.monitoring import Monitoring
from infra.constructs.pool import Pool
from infra.constructs.private_network import PrivateNetwork
from infra.constructs.projector_feed import ProjectorFeed
from infra.constructs.stores import Stores
from infra.constructs.worker_service import WorkerService, create_vpc
from infra.constructs.worker_trust import worker_trust
from infra.environment import Environment
from infra.fargate_settings import FargateSettings
from infra.functions import Functions
from infra.pool_names import OWN_VPC
from infra.setting_types import pascal
from infra.settings import Settings, StackTarget


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
        if names := settings.tenants_without_callers:
            Annotations.of(self).add_warning_v2(
                "nextfire:tenants",
                "No caller has these tenants of quotas, tenantWeights or pools: "
                f"{', '.join(names)}. If one is mistyped, the setting does not apply to the tenant "
                "that was meant. Otherwise only its earlier jobs run.",
            )
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
        self._variables = Environment(
            self, settings=settings, stores=self._stores, events=self._events, pools=self._pools
        )
        functions = Functions(
            self,
            settings=settings,
            stores=self._stores,
            events=self._events,
            code=self._code,
            encryption=self._encryption,
            environment=self._variables,
            pools=self._pools,
            shares=self._shares,
        )
        self._serve_pools()
        self._watcher = functions.watcher()
        # Update the consumers of messages before the producer.
        self._watcher.function.node.add_dependency(
            *(executor.function for executor in self._executors.values()),
            *self._worker_services.values(),
        )
        self._auditor = functions.auditor()
        self._audit_log_function = functions.audit_log()
        self._projector = functions.projector()
        self._feed_streams()
        self._api_function = functions.api(self._watcher)
        self._authorizer = functions.authorizer() if settings.auth is Auth.KEYS else None
        self._api = Api(
            self,
            "Http",
            function=self._api_function,
            authorizer=self._authorizer,
            settings=settings,
            key=self._key,
        )
        self._monitor()
        self._encryption.before(self._stores, *self._pools, self._audit_log, self._projector_feed)
        self._write_outputs()

    def _serve_pools(self) -> None:
        """Create an executor for each pool on Lambda, a role and perhaps a service for others."""
        self._executors: dict[str, Function] = {}
        self._worker_roles: dict[str, iam.Role] = {}
        self._worker_services: dict[str, WorkerService] = {}
        self._own_vpc: ec2.IVpc | None = None
        on_aws = self._settings.target is StackTarget.AWS
        for pool in self._pools:
            if pool.settings.executor == "lambda":
                self._executors[pool.name] = self._create_executor(pool)
            else:
                self._worker_roles[pool.name] = self._create_worker_role(pool)
                if on_aws and (fargate := pool.settings.fargate):
                    self._worker_services[pool.name] = self._create_worker_service(pool, fargate)

    def _feed_streams(self) -> None:
        """Connect the audit log and the projector to the streams of their tables."""
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
            settings=self._settings,
            key=self._key,
        )
        self._projector_feed = ProjectorFeed(
            self,
            "ProjectorFeed",
            function=self._projector,
            runs=self._stores.runs,
            settings=self._settings,
            key=self._key,
        )

    def _monitor(self) -> None:
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
            due=self._stores.due,
            server_errors=self._api.http_api.metric_server_error(
                period=Duration.minutes(1), statistic="Sum"
            ),
            audit_failures=self._audit_log.failures,
            settings=self._settings,
        )

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
            environment=self._variables.hosted(pool),
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
            self._own_vpc = create_vpc(self, OWN_VPC)
        return WorkerService(
            self,
            f"Workers{pascal(pool.name)}",
            pool=pool,
            role=self._worker_roles[pool.name],
            vpc=self._own_vpc,
            fargate=fargate,
            build=self._build,
            settings=self._settings,
            environment=self._variables.hosted(pool),
            key=self._key,
        )

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
            "WatcherGroups": str(self._settings.groups),
            "Pools": self.to_json_string(
                {pool.name: pool.settings.executor for pool in self._pools}
            ),
        }
        functions = {
            "Api": self._api_function,
            "Watcher": self._watcher,
            "Auditor": self._auditor,
            "AuditLog": self._audit_log_function,
            "Projector": self._projector,
            "Authorizer": self._authorizer,
        }
        for name, function in functions.items():
            if function is not None:
                outputs[f"{name}Function"] = function.function.function_name
                outputs[f"{name}RoleArn"] = function.role.role_arn
        for pool in self._pools:
            outputs |= self._outputs_of(pool)
        for key, value in outputs.items():
            CfnOutput(self, key, value=value)

    def _outputs_of(self, pool: Pool) -> dict[str, str]:
        key = pascal(pool.name)
        outputs = {
            f"QueueUrl{key}": pool.queue.queue_url,
            f"DlqUrl{key}": pool.dead_letters.queue_url,
        }
        if executor := self._executors.get(pool.name):
            outputs[f"ExecutorFunction{key}"] = executor.function.function_name
            outputs[f"ExecutorRoleArn{key}"] = executor.role.role_arn
        if role := self._worker_roles.get(pool.name):
            outputs[f"WorkerRoleArn{key}"] = role.role_arn
            # Read by `nextfire worker`.
            environment = self._variables.execution(pool)
            outputs[f"WorkerEnvironment{key}"] = self.to_json_string(environment)
        if service := self._worker_services.get(pool.name):
            outputs[f"WorkerCluster{key}"] = service.cluster_name
            outputs[f"WorkerService{key}"] = service.service_name
        return outputs
