"""The dashboard, and which alarms there are. An alarm's id starts with the folder or pool to
inspect.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.alarms import Alarms, Notify
from infra.constructs.function import Function
from infra.constructs.pool import Pool
from infra.settings import Settings, StackTarget
from nextfire.domain.metrics import ANY_SERVICE, NAMESPACE, Metric

_MINUTE = Duration.minutes(1)
_LATENESS_LIMIT_MS = 4000
_OVERVIEW_AGE_LIMIT_MS = 5 * 60 * 1000
_AUDIT_AGE_LIMIT_MS = 15 * 60 * 1000
_WAIT_LIMIT_SECONDS = 15 * 60
_AUDITOR_SILENCE = timedelta(hours=1)
"""Period of the alarm on the auditor, unless it is invoked less often. A metric that stops is an
alarm after some periods: CloudWatch evaluates older values as long as it finds them."""
_SERVICES_THAT_DECODE = ("watcher", "executor", "worker", "auditor")


def _metric(
    metric: Metric, service: str, statistic: str = "Sum", group: int | None = None
) -> cloudwatch.Metric:
    of_group = {} if group is None else {"group": str(group)}
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric,
        dimensions_map={"service": service, **of_group},
        statistic=statistic,
        period=_MINUTE,
    )


def _with_zeros(metric: cloudwatch.Metric) -> cloudwatch.IMetric:
    """*metric*, 0 in the minutes without a value."""
    return cloudwatch.MathExpression(
        expression="FILL(each, 0)", using_metrics={"each": metric}, period=_MINUTE
    )


class Monitoring(Construct):
    """Alarms on violated guarantees, and a dashboard of the underlying metrics."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        functions: Mapping[str, Function],
        pools: Sequence[Pool],
        due: dynamodb.ITable,
        server_errors: cloudwatch.IMetric,
        audit_failures: sqs.Queue,
        settings: Settings,
    ) -> None:
        super().__init__(scope, construct_id)
        self._alarms = Alarms(self, settings)
        self._alarm_on_watchers(settings.groups)
        if settings.due_capacity:
            self._alarm_on_due_table(due, settings.target)
        self._alarm_on_functions(functions)
        self._alarm_on_auditor(functions["auditor"], settings.auditor_wake_every)
        self._alarm_on_pools(pools, settings)
        self._alarm_on_defects(server_errors)
        self._alarm_on_audit(functions["auditlog"], audit_failures)
        self._alarm_on_projector(functions["projector"])
        self._alarms.add_summary()
        self._draw(functions, pools, settings.groups)

    def _alarm_on_watchers(self, groups: int) -> None:
        """A silent group is an alarm after about five minutes. FILL would make it two, and would
        also be an alarm if a value arrives late.
        """
        self._alarms.add(
            "watcher-late",
            _metric(Metric.DISPATCH_LATENESS, "watcher", "p99"),
            f"The p99 of dispatch lateness exceeds {_LATENESS_LIMIT_MS} ms.",
            runbook="watcher-late",
            threshold=_LATENESS_LIMIT_MS,
            evaluation_periods=3,
            datapoints_to_alarm=2,
            notify=Notify.SUMMARY,
        )
        for group in range(groups):
            self._alarms.add(
                f"watcher-{group}-silent",
                _metric(Metric.TICKS, "watcher", group=group),
                f"No watcher of group {group} has ticked for minutes: a part of the due runs is "
                "not dispatched.",
                runbook="watcher-silent",
                comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
                threshold=1,
                evaluation_periods=2,
                treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
                notify=Notify.SUMMARY,
            )
        self._alarms.add(
            "watcher-undelivered",
            _metric(Metric.UNDELIVERED, "watcher"),
            "Sending due runs to a pool's queue has failed for three minutes, or a table has not "
            "answered the watcher.",
            runbook="watcher-undelivered",
            evaluation_periods=3,
            notify=Notify.SUMMARY,
        )

    def _alarm_on_due_table(self, due: dynamodb.ITable, target: StackTarget) -> None:
        """Alarms on throttles, which a provisioned capacity makes likely. A burst that exceeds it
        is over within three minutes, or jobs are late.
        """
        # DynamoDB publishes nothing without throttles, and then an alarm on its metric alone may
        # stay in ALARM. MiniStack rejects expressions.
        ends = target is StackTarget.AWS
        for kind, setting in (("Write", "writes"), ("Read", "reads")):
            throttles = due.metric(f"{kind}ThrottleEvents", statistic="Sum", period=_MINUTE)
            self._alarms.add(
                f"due-{setting}-throttled",
                _with_zeros(throttles) if ends else throttles,
                f"DynamoDB has throttled {setting} of the table of due entries for three minutes: "
                f"dueCapacity.{setting} is used up.",
                runbook="due-throttled",
                evaluation_periods=3,
                notify=Notify.SUMMARY,
            )

    def _alarm_on_functions(self, functions: Mapping[str, Function]) -> None:
        """Alarms on executors. Other functions are watched by `auditor-errors`, `watcher-0-silent`,
        `api-server-errors`, `auditlog-behind` and `projector-behind`. Each metric costs.
        """
        for name, function in functions.items():
            if name.startswith("executor-"):
                self._alarms.add(
                    f"{name}-errors",
                    function.function.metric_errors(period=_MINUTE),
                    f"The function {name} failed or was killed in each of three minutes: see its "
                    "log group.",
                    runbook="function-errors",
                    evaluation_periods=3,  # not for a script that kills its function once
                )
                self._alarms.add(
                    f"{name}-throttled",
                    function.function.metric_throttles(period=_MINUTE),
                    f"Lambda has throttled the function {name} for three minutes: the concurrency "
                    "of the account or of the function is used up.",
                    runbook="function-throttled",
                    evaluation_periods=3,
                    notify=Notify.SUMMARY,
                )

    def _alarm_on_auditor(self, function: Function, every: timedelta) -> None:
        """An alarm on failures, of which an audit that is overdue is one, and on the absence of
        invocations, which come once per *every*: Lambda has no count of errors then.
        """
        period = max(_AUDITOR_SILENCE, 2 * every)
        self._alarms.add(
            "auditor-errors",
            function.function.metric_errors(
                period=Duration.minutes(period // timedelta(minutes=1))
            ),
            "The function auditor failed, was killed, is not invoked, or has not ended "
            "an audit when the next one is due: see its log group.",
            runbook="function-errors",
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )

    def _alarm_on_pools(self, pools: Sequence[Pool], settings: Settings) -> None:
        """Alarms that notify by themselves: runs may wait for hours in a pool that is well, and the
        composite alarm notifies only when it starts, so it would hide a watcher that stops.
        """
        for pool in pools:
            # Runs on Lambda end within the limit; MiniStack rejects expressions.
            exact = pool.settings.executor == "worker" and settings.target is StackTarget.AWS
            oldest = pool.queue.metric_approximate_age_of_oldest_message(period=_MINUTE)
            self._alarms.add(
                f"pool-{pool.name}-waits",
                pool.longest_wait(_MINUTE) if exact else oldest,
                f"A run of pool {pool.name} has waited for an executor for over "
                f"{_WAIT_LIMIT_SECONDS // 60} minutes.",
                runbook="pool-waits",
                threshold=_WAIT_LIMIT_SECONDS,
                evaluation_periods=3,
            )
            if settings.alarm_on_dead_runs:
                self._alarms.add(
                    f"pool-{pool.name}-dead-letters",
                    pool.dead_letters.metric_approximate_number_of_messages_visible(period=_MINUTE),
                    f"Runs of pool {pool.name} are dead or could not be decoded: inspect its DLQ.",
                    runbook="pool-dead-letters",
                )

    def _alarm_on_defects(self, server_errors: cloudwatch.IMetric) -> None:
        self._alarms.add(
            "api-server-errors",
            server_errors,
            "The API, or its authorizer, has answered requests with 5xx for three minutes.",
            runbook="api-server-errors",
            evaluation_periods=3,
        )
        self._alarms.add(
            "defects",
            _metric(Metric.DEFECTS, ANY_SERVICE),
            "An item or message could not be decoded and was quarantined, or the auditor repaired "
            "an inconsistency that should not occur: the dashboard shows which service.",
            runbook="defects",
        )

    def _alarm_on_audit(self, function: Function, failures: sqs.Queue) -> None:
        self._alarms.add(
            "auditlog-behind",
            function.function.metric("IteratorAge", statistic="Maximum", period=_MINUTE),
            "The audit chain is more than 15 minutes behind the changes.",
            runbook="auditlog-behind",
            threshold=_AUDIT_AGE_LIMIT_MS,
        )
        self._alarms.add(
            "auditlog-failures",
            failures.metric_approximate_number_of_messages_visible(period=_MINUTE),
            "Changes could not be appended to the audit chain for 6 hours and were skipped. The "
            "queue's messages name the stream and the records; the stream keeps them for 18 more "
            "hours.",
            runbook="auditlog-failures",
        )

    def _alarm_on_projector(self, function: Function) -> None:
        """After six hours its records are skipped. Until then this alarm notifies: a batch that
        fails blocks its shard, and the age grows (Lambda developer guide, "Understanding retry
        behavior").
        """
        self._alarms.add(
            "projector-behind",
            function.function.metric("IteratorAge", statistic="Maximum", period=_MINUTE),
            "The overview of runs is more than 5 minutes behind the runs.",
            runbook="projector-behind",
            threshold=_OVERVIEW_AGE_LIMIT_MS,
            evaluation_periods=3,
        )

    def _draw(self, functions: Mapping[str, Function], pools: Sequence[Pool], groups: int) -> None:
        lateness = [
            _metric(Metric.DISPATCH_LATENESS, "watcher", statistic)
            for statistic in ("p50", "p99", "Maximum")
        ]
        outcomes = [
            _metric(metric, service)
            for metric in (Metric.STARTED, Metric.SUCCEEDED, Metric.FAILED, Metric.LOST)
            for service in ("executor", "worker")
        ]
        graphs: dict[str, Sequence[cloudwatch.IMetric]] = {
            "Dispatch lateness (ms)": lateness,
            "Dispatched": [_metric(Metric.DISPATCHED, "watcher")],
            "Ticks": [_metric(Metric.TICKS, "watcher", group=group) for group in range(groups)],
            "Oldest cursor of a group that is behind (ms)": [
                _metric(Metric.BEHIND, "watcher", "Maximum", group) for group in range(groups)
            ],
            "Due entries not sent by a group that is behind": [
                _metric(Metric.DUE_BACKLOG, "watcher", "Maximum", group) for group in range(groups)
            ],
            "Undelivered": [_metric(Metric.UNDELIVERED, "watcher")],
            "Held back": [_metric(Metric.HELD_BACK, "watcher")],
            "Held back for (ms)": [
                _metric(Metric.HELD_BACK_FOR, "watcher", statistic)
                for statistic in ("p50", "p99", "Maximum")
            ],
            "Wake-ups lost": [
                _metric(Metric.WAKE_UPS_LOST, service) for service in ("api", "executor", "worker")
            ],
            "Skipped": [
                _metric(Metric.SKIPPED, service) for service in ("watcher", "executor", "worker")
            ],
            "Audited": [_metric(Metric.AUDITED, "auditor")],
            "Repaired": [_metric(Metric.REPAIRED, "auditor")],
            "Attempts": outcomes,
            "Waiting in pools": [
                pool.queue.metric_approximate_number_of_messages_visible(label=pool.name)
                for pool in pools
            ],
            "Oldest message, waiting or running (s)": [
                pool.queue.metric_approximate_age_of_oldest_message(label=pool.name)
                for pool in pools
            ],
            "Dead letters": [
                pool.dead_letters.metric_approximate_number_of_messages_visible(label=pool.name)
                for pool in pools
            ],
            "Quarantined": [
                _metric(Metric.QUARANTINED, service) for service in _SERVICES_THAT_DECODE
            ],
            "Function errors": [
                function.function.metric_errors(label=name) for name, function in functions.items()
            ],
            "Function throttles": [
                function.function.metric_throttles(label=name)
                for name, function in functions.items()
            ],
            "Function durations": [
                function.function.metric_duration(label=name)
                for name, function in functions.items()
            ],
        }
        dashboard = cloudwatch.Dashboard(self, "Dashboard")
        for title, metrics in graphs.items():
            dashboard.add_widgets(cloudwatch.GraphWidget(title=title, left=metrics, width=12))
