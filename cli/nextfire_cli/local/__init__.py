"""The local stack: MiniStack, the same CDK app deployed into it, and worker processes."""

from nextfire_cli.local.stack import LocalStack, PoolInfo, StackInfo
from nextfire_cli.local.state import LocalStackError

__all__ = ["LocalStack", "LocalStackError", "PoolInfo", "StackInfo"]
