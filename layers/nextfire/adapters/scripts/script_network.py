"""The network of a script: the host's, none, or a separate one with a proxy to listed hosts.

Without a network, the kernel rejects internet sockets (`syscalls`); this works on all hosts with
seccomp. A separate network is a namespace with only a loopback interface. The executor is outside
but holds the sockets that listen inside: the proxy, and the relay to the job role's server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from nextfire.adapters.scripts.confinement import leave_network
from nextfire.adapters.scripts.egress_proxy import EgressProxy, proxy_environment, relay
from nextfire.dataclass import dataclass, field
from nextfire.domain.egress import Egress, EgressMode

_PROXY_PORT = 3128
_CREDENTIALS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_BACKLOG = 64


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a program.

    `internet`: whether the program may open internet sockets. `namespace`: descriptor of its
    network namespace; -1 for the executor's. `environment`: variables that point to the proxy.
    `notices`: lines for the program's log, oldest first; the proxy's thread appends to them.
    """

    internet: bool = True
    namespace: int = -1
    environment: Mapping[str, str] = field(default_factory=dict)
    notices: deque[str] = field(default_factory=deque)


@contextmanager
def network_for(egress: Egress, environment: Mapping[str, str]) -> Iterator[Network]:
    """The network of one run, which exists inside the `with` block.

    Args:
        egress: The pool's egress setting. Listed hosts require the capability CAP_SYS_ADMIN.
        environment: The script's environment. If it names the job role's server, connections to
            that server are relayed.

    Raises:
        OSError: The network cannot be created.
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

    with ThreadPoolExecutor(1) as thread:  # the thread stays in the new namespace until it ends
        try:
            making = thread.submit(_make, ports)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"cannot start a thread: {error}") from error
        namespace, listeners = making.result()
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
    """Move this thread into a new network namespace. Returns the namespace's descriptor, and
    sockets that listen on its loopback *ports*.
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
