"""The event bus for events that may need a human's attention."""

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.grants import allow
from nextfire.adapters.aws.wakers import WAKE_SOURCE
from nextfire.domain.events import SOURCE


class StackEventBus(Construct):
    """A dedicated event bus: it carries only events of this stack."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(self, "Bus")

    def grant_publish(self, grantee: iam.IGrantable) -> None:
        """Grant the permission to publish events of this stack, for executors."""
        sources = {"ForAllValues:StringEquals": {"events:source": [SOURCE, WAKE_SOURCE]}}
        allow(grantee, ["events:PutEvents"], self.bus.event_bus_arn, conditions=sources)
