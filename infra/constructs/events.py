"""The event bus on which the stack tells what a human may have to look at."""

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.grants import allow


class Events(Construct):
    """A bus of the stack's own: who listens to it hears of nothing else."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(self, "Bus")

    def grant_tell(self, grantee: iam.IGrantable) -> None:
        """What an executor needs."""
        allow(grantee, ["events:PutEvents"], self.bus.event_bus_arn)
