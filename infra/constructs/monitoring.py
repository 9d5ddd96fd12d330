"""The dashboard and the alarms. An alarm's id starts with the folder or pool to inspect."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.function import Function
from infra.constructs.pool import Pool
from infra.settings import Settings
from nextfire.domain.metrics import NAMESPACE, Metric

_MINUTE = Duration.minutes(1)
_LATENESS_LIMIT_MS = 4000
_AUDIT_AGE_LIMIT_MS = 15 * 60 * 1000
_IGNORE = cloudwatch.TreatMissingData.NOT_BREACHING
_SERVICES_THAT_DECODE = ("watcher", "executor", "worker", "auditor")


def _metric(metric: Metric, service: str, statistic: str = "Sum") -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric,
        dimensions_map={"service": service},
        statistic=statistic,
        period=_MINUTE,
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
        audit_failures: sqs.Queue,
        settings: Settings,
    ) -> None:
        super().__init__(scope, construct_id)
        topic_arn = settings.alarm_topic_arn
        self._action = (
            actions.SnsAction(sns.Topic.from_topic_arn(self, "Topic", topic_arn))
            if topic_arn
            else None
        )
        self._alarm_on_promises()
        for name, function in functions.items():
            self._alarm(
                f"{name}-errors",
                function.function.metric_errors(period=_MINUTE),
                f"The function {name} failed or was killed: see its log group.",
            )
        for pool in pools:
            self._alarm(
                f"pool-{pool.name}-dead-letters",
                pool.dead_letters.metric_approximate_number_of_messages_visible(period=_MINUTE),
                f"Runs of pool {pool.name} are dead or could not be decoded: inspect its DLQ.",
            )
        self._alarm_on_audit(functions["auditlog"], audit_failures)
        self._draw(functions, pools)

    def _alarm_on_audit(self, function: Function, failures: sqs.Queue) -> None:
        self._alarm(
            "auditlog-behind",
            function.function.metric("IteratorAge", statistic="Maximum", period=_MINUTE),
            "The audit chain is more than 15 minutes behind the changes: see the runbook in "
            "docs/operate/audit.md.",
            threshold=_AUDIT_AGE_LIMIT_MS,
        )
        self._alarm(
            "auditlog-failures",
            failures.metric_approximate_number_of_messages_visible(period=_MINUTE),
            "Changes could not be appended to the audit chain for 6 hours and were skipped. The "
            "queue's messages name the stream and the records; the stream keeps them for 18 more "
            "hours. See the runbook in docs/operate/audit.md.",
        )

    def _alarm_on_promises(self) -> None:
        self._alarm(
            "watcher-late",
            _metric(Metric.DISPATCH_LATENESS, "watcher", "p99"),
            f"The p99 of dispatch lateness exceeds {_LATENESS_LIMIT_MS} ms.",
            threshold=_LATENESS_LIMIT_MS,
            evaluation_periods=3,
            datapoints_to_alarm=2,
        )
        self._alarm(
            "watcher-silent",
            _metric(Metric.TICKS, "watcher"),
            "No watcher has ticked for two minutes: nothing is being dispatched.",
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=1,
            evaluation_periods=2,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )
        self._alarm(
            "watcher-undelivered",
            _metric(Metric.UNDELIVERED, "watcher"),
            "Sending due runs to a pool's queue has failed for three minutes: see the watcher's "
            "log group.",
            evaluation_periods=3,
        )
        self._alarm(
            "auditor-repaired",
            _metric(Metric.REPAIRED, "auditor"),
            "The auditor repaired an inconsistency that should not occur: see its log group.",
        )
        for service in _SERVICES_THAT_DECODE:
            self._alarm(
                f"{service}-quarantined",
                _metric(Metric.QUARANTINED, service),
                f"The {service} quarantined an item or message that it could not decode.",
            )

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        threshold: float = 0,
        comparison_operator: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
        ),
        evaluation_periods: int = 1,
        datapoints_to_alarm: int | None = None,
        treat_missing_data: cloudwatch.TreatMissingData = _IGNORE,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            alarm_description=description,
            threshold=threshold,
            comparison_operator=comparison_operator,
            evaluation_periods=evaluation_periods,
            datapoints_to_alarm=datapoints_to_alarm,
            treat_missing_data=treat_missing_data,
        )
        if self._action:
            alarm.add_alarm_action(self._action)

    def _draw(self, functions: Mapping[str, Function], pools: Sequence[Pool]) -> None:
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
            "Ticks": [_metric(Metric.TICKS, "watcher")],
            "Undelivered": [_metric(Metric.UNDELIVERED, "watcher")],
            "Held back": [_metric(Metric.HELD_BACK, "watcher")],
            "Held back for (ms)": [
                _metric(Metric.HELD_BACK_FOR, "watcher", statistic)
                for statistic in ("p50", "p99", "Maximum")
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
            "Oldest waiting (s)": [
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
            "Function durations": [
                function.function.metric_duration(label=name)
                for name, function in functions.items()
            ],
        }
        dashboard = cloudwatch.Dashboard(self, "Dashboard")
        for title, metrics in graphs.items():
            dashboard.add_widgets(cloudwatch.GraphWidget(title=title, left=metrics, width=12))
