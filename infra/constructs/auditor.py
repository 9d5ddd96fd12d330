"""The rule that wakes the auditor, which looks for itself whether there is anything to do."""

from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import Function


class AuditorRule(Construct):
    """Invokes *auditor* each *every*; a waking that is missed is not made up for."""

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
