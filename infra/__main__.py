"""`python -m infra <command>`: runs the CDK CLI on this app, with the caller's credentials.

Before `deploy` it checks the account. `check` does only that.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment, installed_cdk

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str]) -> int:
    os.environ["PATH"] = inherited_environment()["PATH"]  # with the Node of this environment
    command = arguments[0] if arguments else ""
    if command in {"check", "deploy"}:
        prevented = _check(arguments)
        if prevented or command == "check":
            return prevented
    cdk = [str(installed_cdk(ROOT / ".nextfire")), *arguments]
    return subprocess.run(cdk, cwd=ROOT, check=False).returncode


def _check(arguments: Sequence[str]) -> int:
    """Check the account and print the findings. Returns 1 if one prevents a deployment, else 0."""
    # Not above: the CDK library starts a Node process, which other commands do without.
    from pydantic import ValidationError  # noqa: PLC0415

    from infra.account_check import check, settings_of  # noqa: PLC0415
    from infra.aws_account import AwsAccount  # noqa: PLC0415

    profile = dict(pairwise(arguments)).get("--profile")
    try:
        findings = check(settings_of(arguments, ROOT), AwsAccount(profile))
    except ValidationError as error:
        sys.stderr.write(f"Invalid settings in cdk.json (or in -c options):\n{error}\n")
        return 1
    for finding in findings:
        sys.stderr.write(f"{'error: ' if finding.prevents else ''}{finding.text}\n")
    return int(any(finding.prevents for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
