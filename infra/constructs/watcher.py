"""The rules that invoke the watcher: one per group, every minute; and one that wakes it."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.constructs.function import Function
from nextfire.adapters.aws.wakers import WAKE_DETAIL, WAKE_SOURCE

INVOKE_EVERY = Duration.minutes(1)


class WatcherRules(Construct):
    """Invokes *watcher* for each of *groups* groups, and when an executor asks for it on *bus*.
    Missed invocations are not repeated.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        watcher: Function,
        groups: int,
        bus: events.IEventBus,
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
        # Not a reference of the executors to the watcher: it is deployed after them.
        events.Rule(
            self,
            "Wake",
            event_bus=bus,
            event_pattern=events.EventPattern(source=[WAKE_SOURCE], detail_type=[WAKE_DETAIL]),
            targets=[
                targets.LambdaFunction(
                    watcher.function,
                    event=events.RuleTargetInput.from_object(
                        {"group": events.EventField.from_path("$.detail.group"), "woken": True}
                    ),
                    retry_attempts=0,
                    max_event_age=INVOKE_EVERY,
                )
            ],
        )
