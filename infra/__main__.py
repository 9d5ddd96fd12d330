"""`python -m infra <command>`: runs the CDK CLI on this app, with the caller's credentials."""

import os
import subprocess
import sys
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment, installed_cdk

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    environment = {**os.environ, "PATH": inherited_environment()["PATH"]}
    program = installed_cdk(ROOT / ".nextfire")
    return subprocess.run(
        [str(program), *sys.argv[1:]], cwd=ROOT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
