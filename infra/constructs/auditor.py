"""The rule that invokes the auditor, which decides itself whether an audit is due."""

from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import Function


class AuditorRule(Construct):
    """Invokes *auditor* once per *every*. Missed invocations are not repeated."""

    def __init__(
        self, scope: Construct, construct_id: str, *, auditor: Function, every: timedelta
    ) -> None:
        super().__init__(scope, construct_id)
        events.Rule(
            self,
            "Rule",
            schedule=events.Schedule.rate(Duration.minutes(every // timedelta(minutes=1))),
            targets=[
                targets.LambdaFunction(
                    auditor.function,
                    event=events.RuleTargetInput.from_object({}),
                    retry_attempts=0,
                    max_event_age=Duration.minutes(1),
                )
            ],
        )
