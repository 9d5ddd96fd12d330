"""Names of pools as parts of ids in the template, which must not collide."""

from collections.abc import Iterator, Mapping

from infra.pool_settings import PoolSettings
from infra.setting_types import pascal

OWN_VPC = "WorkerVpc"
"""Id of the VPC that the stack creates for its Fargate workers."""


def check_pool_names(pools: Mapping[str, PoolSettings]) -> None:
    """Check that no two of *pools* have an id in common.

    Raises:
        ValueError: Two of them have, or a pool has the id of the workers' VPC.
    """
    taken: dict[str, str] = {}
    for name, pool in pools.items():
        for each in _ids(name, pool):
            if (other := taken.setdefault(each, name)) != name:
                raise ValueError(
                    f"the pools {other!r} and {name!r} would have the same ids in the template "
                    f"({each}): rename one of them"
                )
    needs_vpc = any(pool.fargate and pool.fargate.vpc_id is None for pool in pools.values())
    if needs_vpc and OWN_VPC in taken:
        raise ValueError(
            f"the pool {taken[OWN_VPC]!r} would have the id of the workers' VPC in the template "
            f"({OWN_VPC}): rename it, or set fargate.vpcId of all pools on Fargate"
        )


def _ids(name: str, pool: PoolSettings) -> Iterator[str]:
    """The ids of *pool* that other pools could have, too: of queues, executors and outputs."""
    key = pascal(name)
    yield f"Pool{key}"
    kinds: tuple[str, ...] = ("", "Function", "RoleArn")
    if pool.executor == "worker":
        kinds = ("", "RoleArn", "Environment", *(("Cluster", "Service") if pool.fargate else ()))
    executor = "Executor" if pool.executor == "lambda" else "Worker"
    yield from (f"{executor}{kind}{key}" for kind in kinds)
