"""The rules that invoke the auditor, which decides itself whether an audit is due."""

from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import Function

_TARGETS = 5
"""Maximum number of targets of a rule."""


class AuditorRules(Construct):
    """Invokes *auditor* once per *every* for each of *segments*. Missed invocations are not
    repeated.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        auditor: Function,
        every: timedelta,
        segments: int,
    ) -> None:
        super().__init__(scope, construct_id)
        for first in range(0, segments, _TARGETS):
            events.Rule(
                self,
                "Rule" if first == 0 else f"Rule{first}",
                schedule=events.Schedule.rate(Duration.minutes(every // timedelta(minutes=1))),
                targets=[
                    targets.LambdaFunction(
                        auditor.function,
                        event=events.RuleTargetInput.from_object({"segment": segment}),
                        retry_attempts=0,
                        max_event_age=Duration.minutes(1),
                    )
                    for segment in range(first, min(first + _TARGETS, segments))
                ],
            )
