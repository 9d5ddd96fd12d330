"""Attempts of a script to read its machine's credentials from the metadata service.

A network namespace stands in for the machine, another one for the service on the network.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nextfire.adapters.scripts import metadata_block
from nextfire.adapters.scripts.metadata_block import ADDRESSES, MetadataExposure, close_metadata
from nextfire.adapters.scripts.script_users import FIRST_UID, RESERVED_UIDS
from nextfire.settings import ExecutorSettings
from nextfire.wiring import execution
from nextfire.wiring.telemetry import Telemetry

ROOT = Path(__file__).parents[2]
needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run(
        ["sh", "-c", "command -v ip && unshare -n true"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="needs root, network namespaces and `ip`",
)

_SET_UP = """
ip link set lo up
ip link add machine type veth peer name service
ip address add 10.9.9.1/24 dev machine
ip -6 address add fd00:9::1/64 dev machine nodad
ip link set machine up
"""

_PROGRAM = """
import json, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
from nextfire.adapters.scripts.metadata_block import ADDRESSES, close_metadata

def shell(script):
    subprocess.run(["sh", "-e", "-c", script], check=True, stdout=subprocess.DEVNULL)

def bind(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"machine")

def scope(sock):
    # The failed connection leaves the socket bound to the interface of the address.
    for _ in range(2):
        try:
            sock.connect(("fe80::99", 81, 0, interface))
        except OSError:
            pass

def attempt(user, address, prepare=None):
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgid(user)
            os.setuid(user)
            # No imports from here on: these users cannot read every Python installation.
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
                sock.settimeout(2)
                if prepare:
                    prepare(sock)
                sock.connect((address, 80))
                sock.sendall(b"GET /latest HTTP/1.0\\r\\n\\r\\n")
                while data := sock.recv(4096):
                    os.write(writer, data)
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return answer.read().rpartition("\\n")[2]

shell(sys.argv[2])
service = subprocess.Popen(
    ["unshare", "-n", sys.executable, sys.argv[3]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
service.stdout.readline()
shell(f"ip link set service netns {service.pid}")
service.stdin.write(b"\\n")
service.stdin.flush()
service.stdout.readline()
shell("ip route add default via 10.9.9.2; ip -6 route add default via fd00:9::2")

interface = socket.if_nametoindex("machine")
BOUND = (
    ("bound", bind, "169.254.169.254"),
    ("bound for ECS", bind, "169.254.170.2"),
    ("bound in IPv6", bind, "fd00:ec2::254"),
    ("bound and mapped", bind, "::ffff:169.254.169.254"),
    ("with a scope", scope, "::ffff:169.254.169.254"),
)
found = {}
def look(when):
    for user in map(int, sys.argv[4].split(",")):
        for address in sys.argv[5].split(","):
            found[f"{when} {user} {address}"] = attempt(user, address)
    for user in map(int, sys.argv[6].split(",")):
        for name, prepare, address in BOUND:
            found[f"{when} {user} {name}"] = attempt(user, address, prepare)

look("before")
found["first"] = repr(close_metadata())
look("after")
found["again"] = repr(close_metadata())
found["rules"] = subprocess.run(["ip", "rule"], capture_output=True, text=True).stdout
shell("ip address add 169.254.169.254/32 dev lo")
found["own"] = repr(close_metadata())
service.kill()
service.wait()
print(json.dumps(found))
"""

_SERVICE = """
import http.server, socket, subprocess, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"credentials")
    def log_message(self, *_): pass

class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6

print("there", flush=True)
sys.stdin.readline()
subprocess.run(["sh", "-e", "-c", '''
ip link set lo up
ip address add 10.9.9.2/24 dev service
ip -6 address add fd00:9::2/64 dev service nodad
ip -6 address add fe80::99/64 dev service nodad
for each in 169.254.169.254 169.254.170.2 169.254.170.23; do
    ip address add $each/32 dev service
done
for each in fd00:ec2::254 fd00:ec2::23; do ip -6 address add $each/128 dev service nodad; done
ip link set service up
'''], check=True)
four = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler)
threading.Thread(target=four.serve_forever).start()
print("serving", flush=True)
Six(("fd00:ec2::254", 80), Handler).serve_forever()
"""

IMDS, ECS, EKS, IMDS6 = "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254"
MAPPED = "::ffff:169.254.169.254"
OTHER = "10.9.9.2"
SCRIPT, LAST, WORKER, NEIGHBOUR = (
    FIRST_UID,
    FIRST_UID + RESERVED_UIDS - 1,
    0,
    FIRST_UID + RESERVED_UIDS,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The answers that users got from the service, before and after the addresses were blocked."""
    service = tmp_path_factory.mktemp("metadata") / "service.py"
    service.write_text(_SERVICE)
    users = ",".join(map(str, (SCRIPT, LAST, WORKER, NEIGHBOUR)))
    addresses = f"{IMDS},{ECS},{EKS},{IMDS6},{MAPPED},{OTHER}"
    layers = str(ROOT / "layers")
    program = [sys.executable, "-c", _PROGRAM, layers, _SET_UP, str(service), users, addresses]
    program.append(f"{SCRIPT},{WORKER}")
    ended = subprocess.run(
        ["unshare", "-n", *program], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    answers: dict[str, str] = json.loads(ended.stdout)
    return answers


@needs_namespaces
@pytest.mark.parametrize("address", [IMDS, ECS, EKS, IMDS6, MAPPED])
@pytest.mark.parametrize("user", [SCRIPT, LAST])
def test_script_reads_credentials_before_and_not_after(
    found: dict[str, str], user: int, address: str
) -> None:
    assert found[f"before {user} {address}"] == "credentials"
    assert "Permission denied" in found[f"after {user} {address}"]


@needs_namespaces
@pytest.mark.parametrize(
    "way", ["bound", "bound for ECS", "bound in IPv6", "bound and mapped", "with a scope"]
)
def test_socket_that_is_bound_to_an_interface_reads_none(found: dict[str, str], way: str) -> None:
    assert found[f"before {SCRIPT} {way}"] == "credentials"
    assert found[f"after {SCRIPT} {way}"] != "credentials"
    assert found[f"after {WORKER} {way}"] == "credentials"


@needs_namespaces
@pytest.mark.parametrize("address", [IMDS, ECS, EKS, IMDS6, MAPPED])
@pytest.mark.parametrize("user", [WORKER, NEIGHBOUR])
def test_others_are_not_affected(found: dict[str, str], user: int, address: str) -> None:
    assert found[f"after {user} {address}"] == "credentials"


@needs_namespaces
def test_scripts_reach_other_addresses(found: dict[str, str]) -> None:
    assert found[f"after {SCRIPT} {OTHER}"] == "credentials"


@needs_namespaces
def test_second_worker_of_the_machine_adds_nothing(found: dict[str, str]) -> None:
    assert found["first"] == found["again"] == "None"
    assert found["rules"].count("prohibit") == 3, "one rule for each IPv4 address"


@needs_namespaces
def test_address_of_the_machine_itself_is_reported(found: dict[str, str]) -> None:
    assert f"{IMDS}: this is a local address of the machine" in found["own"]
    assert ECS not in found["own"]


@needs_namespaces
def test_without_the_capability_it_is_reported() -> None:
    """Root in a container has no CAP_NET_ADMIN."""
    module = "nextfire.adapters.scripts.metadata_block"
    code = f"from {module} import close_metadata; print(close_metadata())"
    ended = subprocess.run(
        ["unshare", "-n", "setpriv", "--bounding-set=-net_admin", sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "layers"), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Operation not permitted" in ended.stdout
    assert "Run the worker as root with CAP_NET_ADMIN" in ended.stdout


def test_worker_that_is_not_root_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    still_open = close_metadata()

    assert isinstance(still_open, MetadataExposure)
    assert still_open.addresses == tuple(map(str, ADDRESSES))
    assert "Run the worker as root with CAP_NET_ADMIN" in still_open.reason


def test_without_a_packet_filter_it_reports_what_bound_sockets_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(metadata_block, "_add_rule", lambda *_: None)
    monkeypatch.setattr(metadata_block, "_is_refused", lambda *_: True)
    monkeypatch.setattr(metadata_block, "drop_packets", fail)

    still_open = close_metadata()

    assert still_open is not None
    assert still_open.addresses == (IMDS, ECS, EKS)
    assert "nf_tables fails: Operation not supported" in still_open.reason
    assert "on a kernel with nf_tables" in still_open.reason, "what to do"


@pytest.mark.parametrize(("setting", "logged"), [("closed", True), ("open", False)])
def test_executor_closes_them_at_its_start_and_logs_what_stays_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, setting: str, *, logged: bool
) -> None:
    monkeypatch.setattr(execution, "close_metadata", lambda: MetadataExposure((IMDS,), "because"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "fake")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    names = {
        "jobs_table", "due_table", "runs_table", "scripts_bucket", "outputs_bucket", "event_bus",
        "pool", "queue_url", "dlq_url",
    }  # fmt: skip
    values = dict.fromkeys(names, "x") | {"write_shards": "1", "metadata": setting}

    execution.executor_ports(ExecutorSettings.model_validate(values), Telemetry("worker"))

    assert ("metadata is open to scripts: because" in caplog.text) is logged
