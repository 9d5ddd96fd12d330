"""The functions' code: one asset per function, and two layers that all functions share."""

import platform

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.build import Build, Runtime
from infra.settings import StackTarget


class Code(Construct):
    """Code assets and layers for the target's architecture and Python."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        build: Build,
        target: StackTarget,
        signatures: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        self._build = build
        self.runtime = lambda_.Runtime.PYTHON_3_13  # MiniStack ignores it and runs its own Python
        on_arm = target is StackTarget.AWS or platform.machine() in {"aarch64", "arm64"}
        self.architecture = lambda_.Architecture.ARM_64 if on_arm else lambda_.Architecture.X86_64
        self._on = Runtime.lambda_arm64() if target is StackTarget.AWS else Runtime.host()
        packages = build.third_party_layer(self._on, signatures=signatures)
        self.layers = [
            lambda_.LayerVersion(
                self,
                "ThirdParty",
                code=lambda_.Code.from_asset(str(packages)),
                description="Locked third-party packages",
                compatible_architectures=[self.architecture],
                compatible_runtimes=[self.runtime],
            ),
            lambda_.LayerVersion(
                self,
                "FirstParty",
                code=lambda_.Code.from_asset(str(build.first_party_layer(self._on))),
                description="The nextfire core",
                compatible_architectures=[self.architecture],
                compatible_runtimes=[self.runtime],
            ),
        ]

    def of(self, folder: str) -> lambda_.Code:
        """The code of `functions/<folder>`."""
        return lambda_.Code.from_asset(str(self._build.function(folder, self._on)))
