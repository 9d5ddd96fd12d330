"""`python -m infra <command>`: runs the CDK CLI on this app, with the caller's credentials.

Before `deploy` it checks the account. `check` does only that. A first `deploy` has two steps: the
second one protects the tables from deletion, so that nothing is left if the first one fails.
`destroy -c removeData=true` first updates the stack, if there is one, so that it deletes its data.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nextfire_cli.local.cdk import inherited_environment, installed_cdk

ROOT = Path(__file__).resolve().parent.parent
_REMOVE_DATA = "removeData=true"


def main(arguments: Sequence[str]) -> int:
    os.environ["PATH"] = inherited_environment()["PATH"]  # with the Node of this environment
    command = arguments[0] if arguments else ""
    if command in {"check", "deploy"}:
        prevented = _check(arguments)
        if prevented or command == "check":
            return prevented
    if command == "destroy" and _REMOVE_DATA in arguments and not _is_first(arguments):
        updated = main(["deploy", *arguments[1:]])
        if updated:
            return updated
    if command == "deploy" and _is_first(arguments):
        created = _cdk([*arguments, "-c", f"{_first_deployment()}=true"])
        if created:
            return created
        sys.stderr.write("The stack is created. Next: its tables are protected from deletion.\n")
    return _cdk(arguments)


def _cdk(arguments: Sequence[str]) -> int:
    try:
        cdk = [str(installed_cdk(ROOT / ".nextfire")), *arguments]
    except subprocess.CalledProcessError as error:
        sys.stderr.write(
            "npm could not fetch the CDK command line. Check that its registry can be reached.\n"
            f"{error.stderr}\n"
        )
        return 1
    return subprocess.run(cdk, cwd=ROOT, check=False).returncode


def _is_first(arguments: Sequence[str]) -> bool:
    """Whether the deployment creates the stack. False if the account does not say."""
    from infra.account_check import profile_of  # noqa: PLC0415 - as below
    from infra.app import STACK_NAME  # noqa: PLC0415
    from infra.aws_account import AwsAccount  # noqa: PLC0415

    try:
        return not AwsAccount(profile_of(arguments)).has_stack(STACK_NAME)
    except Exception as error:  # noqa: BLE001 — the SDK has many
        sys.stderr.write(f"not known whether the stack exists: {error}\n")
        return False


def _first_deployment() -> str:
    from infra.constructs.stores import FIRST_DEPLOYMENT  # noqa: PLC0415 - as below

    return FIRST_DEPLOYMENT


def _check(arguments: Sequence[str]) -> int:
    """Check the account and print the findings. Returns 1 if one prevents a deployment, else 0."""
    # Not above: the CDK library starts a Node process, which other commands do without.
    from pydantic import ValidationError  # noqa: PLC0415

    from infra.account_check import CdkJsonError, check, profile_of, settings_of  # noqa: PLC0415
    from infra.aws_account import AwsAccount  # noqa: PLC0415
    from infra.setting_errors import explain  # noqa: PLC0415

    try:
        findings = check(settings_of(arguments, ROOT), AwsAccount(profile_of(arguments)))
    except ValidationError as error:
        sys.stderr.write(f"{explain(error)}\n")
        return 1
    except CdkJsonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for finding in findings:
        sys.stderr.write(f"{'error: ' if finding.prevents else ''}{finding.text}\n")
    return int(any(finding.prevents for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
