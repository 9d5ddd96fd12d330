"""The CDK app. `cdk synth` and `cdk deploy` run this module from the project's root."""

import subprocess
import sys
import tempfile
from pathlib import Path

from aws_cdk import App, CliCredentialsStackSynthesizer
from pydantic import ValidationError

from infra.build import Build, WrongWheelError
from infra.limits import BeyondLimitError
from infra.setting_errors import INVALID, explain
from infra.settings import Settings, StackTarget
from infra.stack import NextfireStack

STACK_NAME = "Nextfire"
ROOT = Path(__file__).resolve().parent.parent


def build_app(app: App, *, staging: Path) -> NextfireStack:
    """Add the stack to *app*, with the settings in its context. Needs no credentials or Docker.

    Assets are staged under *staging*, which may be removed after this function returns.
    """
    settings = Settings.from_context(app.node.get_all_context())
    # MiniStack's IAM rejects the CDK's deploy roles, so the local target does not use them.
    synthesizer = CliCredentialsStackSynthesizer() if settings.target is StackTarget.LOCAL else None
    build = Build(ROOT, staging=staging, cache=ROOT / ".nextfire" / "build")
    return NextfireStack(app, STACK_NAME, settings=settings, build=build, synthesizer=synthesizer)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nextfire-") as staging:
        app = App()
        try:
            build_app(app, staging=Path(staging))
        except ValidationError as error:
            sys.exit(explain(error))
        except BeyondLimitError as error:
            sys.exit(f"{INVALID}\n  {error}")
        except WrongWheelError as error:
            sys.exit(str(error))
        except subprocess.CalledProcessError as error:  # which has printed why
            sys.exit(f"The code could not be built: {error}")
        app.synth()


if __name__ == "__main__":
    main()
