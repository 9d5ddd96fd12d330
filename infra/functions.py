"""The functions of the stack, except executors, each with the permissions that it needs."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from infra.auth_settings import Auth
from infra.concurrency import ConcurrencyShares
from infra.constructs.auditor import AuditorRules
from infra.constructs.code import Code
from infra.constructs.encryption import READ, TABLES, WRITE, Encryption
from infra.constructs.events import StackEventBus
from infra.constructs.function import Function
from infra.constructs.grants import allow, dynamodb, only_attributes
from infra.constructs.pool import Pool
from infra.constructs.stores import Stores
from infra.constructs.watcher import WatcherRules
from infra.environment import Environment
from infra.pool_settings import LAMBDA_LIMIT
from infra.setting_types import iso8601
from infra.settings import Settings
from nextfire.adapters.dynamodb.run_items import DEAD_INDEX

_API_TIMEOUT = LAMBDA_LIMIT / 30  # API Gateway returns 503 after 30 s anyway
_AUDIT_LOG_TIMEOUT = timedelta(seconds=60)
_AUDIT_LOG_MEMORY = 512
_PROJECTOR_TIMEOUT = timedelta(minutes=2)
_AUTHORIZER_TIMEOUT = timedelta(seconds=8)  # API Gateway waits up to 10 s


class Functions:
    """Creates the functions of *stack*. *shares*: of the account's concurrency; None: unlimited."""

    def __init__(
        self,
        stack: Stack,
        *,
        settings: Settings,
        stores: Stores,
        events: StackEventBus,
        code: Code,
        encryption: Encryption,
        environment: Environment,
        pools: Sequence[Pool],
        shares: ConcurrencyShares | None,
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._stores = stores
        self._events = events
        self._encryption = encryption
        self._environment = environment
        self._pools = pools
        self._shares = shares
        self._function = partial(Function, stack, code=code, settings=settings, key=encryption.key)

    def api(self, watcher: Function) -> Function:
        stores = self._stores
        api = self._function(
            "Api",
            folder="api",
            memory=self._settings.api_memory,
            timeout=_API_TIMEOUT,
            audited=True,
            reserved=self._shares.api if self._shares else None,
            environment={
                **self._environment.tables(
                    "jobs", "due", "runs", "control", "keys", "requests", "endpoints"
                ),
                **self._environment.tables("overview"),
                **self._environment.shards(),
                **self._environment.identity(),
                "NEXTFIRE_POOLS": self._environment.pools(),
                "NEXTFIRE_QUOTAS": self._settings.quotas_json,
                "NEXTFIRE_TENANT_WEIGHTS": self._environment.tenant_weights(),
                "NEXTFIRE_SCRIPTS_BUCKET": stores.scripts.bucket_name,
                "NEXTFIRE_OUTPUTS_BUCKET": stores.outputs.bucket_name,
                "NEXTFIRE_RUN_RETENTION": self._environment.run_retention(),
                "NEXTFIRE_WATCHER_FUNCTION": watcher.function.function_name,
                "NEXTFIRE_GROUPS": str(self._settings.groups),
                "NEXTFIRE_LIFE": iso8601(self._settings.life),
            },
        )
        # It wakes a watcher when it stores an entry that is due soon.
        allow(api.role, ["lambda:InvokeFunction"], watcher.function.function_arn)
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
        _grant_read(api.role, stores.outputs)
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

    def authorizer(self) -> Function:
        authorizer = self._function(
            "Authorizer",
            folder="authorizer",
            memory=self._settings.authorizer_memory,
            timeout=_AUTHORIZER_TIMEOUT,
            environment=self._environment.tables("keys"),
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

    def watcher(self) -> Function:
        stores = self._stores
        watcher = self._function(
            "Watcher",
            folder="watcher",
            memory=self._settings.watcher_memory,
            timeout=self._settings.watcher_timeout,
            reserved=self._shares.watcher if self._shares else None,
            environment={
                **self._environment.tables("jobs", "due", "runs", "control"),
                **self._environment.shards(),
                "NEXTFIRE_POOLS": self._environment.pools(),
                "NEXTFIRE_GROUPS": str(self._settings.groups),
                "NEXTFIRE_TENANT_WEIGHTS": self._environment.tenant_weights(),
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
            self._stack,
            "WatcherRules",
            watcher=watcher,
            groups=self._settings.groups,
            bus=self._events.bus,
        )
        return watcher

    def auditor(self) -> Function:
        stores = self._stores
        auditor = self._function(
            "Auditor",
            folder="auditor",
            memory=self._settings.auditor_memory,
            timeout=LAMBDA_LIMIT,
            environment={
                **self._environment.tables("jobs", "due", "runs", "control"),
                **self._environment.shards(),
                "NEXTFIRE_POOLS": self._environment.pools(),
                "NEXTFIRE_AUDIT_EVERY": iso8601(self._settings.audit_every),
                "NEXTFIRE_AUDIT_SEGMENTS": str(self._settings.audit_segments),
                "NEXTFIRE_JOB_RETENTION": iso8601(self._settings.job_retention),
            },
        )
        # The auditor completes a job whose last run has ended, or that has no runs left, removes
        # ended jobs, and replaces a parent of deleted ones.
        allow(
            auditor.role,
            dynamodb("Scan", "GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"),
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
            self._stack,
            "AuditorRule",
            auditor=auditor,
            every=self._settings.auditor_wake_every,
            segments=self._settings.audit_segments,
        )
        return auditor

    def audit_log(self) -> Function:
        audit_log = self._function(
            "Auditlog",
            folder="auditlog",
            memory=_AUDIT_LOG_MEMORY,
            timeout=_AUDIT_LOG_TIMEOUT,
            environment={
                **self._environment.tables("jobs", "runs", "keys", "requests"),
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

    def projector(self) -> Function:
        stores = self._stores
        projector = self._function(
            "Projector",
            folder="projector",
            memory=self._settings.projector_memory,
            timeout=_PROJECTOR_TIMEOUT,
            reserved=self._shares.projector if self._shares else None,
            environment={
                **self._environment.tables("runs", "overview"),
                "NEXTFIRE_RUN_RETENTION": self._environment.run_retention(),
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


def _grant_read(role: iam.Role, bucket: s3.IBucket) -> None:
    allow(role, ["s3:GetObject"], bucket.arn_for_objects("*"))
    # Without ListBucket, S3 returns 403 instead of 404 for absent objects.
    allow(role, ["s3:ListBucket"], bucket.bucket_arn)
