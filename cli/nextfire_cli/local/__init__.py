"""The local stacks: the embedded stack, and the CDK app deployed into an emulator (MiniStack)."""
