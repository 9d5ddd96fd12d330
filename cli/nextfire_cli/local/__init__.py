"""The local stack: MiniStack, the same CDK app deployed into it, and worker processes."""

from nextfire_cli.local.stack import LocalStack, LocalStackError, PoolInfo, StackInfo

__all__ = ["LocalStack", "LocalStackError", "PoolInfo", "StackInfo"]
