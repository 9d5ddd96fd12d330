"""Third-party rules: cfn-lint on the template, cdk-nag's AwsSolutions on the app."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Acknowledgment, App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.app import build_app
from tests.infra.conftest import context_of_project

_MEANT = {
    "AwsSolutions-S1": "The buckets hold what the executors read and write; CloudTrail data events "
    "record who read what, for users who want to pay for them.",
    "AwsSolutions-IAM5[Resource::<StoresScriptsFC0C18FA.Arn>/*]": "The API signs uploads of any "
    "tenant: the tenants are not known when the stack is deployed.",
    "AwsSolutions-IAM5[Resource::<StoresAudit7CEFB6B3.Arn>/chain/*]": "The audit log appends "
    "batches under names that are not known when the stack is deployed.",
    "AwsSolutions-SQS3": "The queue of failed audit batches is itself a dead-letter queue.",
    "AwsSolutions-IAM5[Resource::<StoresOutputs089F9A09.Arn>/*]": "The API shows the outputs of "
    "any run: the runs are not known when the stack is deployed.",
    "AwsSolutions-L1": "The layer's wheels are locked and checked for this version of Python; a "
    "newer runtime is a separate change.",
    "AwsSolutions-APIG4": "Health is open on purpose: it only shows that the API answers.",
}


def check_with_cfn_lint(template_file: Path) -> None:
    cfn_lint = str(Path(sys.prefix) / "bin" / "cfn-lint")
    found = subprocess.run(
        # W3005: the CDK adds dependencies that a reference already implies.
        [cfn_lint, "--regions", "us-east-1", "--ignore-checks", "W3005", "--", str(template_file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stdout + found.stderr


_OF_A_POOL = (
    "<StoresScriptsFC0C18FA.Arn>/",
    "<StoresOutputs089F9A09.Arn>/",
    "arn:<AWS::Partition>:secretsmanager:<AWS::Region>:<AWS::AccountId>:secret:nextfire/",
    "arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>:parameter/nextfire/",
)


def _meant_of(pools: Iterable[str]) -> dict[str, str]:
    """Each pool's executors can access what is below the prefix of their pool."""
    return {
        f"AwsSolutions-IAM5[Resource::{before}pools/{pool}/*]": "The pool's own prefix: its "
        "tenants, scripts and runs are not known when the stack is deployed."
        for pool in pools
        for before in _OF_A_POOL
    }


def check_with_nag(tmp_path: Path, context: Mapping[str, Any], meant: Mapping[str, str]) -> None:
    """Synthesize with *context* on top of the project's own; *meant* is allowed in addition."""
    app = App(outdir=str(tmp_path / "cdk.out"), context={**context_of_project(), **context})
    stack = build_app(app, staging=tmp_path / "staging")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    pools = _meant_of({**context_of_project(), **context}["pools"])
    for rule, reason in {**_MEANT, **pools, **meant}.items():
        Validations.of(stack).acknowledge(Acknowledgment(id=f"AwsSolutions::{rule}", reason=reason))

    app.synth()  # raises with the list of findings


def test_cfn_lint_finds_nothing(template_file: Path) -> None:
    check_with_cfn_lint(template_file)


def test_cdk_nag_finds_nothing_but_what_is_meant(tmp_path: Path) -> None:
    check_with_nag(tmp_path, {}, {})
