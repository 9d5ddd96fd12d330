"""Scripts cannot affect their executor or each other; they get references and a job role."""

import hashlib
import json
import os
import secrets
import shutil
import sysconfig
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Stack, processes_of
from tests.e2e.test_path import Document, User, soon
from tests.places import host_folder

as_users_of_their_own = pytest.mark.skipif(
    os.geteuid() != 0, reason="scripts have dedicated users only if the executor is root"
)

HOSTILE = {
    "fork-bomb": """
import os, time
made = 0
try:
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error)
    raise SystemExit(7)
""",
    "flood": """
import sys
for _ in range(1024):
    sys.stdout.write(("x" * 1023 + "\\n") * 1024)
""",
    "glutton": """
held = bytearray(4 << 30)
""",
    "vandal": """
import os, shutil
home = os.environ["HOME"]
shutil.rmtree(home, ignore_errors=True)
print(home, os.listdir(home))
""",
    "daemon": """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3):
            os.close(descriptor)
        time.sleep(600)
    os._exit(0)
os.wait()
""",
}
SPY = """
import json, os, pathlib, nextfire_job
payload = nextfire_job.payload()
ours = {str(os.getpid()), "self", "thread-self"}
looked = {"environ": [], "mem": [], "fd": []}
processes = [each for each in pathlib.Path("/proc").glob("[0-9]*") if each.name not in ours]
for process in processes:
    for name in ("environ", "mem"):
        try:
            with open(process / name, "rb") as file:
                if name == "mem":
                    looked["mem"].append(process.name)
                elif file.read():
                    looked["environ"].append(process.name)
        except OSError:
            pass
    try:
        os.listdir(process / "fd")
        looked["fd"].append(process.name)
    except OSError:
        pass
files = []
for path in [*payload["files"], os.path.expanduser("~/.aws/config"), "/root/.aws/credentials"]:
    try:
        files.append(open(path).read())
    except OSError:
        pass
nextfire_job.result({
    "seen": len(processes),
    "parent": str(os.getppid()) in {each.name for each in processes},
    "looked": looked,
    "files": files,
    "own": [name for name in os.environ if name.startswith("AWS")],
    "user": os.getuid(),
})
"""
NEIGHBOUR = """
import os, pathlib, time, nextfire_job
payload = nextfire_job.payload()
secret = pathlib.Path(os.environ["HOME"], "secret")
secret.write_text(os.environ["MINE"])
with open(payload["marks"], "a") as marks:
    marks.write(str(secret) + " " + str(os.getpid()) + "\\n")
while len(marked := pathlib.Path(payload["marks"]).read_text().split()) < 4:
    time.sleep(0.05)
found = []
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found.append(path.read_bytes().decode())
    except OSError:
        pass
for path in marked[::2]:
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError:
        pass
with open(payload["marks"], "a") as marks:
    marks.write("looked looked\\n")
while len(pathlib.Path(payload["marks"]).read_text().split()) < 8:
    time.sleep(0.05)
nextfire_job.result([name for name, value in payload["secrets"].items() if value in str(found)])
"""
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
    scripts = {
        **HOSTILE,
        "spy": SPY,
        "neighbour": NEIGHBOUR,
        "borrower": BORROWER,
        "digests": PRINTS_DIGESTS,
        "well": "print('well')",
    }
    for name, source in scripts.items():
        stack.put_script("default", name, source)
    with stack.api() as http:
        yield User(stack, http, scratch)


def result(user: User, job: Document) -> Any:
    """The result of the job's only run, which succeeded."""
    [run] = user.ended(job)
    assert run["state"] == "SUCCEEDED", run
    return user.call("GET", f"/v1/executions/{run['executionId']}")["result"]


def test_whatever_scripts_do_their_worker_serves_on_and_nothing_of_them_stays(user: User) -> None:
    policy = {"maxAttempts": 1}
    workers = user.stack.workers()
    jobs = {name: user.once(soon(2), handler=name, retryPolicy=policy) for name in HOSTILE}

    runs = {name: user.ended(job)[0] for name, job in jobs.items()}

    assert {name: (run["state"], run["exitCode"]) for name, run in runs.items()} == {
        "fork-bomb": ("DEAD", 7),
        "flood": ("SUCCEEDED", 0),
        "glutton": ("DEAD", 1),
        "vandal": ("SUCCEEDED", 0),
        "daemon": ("SUCCEEDED", 0),
    }
    assert "Resource temporarily unavailable" in runs["fork-bomb"]["stdout"]
    home, _, left = runs["vandal"]["stdout"].partition(" ")
    assert left == "[]\n"
    assert "MemoryError" in runs["glutton"]["stderr"]
    assert len(runs["flood"]["stdout"]) < 20_000
    assert "bytes cut" in runs["flood"]["stdout"]
    for name, run in runs.items():
        assert processes_of(run["executionId"]) == [], name
    top = Path(home).parent
    assert list((user.stack.state / "tmp").glob(top.name.rpartition("-")[0] + "-*")) == []
    assert top.parent == user.stack.state / "tmp"
    assert user.stack.workers() == workers
    # As many runs as the workers have slots: no slot is lost.
    others = [user.once(soon(1), handler="well") for _ in range(8)]
    assert {user.ended(job)[0]["stdout"] for job in others} == {"well\n"}
    for name in ("fork-bomb", "glutton"):
        user.dead_letter("default", jobs[name]["jobId"])


@as_users_of_their_own
def test_a_script_reads_nobodys_credentials(user: User) -> None:
    aws = user.stack.state / "aws"
    files = [str(path) for path in aws.iterdir()]
    assert files, "workers store their profile in a file"
    job = user.once(soon(1), handler="spy", payload={"files": files})

    found = result(user, job)

    assert (found["seen"], found["parent"]) == (0, False)
    assert found["looked"] == {"environ": [], "mem": [], "fd": []}
    assert found["files"] == []
    assert found["own"] == []
    assert found["user"] != 0


@as_users_of_their_own
def test_scripts_side_by_side_do_not_see_each_other(user: User) -> None:
    values = {name: secrets.token_hex(16) for name in ("left", "right")}
    at = soon(2)
    jobs = {
        name: user.once(
            at,
            handler="neighbour",
            payload={"secrets": values},
            timeoutSec=30,
            target={"pool": "default", "handler": "neighbour", "env": {"MINE": value}},
        )
        for name, value in values.items()
    }

    seen = {name: result(user, job) for name, job in jobs.items()}

    assert seen == {"left": ["left"], "right": ["right"]}


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
    logs = "".join(path.read_text() for path in (user.stack.state / "logs").glob("worker-*"))
    assert run["executionId"] in logs
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

    found = result(user, job)

    account = user.stack.info.account_id
    assert found == {
        "me": f"arn:aws:sts::{account}:assumed-role/{borrowed['role']}/{job['jobId']}@{account}",
        "refused": "AccessDenied",
    }
    there = user.stack.client("s3").get_object(Bucket=borrowed["bucket"], Key="from-script")
    assert there["Body"].read() == b"hello"
