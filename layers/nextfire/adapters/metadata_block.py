"""Closes the metadata addresses of the machine to the users that scripts run as.

By rules of policy routing: the kernel refuses packets from these users to these addresses, and all
other users are unaffected. The rules need no packages and no firewall on the machine: `ip` and
`iptables` are missing in small images, and one request over netlink is 40 lines. A rule that is
there already is left alone, so workers that share a machine do not disturb each other; it stays
until the machine restarts, or the network namespace ends.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from nextfire.adapters.script_users import FIRST, NUMBERS

ADDRESSES: tuple[IPv4Address | IPv6Address, ...] = tuple(
    map(
        ip_address,
        (
            "169.254.169.254",  # EC2: instance metadata, and the credentials of the instance
            "169.254.170.2",  # ECS: credentials of tasks
            "169.254.170.23",  # EKS: credentials of pods
            "fd00:ec2::254",  # EC2
            "fd00:ec2::23",  # EKS
        ),
    )
)

PRIORITY = 5260
"""Of the rules: after the table of the machine's own addresses (0), before the main one (32766)."""

# From linux/netlink.h, linux/rtnetlink.h and linux/fib_rules.h.
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_NLMSG_ERROR = 2
_RTM_GETROUTE, _RTM_NEWRULE = 26, 32
_FRA_DST, _FRA_PRIORITY, _FRA_UID_RANGE = 1, 6, 20
_FR_ACT_PROHIBIT = 8
_RTA_DST, _RTA_UID = 1, 25
_HEADER = struct.Struct("=IHHII")
_RULE = struct.Struct("=BBBBBBBBI")
"""Of a rule (fib_rule_hdr) and of a route (rtmsg): family, lengths and so on, flags."""
_ERROR = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_ANSWER_WITHIN = 5.0
_REMEDY = (
    "Run the worker as root with CAP_NET_ADMIN, or on a machine whose instance profile has no "
    'permissions; or accept it: set the pool\'s "metadata" to "open".'
)


@dataclass(frozen=True, slots=True)
class StillOpen:
    """The metadata `addresses` that scripts can still reach; why, and the remedy: `reason`."""

    addresses: tuple[str, ...]
    reason: str


def close_metadata(first_user: int = FIRST, users: int = NUMBERS) -> StillOpen | None:
    """Close the metadata addresses to *users* users from *first_user* on, and check that they are
    closed. May be called again, and by several processes at a time.

    Returns:
        None: they are closed.
    """
    if os.geteuid() != 0:
        problems = dict.fromkeys(map(str, ADDRESSES), "scripts are the worker's own user")
    else:
        problems = _close(first_user, first_user + users - 1)
    if not problems:
        return None
    causes = "; ".join(f"{address}: {cause}" for address, cause in problems.items())
    return StillOpen(
        tuple(problems), f"Scripts can reach the machine's metadata ({causes}). {_REMEDY}"
    )


def _close(first_user: int, last_user: int) -> dict[str, str]:
    """Add the rules. Returns the addresses that stay open, and why."""
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
                    if _is_spoken(address):
                        problems[str(address)] = _words(error)
                else:
                    if not refused:
                        # The rules of the machine's own addresses come first.
                        problems[str(address)] = "it is an address of this machine itself"
    except OSError as error:
        problems = dict.fromkeys(map(str, ADDRESSES), _words(error))
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
    """Whether the kernel would refuse *user* a packet to *address*, rather than route it.

    A machine without any route to it does not reach it either.
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
    """The error number that the kernel answers; 0: it did what was asked."""
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


def _is_spoken(address: IPv4Address | IPv6Address) -> bool:
    """Whether anything of this machine can use addresses of this kind."""
    with suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM):
        return True
    return False


def _words(error: OSError) -> str:
    return error.strerror or str(error)
