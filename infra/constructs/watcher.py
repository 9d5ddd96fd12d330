"""The rules that invoke the watcher: one per group, every minute."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import Function

INVOKE_EVERY = Duration.minutes(1)


class WatcherRules(Construct):
    """Invokes *watcher* for each of *groups* groups. Missed invocations are not repeated."""

    def __init__(
        self, scope: Construct, construct_id: str, *, watcher: Function, groups: int
    ) -> None:
        super().__init__(scope, construct_id)
        for group in range(groups):
            events.Rule(
                self,
                f"Group{group}",
                schedule=events.Schedule.rate(INVOKE_EVERY),
                targets=[
                    targets.LambdaFunction(
                        watcher.function,
                        event=events.RuleTargetInput.from_object({"group": group}),
                        retry_attempts=0,
                        max_event_age=INVOKE_EVERY,
                    )
                ],
            )
