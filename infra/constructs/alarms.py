"""Alarms, whom they notify, and the composite alarm over those that delay jobs."""

from enum import Enum

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.settings import Settings, StackTarget

RUNBOOK = "docs/operate/runbook.md"


class Notify(Enum):
    """Whether an alarm notifies the topic."""

    ALWAYS = "by itself"
    SUMMARY = "through the composite alarm, so that one outage is one notification"
    """For alarms that end when the operator acts: while one of them lasts, others do not notify."""


class Alarms:
    """The alarms of a stack. Their actions: the topic of `alarmTopicArn` or, if only `alarmEmail`
    is set, a new topic.
    """

    def __init__(self, scope: Construct, settings: Settings) -> None:
        self._scope = scope
        self._is_local = settings.target is StackTarget.LOCAL
        self._delaying: list[cloudwatch.IAlarm] = []
        topic = _topic(scope, settings)
        self._action = actions.SnsAction(topic) if topic else None

    def add(
        self,
        construct_id: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        runbook: str,
        notify: Notify = Notify.ALWAYS,
        threshold: float = 0,
        comparison_operator: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
        ),
        evaluation_periods: int = 1,
        datapoints_to_alarm: int | None = None,
        treat_missing_data: cloudwatch.TreatMissingData = (
            cloudwatch.TreatMissingData.NOT_BREACHING
        ),
    ) -> None:
        """Add an alarm. *runbook*: the section of the runbook about it."""
        alarm = cloudwatch.Alarm(
            self._scope,
            construct_id,
            alarm_name=self._name(construct_id),
            metric=metric,
            alarm_description=_described(description, runbook),
            threshold=threshold,
            comparison_operator=comparison_operator,
            evaluation_periods=evaluation_periods,
            datapoints_to_alarm=datapoints_to_alarm,
            treat_missing_data=treat_missing_data,
        )
        if notify is Notify.SUMMARY:
            self._delaying.append(alarm)
        if self._action and notify is Notify.ALWAYS:
            alarm.add_alarm_action(self._action)

    def add_summary(self) -> None:
        """Add the composite alarm over the alarms that notify through it."""
        if self._is_local:
            return  # MiniStack has no composite alarms
        summary = cloudwatch.CompositeAlarm(
            self._scope,
            "jobs-not-on-time",
            composite_alarm_name=self._name("jobs-not-on-time"),
            alarm_rule=cloudwatch.AlarmRule.any_of(*self._delaying),
            alarm_description=_described(
                "Jobs are not running on time: see which of its alarms is in ALARM.",
                "jobs-not-on-time",
            ),
        )
        if self._action:
            summary.add_alarm_action(self._action)

    def _name(self, construct_id: str) -> str:
        """The name that a notification shows. That of the runbook, after the name of the stack:
        those that CloudFormation chooses have no dashes.
        """
        return f"{Stack.of(self._scope).stack_name}-{construct_id}"


def _by_alarms(topic: sns.Topic) -> iam.PolicyStatement:
    account = {"StringEquals": {"aws:SourceAccount": topic.stack.account}}
    return iam.PolicyStatement(
        principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
        actions=["sns:Publish"],
        resources=[topic.topic_arn],
        conditions=account,
    )


def _described(text: str, section: str) -> str:
    return f"{text} Runbook: {RUNBOOK}#{section}"


def _topic(scope: Construct, settings: Settings) -> sns.ITopic | None:
    arn, address = settings.alarm_topic_arn, settings.alarm_email
    topic: sns.ITopic | None = None
    if arn:
        topic = sns.Topic.from_topic_arn(scope, "Topic", arn)
    elif address:
        topic = sns.Topic(scope, "Topic", enforce_ssl=True)
        # The policy that requires TLS replaces the default one, by which alarms may publish.
        topic.add_to_resource_policy(_by_alarms(topic))
    if topic and address:
        topic.add_subscription(subscriptions.EmailSubscription(address))
    return topic
