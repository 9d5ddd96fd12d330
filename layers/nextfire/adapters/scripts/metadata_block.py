"""Blocks script users from the metadata addresses of the machine.

Uses policy routing rules: the kernel rejects packets from these users to these addresses; other
users are not affected. The rules need no packages: small images lack `ip` and `iptables`, and a
netlink request takes 40 lines. Existing rules are left alone, so workers on the same machine do not
interfere with each other. A rule stays until the machine restarts or the network namespace ends.

A `packet_filter` stops sockets that are bound to an interface, which these rules do not.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

from nextfire.adapters.scripts.packet_filter import drop_packets
from nextfire.adapters.scripts.script_users import FIRST_UID, RESERVED_UIDS
from nextfire.dataclass import dataclass

ADDRESSES: tuple[IPv4Address | IPv6Address, ...] = tuple(
    map(
        ip_address,
        (
            "169.254.169.254",  # EC2: instance metadata and instance credentials
            "169.254.170.2",  # ECS: credentials of tasks
            "169.254.170.23",  # EKS: credentials of pods
            "fd00:ec2::254",  # EC2
            "fd00:ec2::23",  # EKS
        ),
    )
)

PRIORITY = 5260
"""Priority of the rules: after the table of local addresses (0), before the main table (32766)."""

# From linux/netlink.h, linux/rtnetlink.h and linux/fib_rules.h.
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_NLMSG_ERROR = 2
_RTM_GETROUTE, _RTM_NEWRULE = 26, 32
_FRA_DST, _FRA_PRIORITY, _FRA_UID_RANGE = 1, 6, 20
_FR_ACT_PROHIBIT = 8
_RTA_DST, _RTA_UID = 1, 25
_HEADER = struct.Struct("=IHHII")
_RULE = struct.Struct("=BBBBBBBBI")
"""Header of a rule (fib_rule_hdr) and of a route (rtmsg): family, lengths, other fields, flags."""
_ERROR = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_WITHIN = 5.0
_REMEDY = (
    "Run the worker as root with CAP_NET_ADMIN, on a kernel with nf_tables; or on a machine whose "
    'instance profile has no permissions; or accept it: set the pool\'s "metadata" to "open".'
)


@dataclass(frozen=True, slots=True)
class MetadataExposure:
    """`addresses`: metadata addresses that scripts can still reach. `reason`: cause and remedy."""

    addresses: tuple[str, ...]
    reason: str


def close_metadata() -> MetadataExposure | None:
    """Block the metadata addresses for script users, and verify the block.

    Idempotent; several processes may call it concurrently.

    Returns:
        None if all addresses are blocked; else the addresses that are still open.
    """
    if os.geteuid() != 0:
        problems = dict.fromkeys(map(str, ADDRESSES), "scripts run as the worker's own user")
    else:
        problems = _close(FIRST_UID, FIRST_UID + RESERVED_UIDS - 1)
    if not problems:
        return None
    causes = "; ".join(f"{address}: {cause}" for address, cause in problems.items())
    return MetadataExposure(
        tuple(problems), f"Scripts can reach the machine's metadata service ({causes}). {_REMEDY}"
    )


def _close(first_user: int, last_user: int) -> dict[str, str]:
    """Add the rules. Returns the addresses that stay open, each with its cause."""
    problems: dict[str, str] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(_ANSWER_WITHIN)
            for address in ADDRESSES:
                try:
                    _add_rule(netlink, address, first_user, last_user)
                    refused = all(
                        _is_refused(netlink, address, user) for user in (first_user, last_user)
                    )
                except OSError as error:
                    if _is_family_supported(address):
                        problems[str(address)] = _words(error)
                else:
                    if not refused:
                        # The kernel looks up local addresses before these rules.
                        problems[str(address)] = "this is a local address of the machine"
    except OSError as error:
        return dict.fromkeys(map(str, ADDRESSES), _words(error))
    four = [address for address in ADDRESSES if isinstance(address, IPv4Address)]
    try:
        drop_packets(four, first_user, last_user)
    except OSError as error:
        cause = f"sockets bound to an interface reach it, and nf_tables fails: {_words(error)}"
        problems = {**dict.fromkeys(map(str, four), cause), **problems}
    return problems


def _add_rule(
    netlink: socket.socket, address: IPv4Address | IPv6Address, first: int, last: int
) -> None:
    header = _RULE.pack(_family(address), address.max_prefixlen, 0, 0, 0, 0, 0, _FR_ACT_PROHIBIT, 0)
    attributes = [
        (_FRA_DST, address.packed),
        (_FRA_PRIORITY, struct.pack("=I", PRIORITY)),
        (_FRA_UID_RANGE, struct.pack("=II", first, last)),
    ]
    flags = _NLM_F_ACK | _NLM_F_CREATE | _NLM_F_EXCL
    error = _request(netlink, _RTM_NEWRULE, flags, header, attributes)
    if error not in {0, errno.EEXIST}:
        raise OSError(error, os.strerror(error))


def _is_refused(netlink: socket.socket, address: IPv4Address | IPv6Address, user: int) -> bool:
    """Whether the kernel rejects packets from *user* to *address*.

    Also true if the machine has no route to *address*.
    """
    header = _RULE.pack(_family(address), address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    attributes = [(_RTA_DST, address.packed), (_RTA_UID, struct.pack("=I", user))]
    return _request(netlink, _RTM_GETROUTE, 0, header, attributes) != 0


def _request(
    netlink: socket.socket,
    kind: int,
    flags: int,
    header: bytes,
    attributes: Iterable[tuple[int, bytes]],
) -> int:
    """Send a request to the kernel. Returns the errno of its response; 0 on success."""
    body = header + b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), number) + value
        for number, value in attributes  # every value is a multiple of four bytes
    )
    size = _HEADER.size + len(body)
    netlink.send(_HEADER.pack(size, kind, _NLM_F_REQUEST | flags, 0, 0) + body)
    answer = netlink.recv(65_536)
    _, answered, _, _, _ = _HEADER.unpack_from(answer)
    if answered != _NLMSG_ERROR:
        return 0
    return -int(_ERROR.unpack_from(answer, _HEADER.size)[0])


def _family(address: IPv4Address | IPv6Address) -> int:
    return socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET


def _is_family_supported(address: IPv4Address | IPv6Address) -> bool:
    """Whether this machine supports the address family of *address*."""
    with suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM):
        return True
    return False


def _words(error: OSError) -> str:
    return error.strerror or str(error)
