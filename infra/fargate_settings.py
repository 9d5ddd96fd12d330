"""The settings of workers that the stack runs as Fargate tasks."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from infra.setting_types import StrictSettings

_MEMORY_OF_CPU = {
    256: [512, 1024, 2048],
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16_384 + 1, 1024),
    4096: range(8192, 30_720 + 1, 1024),
    8192: range(16_384, 61_440 + 1, 4096),
    16_384: range(32_768, 122_880 + 1, 8192),
}
"""Memory sizes (MiB) that Fargate supports, by CPU (1024ths of a core)."""


class FargateSettings(StrictSettings):
    """Workers that the stack runs as Fargate tasks."""

    cpu: Literal[256, 512, 1024, 2048, 4096, 8192, 16_384] = 1024
    """CPU of a task, in 1024ths of a core."""
    memory: int = 4096
    """Memory of a task in MiB; the supported sizes depend on `cpu`."""
    min_tasks: Annotated[int, Field(ge=0, le=1000)] = 0
    """Minimum number of tasks."""
    max_tasks: Annotated[int, Field(ge=1, le=1000)] = 4
    """Maximum number of tasks."""
    image: Annotated[str, StringConstraints(pattern=r"^[^\s:]+[^\s]*[:@][^\s/]+$")] | None = None
    """The worker's image with a tag or digest; for arm64. Default: built during deployment."""
    vpc_id: Annotated[str, StringConstraints(pattern=r"^vpc-[0-9a-f]+$")] | None = None
    """The VPC of the tasks. Default: a VPC of the stack, with public subnets only."""
    subnet_ids: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")], ...],
        Field(max_length=16),
    ] = ()
    """Subnets of `vpcId`."""
    assign_public_ip: bool = True
    """Whether tasks get a public IP to reach AWS; `false` if the subnets have a
    NAT or endpoints."""

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.memory not in _MEMORY_OF_CPU[self.cpu]:
            offered = ", ".join(str(memory) for memory in _MEMORY_OF_CPU[self.cpu])
            raise ValueError(f"with cpu {self.cpu}, memory must be one of {offered}")
        if self.min_tasks > self.max_tasks:
            raise ValueError("minTasks must be at most maxTasks")
        if (self.vpc_id is None) != (not self.subnet_ids):
            raise ValueError("vpcId and subnetIds belong together: set both, or neither")
        if self.vpc_id is None and not self.assign_public_ip:
            raise ValueError(
                "assignPublicIp must be true in the stack's own VPC, which has no NAT: tasks would "
                "have no network access. Or set vpcId and subnetIds"
            )
        return self
