"""Drops packets that users send to IPv4 addresses, with a table of nf_tables.

A routing rule alone does not stop a socket that is bound to an interface: if the route lookup
fails, the kernel assumes that the address is on that interface's link (``ip_route_output_key``).
A script may bind its sockets: by ``SO_BINDTODEVICE``, or by a connection to an IPv6 address with a
scope, which it then connects to an IPv4 address. IPv6 makes no such assumption.

Speaks netlink itself: small images lack `nft`. Source of the messages: Linux,
``linux/netfilter/nfnetlink.h`` and ``nf_tables.h``.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Collection
from ipaddress import IPv4Address

_TABLE, _CHAIN = b"nextfire\0", b"metadata\0"
_NETLINK_NETFILTER = 12
_SUBSYSTEM = 10
_BEGIN, _END = 0x10, 0x11
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = (_SUBSYSTEM << 8 | each for each in (0, 2, 3, 6))
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED = 0x8000
_OUTPUT, _BEFORE_TRANSLATION = 3, -300
"""The hook, and a priority before destinations are translated, as an ECS agent does."""
_REGISTER, _VERDICT_REGISTER, _DROP = 1, 0, 0
_NETWORK_HEADER, _DESTINATION = 1, 16
_OWNER_OF_SOCKET = 10
_HOST_TO_NETWORK = 1
_EQUAL = 0
_WORD = 4
_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_ANSWER_WITHIN = 5.0


def drop_packets(addresses: Collection[IPv4Address], first_user: int, last_user: int) -> None:
    """Drop what users from *first_user* to *last_user* send to *addresses*, from now on.

    Idempotent and atomic; several processes may call it concurrently. The table stays until the
    machine restarts or the network namespace ends.

    Raises:
        OSError: The kernel has no nf_tables, or this process lacks CAP_NET_ADMIN.
    """
    table = _attribute(1, _TABLE)
    hook = _attribute(1, _number(_OUTPUT)) + _attribute(2, struct.pack(">i", _BEFORE_TRANSLATION))
    chain = _attribute(3, _CHAIN) + _nested(4, hook) + _attribute(7, b"filter\0")
    messages = [
        _message(_BEGIN, 0, b"", resource=_SUBSYSTEM),
        _message(_NEW_TABLE, _CREATE, table),  # so that there is one to replace
        _message(_DELETE_TABLE, 0, table),
        _message(_NEW_TABLE, _CREATE, table),
        _message(_NEW_CHAIN, _CREATE, table + chain),
        *(
            _message(_NEW_RULE, _CREATE | _APPEND, _rule(each, first_user, last_user))
            for each in addresses
        ),
        # Acknowledged only if all others were carried out.
        _message(_NEW_TABLE, _CREATE | _ACK, table),
        _message(_END, 0, b"", resource=_SUBSYSTEM),
    ]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(_ANSWER_WITHIN)
        netlink.send(b"".join(messages))
        answer = netlink.recv(65_536)
    if len(answer) < _HEADER.size + _ERROR.size:
        raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
    error = -int(_ERROR.unpack_from(answer, _HEADER.size)[0])
    if error:
        raise OSError(error, os.strerror(error))


def _rule(address: IPv4Address, first_user: int, last_user: int) -> bytes:
    """Drop a packet to *address* whose socket belongs to one of the users."""
    place = _attribute(1, _number(_REGISTER))
    word = _attribute(4, _number(_WORD))
    expressions = [
        _expression(
            b"payload",
            place
            + _attribute(2, _number(_NETWORK_HEADER))
            + _attribute(3, _number(_DESTINATION))
            + word,
        ),
        _expression(b"cmp", place + _attribute(2, _number(_EQUAL)) + _value(3, address.packed)),
        _expression(b"meta", place + _attribute(2, _number(_OWNER_OF_SOCKET))),
        _expression(  # a range compares bytes
            b"byteorder",
            place
            + _attribute(2, _number(_REGISTER))
            + _attribute(3, _number(_HOST_TO_NETWORK))
            + word
            + _attribute(5, _number(_WORD)),
        ),
        _expression(
            b"range",
            place
            + _attribute(2, _number(_EQUAL))
            + _value(3, _number(first_user))
            + _value(4, _number(last_user)),
        ),
        _expression(
            b"immediate",
            _attribute(1, _number(_VERDICT_REGISTER))
            + _nested(2, _nested(2, _attribute(1, _number(_DROP)))),
        ),
    ]
    return _attribute(1, _TABLE) + _attribute(2, _CHAIN) + _nested(4, b"".join(expressions))


def _expression(name: bytes, attributes: bytes) -> bytes:
    return _nested(1, _attribute(1, name + b"\0") + _nested(2, attributes))


def _value(kind: int, data: bytes) -> bytes:
    return _nested(kind, _attribute(1, data))


def _nested(kind: int, attributes: bytes) -> bytes:
    return _attribute(kind | _NESTED, attributes)


def _attribute(kind: int, data: bytes) -> bytes:
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + bytes(-size % 4)


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


def _message(kind: int, flags: int, body: bytes, *, resource: int = 0) -> bytes:
    family = socket.AF_UNSPEC if kind in {_BEGIN, _END} else socket.AF_INET
    body = struct.pack("=BB", family, 0) + struct.pack(">H", resource) + body
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 0, 0) + body
