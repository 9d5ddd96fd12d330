"""Scripts get resolved references, and act in the role of their pool."""

import hashlib
import json
import secrets
import shutil
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack
from tests.e2e.user import Document, User, soon, until
from tests.places import host_folder

BORROWER = """
import sys, nextfire_job
payload = nextfire_job.payload()
sys.path.append(payload["site"])
import boto3
s3 = boto3.client("s3")
s3.put_object(Bucket=payload["bucket"], Key="from-script", Body=b"hello")
try:
    s3.list_objects_v2(Bucket=payload["forbidden"])
except s3.exceptions.ClientError as error:
    refused = error.response["Error"]["Code"]
else:
    refused = None
me = boto3.client("sts").get_caller_identity()["Arn"]
nextfire_job.result({"me": me, "refused": refused})
"""
PRINTS_DIGESTS = """
import hashlib, os
for name in ("PLAIN", "SECRET", "PICKED", "PARAMETER"):
    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest())
"""


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    for name, source in {"borrower": BORROWER, "digests": PRINTS_DIGESTS}.items():
        stack.put_script("default", name, source)
    with stack.api() as http:
        yield User(stack, http, scratch)


def test_references_are_resolved_for_the_script_and_recorded_nowhere(user: User) -> None:
    values = {
        name: f"{name.lower()}-{secrets.token_hex(16)}"
        for name in ("PLAIN", "SECRET", "PICKED", "PARAMETER")
    }
    home = f"nextfire/pools/default/{user.stack.info.account_id}"
    manager, store = user.stack.client("secretsmanager"), user.stack.client("ssm")
    manager.create_secret(Name=f"{home}/team/token", SecretString=values["SECRET"])
    manager.create_secret(
        Name=f"{home}/team/db", SecretString=json.dumps({"password": values["PICKED"]})
    )
    store.put_parameter(Name=f"/{home}/team/url", Value=values["PARAMETER"], Type="SecureString")
    env = {
        "PLAIN": values["PLAIN"],
        "SECRET": {"secret": "team/token"},
        "PICKED": {"secret": "team/db", "key": "password"},
        "PARAMETER": {"parameter": "team/url"},
    }
    target = {"pool": "default", "handler": "digests", "env": env}
    job = user.once(soon(1), handler="digests", target=target)

    [run] = user.ended(job)

    assert run["state"] == "SUCCEEDED", run
    assert dict(line.split() for line in run["stdout"].splitlines()) == {
        name: hashlib.sha256(value.encode()).hexdigest() for name, value in values.items()
    }
    read = json.dumps(user.call("GET", f"/v1/executions/{run['executionId']}"))

    def logged() -> str | None:  # a worker logs a run after it has recorded it
        logs = [path.read_text() for path in (user.stack.state / "logs").glob("worker-*")]
        return "".join(logs) if any(run["executionId"] in log for log in logs) else None

    logs: str = until(logged, "the run in a worker's log")
    for value in values.values():
        assert value not in read + logs

    missing = {"pool": "default", "handler": "digests", "env": {"X": {"secret": "nowhere"}}}
    lost = user.once(soon(1), handler="digests", target=missing)
    [dead] = user.ended(lost)
    assert (dead["state"], len(dead["attempts"])) == ("DEAD", 1)
    assert f"{home}/nowhere" in dead["reason"]
    user.dead_letter("default", lost["jobId"])


@pytest.fixture
def borrowed(user: User) -> Iterator[Document]:
    """A queue whose worker assumes a role for its scripts, and the bucket that the role can use."""
    iam, sqs, s3 = (user.stack.client(service) for service in ("iam", "sqs", "s3"))
    worker = user.stack.info.roles["worker-default"]
    unique = secrets.token_hex(4)
    bucket, role_name = f"lent-{unique}", f"lent-{unique}"
    s3.create_bucket(Bucket=bucket)
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": worker},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    role = iam.create_role(RoleName=role_name, AssumeRolePolicyDocument=_policy(trust))["Role"]
    may_write = {
        "Effect": "Allow",
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{bucket}/*",
    }
    iam.put_role_policy(RoleName=role_name, PolicyName="it", PolicyDocument=_policy(may_write))
    attributes = {"FifoQueue": "true"}
    url = sqs.create_queue(QueueName=f"lent-{unique}.fifo", Attributes=attributes)["QueueUrl"]
    may_borrow = [
        {"Effect": "Allow", "Action": "sqs:*", "Resource": f"arn:aws:sqs:*:*:lent-{unique}.fifo"},
        {"Effect": "Allow", "Action": trust["Action"], "Resource": role["Arn"]},
    ]
    borrower = {"RoleName": worker.rpartition("/")[2], "PolicyName": f"lent-{unique}"}
    iam.put_role_policy(**borrower, PolicyDocument=_policy(*may_borrow))
    pid = user.stack.start_worker(NEXTFIRE_QUEUE_URL=url, NEXTFIRE_JOB_ROLE_ARN=role["Arn"])
    yield {"queue": url, "role": role_name, "bucket": bucket}
    user.stack.end_workers(pid)
    iam.delete_role_policy(**borrower)


@pytest.fixture
def site() -> Iterator[Path]:
    """A folder with boto3 that scripts can read: the checkout may be below one that they may not
    enter, such as /root.
    """
    folder, ours = host_folder("nextfire-site-"), Path(sysconfig.get_path("purelib"))
    for package in ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3"):
        shutil.copytree(ours / package, folder / package, ignore=_other_services)
    shutil.copy(ours / "six.py", folder)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _other_services(folder: str, names: list[str]) -> set[str]:
    """The models of services that the script does not call."""
    if not folder.endswith("botocore/data"):
        return set()
    return {name for name in names if not name.endswith(".json")} - {"s3", "sts"}


def _policy(*statements: Document) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def test_a_script_acts_in_its_pool_s_role(user: User, borrowed: Document, site: Path) -> None:
    # No local pool has a role: the worker gets a dedicated queue, and the run is sent there.
    payload = {
        "site": str(site),
        "bucket": borrowed["bucket"],
        "forbidden": user.stack.info.scripts_bucket,
    }
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    job = user.once(tomorrow, handler="borrower", payload=payload)
    [run] = user.call("GET", f"/v1/jobs/{job['jobId']}/upcoming")["items"]
    user.send({**run, "jobId": job["jobId"], "scheduledAt": run["at"]}, queue=borrowed["queue"])

    found = user.result(job)

    account = user.stack.info.account_id
    assert found == {
        "me": f"arn:aws:sts::{account}:assumed-role/{borrowed['role']}/{job['jobId']}@{account}",
        "refused": "AccessDenied",
    }
    written = user.stack.client("s3").get_object(Bucket=borrowed["bucket"], Key="from-script")
    assert written["Body"].read() == b"hello"
