"""The network that a script finds: the host's, none, or its own with a proxy to listed hosts.

Without a network the kernel refuses internet sockets (`syscalls`): this works on every host. A
separate network is a namespace with a loopback interface and nothing else. The executor, which is
outside, holds the sockets that listen inside: the proxy, and the relay to the job role's server.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from nextfire.adapters.confinement import leave_network
from nextfire.adapters.egress_proxy import EgressProxy, proxy_environment, relay
from nextfire.domain.egress import Egress, EgressMode

_PROXY_PORT = 3128
_CREDENTIALS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_BACKLOG = 64


@dataclass(frozen=True, slots=True)
class Network:
    """What a program gets.

    `internet`: whether it may open internet sockets. `namespace`: the descriptor of the network
    namespace that it enters; -1: it stays in the executor's. `environment`: the variables by which
    it finds the proxy. `notices`: lines for its log, the oldest first; others add to them.
    """

    internet: bool = True
    namespace: int = -1
    environment: Mapping[str, str] = field(default_factory=dict)
    notices: deque[str] = field(default_factory=deque)


@contextmanager
def network_for(egress: Egress, environment: Mapping[str, str]) -> Iterator[Network]:
    """The network of one run, which is there within.

    Args:
        egress: What its pool's scripts may reach. Listed hosts take the capability CAP_SYS_ADMIN.
        environment: The script's. If it names the job role's server, that is relayed.

    Raises:
        OSError: It cannot be made.
    """
    if egress.mode is EgressMode.OPEN:
        yield Network()
    elif egress.mode is EgressMode.NONE:
        yield Network(internet=False)
    else:
        with _own_network(egress, environment) as network:
            yield network


@contextmanager
def _own_network(egress: Egress, environment: Mapping[str, str]) -> Iterator[Network]:
    notices: deque[str] = deque()
    role = urlsplit(environment.get(_CREDENTIALS, "")).port
    ports = [_PROXY_PORT, *([] if role is None else [role])]

    def refused(host: str, port: int, reason: str) -> None:
        notices.append(f"nextfire: {host}:{port} refused by the pool's egress: {reason}\n")

    with ThreadPoolExecutor(1) as thread:  # it ends in the namespace that it makes
        namespace, listeners = thread.submit(_make, ports).result()
    with ExitStack() as stack:
        stack.callback(os.close, namespace)
        for listener in listeners:
            stack.enter_context(listener)
        stack.enter_context(EgressProxy(egress, refused=refused).serving(listeners[0]))
        if role is not None:
            stack.enter_context(relay(listeners[1], ("127.0.0.1", role)))
        yield Network(
            namespace=namespace, environment=proxy_environment(_PROXY_PORT), notices=notices
        )


def _make(ports: Sequence[int]) -> tuple[int, list[socket.socket]]:
    """Move this thread into a new network namespace; return its descriptor, and sockets that listen
    on its loopback.
    """
    leave_network()
    with ExitStack() as unless_made:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            up = struct.pack("16sh", b"lo", _IFF_UP)
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, up.ljust(40, b"\0"))
        listeners = [
            unless_made.enter_context(socket.create_server(("127.0.0.1", port), backlog=_BACKLOG))
            for port in ports
        ]
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        unless_made.pop_all()
    return namespace, listeners
