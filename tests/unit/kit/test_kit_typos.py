"""Typos in a test of jobs: what the test provides would never be used, and the test would pass."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nextfire import ClientError
from nextfire.testing import Stack
from tests.unit.kit.conftest import ROOT


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda stack: stack.fail("zzz"), "fail: the test has no script 'zzz'. Scripts: report."),
        (
            lambda stack: stack.crash_worker(during="zzz"),
            "crash_worker: the test has no script 'zzz'. Scripts: report.",
        ),
        (lambda stack: stack.http("notaurl", print), "http: 'notaurl' is not the start of a URL:"),
        (lambda stack: stack.aws("nope", print), "aws: 'nope' is not SERVICE:Action: write"),
        (lambda stack: stack.aws("sqs:send_message", print), "aws: 'sqs:send_message' is not"),
        (lambda stack: stack.secret("a b", "x"), "secret: a job cannot refer to 'a b': use"),
        (lambda stack: stack.secret("a#", "x"), "secret: a job cannot refer to 'a#': use"),
        (lambda stack: stack.advance_to("soon"), "'soon' is not an instant: write 2027-01-01T00"),
    ],
)
def test_a_name_that_nothing_can_use_is_rejected(
    stack: Stack, call: Callable[[Stack], None], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call(stack)


def test_a_key_of_a_secret_is_named(stack: Stack) -> None:
    stack.secret("billing/database#password", "s3cr3t-value")


def test_a_pipeline_that_cannot_be_read_is_an_error_of_the_client(stack: Stack) -> None:
    with pytest.raises(ClientError, match=r"apply: cannot read nope\.yaml: No such file"):
        stack.apply("nope.yaml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('strt="2027-03-28T00:00:00Z"', "got an unexpected keyword argument 'strt'. Arguments: st"),
        ('"2027-03-28T00:00:00Z"', "1 passed"),
    ],
)
def test_the_arguments_of_the_marker_are_checked(
    tmp_path: Path, arguments: str, expected: str
) -> None:
    test = tmp_path / "test_marked.py"
    test.write_text(
        f"import pytest\n\n@pytest.mark.nextfire({arguments})\ndef test_it(nextfire_stack):\n"
        "    assert nextfire_stack.now.month == 3\n"
    )
    without = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", *without, str(test)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert expected in done.stdout, done.stdout + done.stderr


def test_a_file_is_read_as_by_the_command(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipeline: p\njobs: [{jobId: a, type: MANUAL, target: {handler: a}}]\n---\n")
    stack.apply(file)
    assert stack.client.get_job("a").state == "ACTIVE"

    file.write_text("# nothing yet\n")
    with pytest.raises(ClientError, match=r"p\.yaml is invalid\. jobs: the file is empty\."):
        stack.apply(file)


def test_a_secret_that_the_test_has_not_stored(stack: Stack) -> None:
    stack.script("a", lambda _: None)
    env = {"KEY": {"secret": "billing/key"}}
    stack.put("a", {"type": "MANUAL", "target": {"handler": "a", "env": env}})
    stack.run("a")
    stack.advance(minutes=1)

    [run] = stack.runs("a", state="DEAD")
    assert 'The test has none: stack.secret("billing/key", "value").' in str(run.reason)
