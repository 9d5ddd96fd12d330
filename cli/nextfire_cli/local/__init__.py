"""The local stacks: the embedded stack, and the CDK app deployed into an emulator (MiniStack)."""

from typing import TYPE_CHECKING

from nextfire_cli.local.state import LocalStackError

if TYPE_CHECKING:
    from nextfire_cli.local.stack import LocalStack
    from nextfire_cli.local.stack_info import PoolInfo, StackInfo

__all__ = ["LocalStack", "LocalStackError", "PoolInfo", "StackInfo"]


def __getattr__(name: str) -> object:
    # The emulator's stack needs boto3, which takes a second to import.
    if name in __all__:
        from nextfire_cli.local import stack, stack_info  # noqa: PLC0415

        return getattr(stack if name == "LocalStack" else stack_info, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
