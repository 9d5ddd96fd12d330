"""Network egress of the scripts of a pool: unrestricted, none, or listed hosts."""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Self

from nextfire.dataclass import dataclass

Address = IPv4Address | IPv6Address

MAX_HOSTS = 50
"""Maximum number of listed hosts; the list is stored in an environment variable."""
PORTS = range(1, 65_536)
_DEFAULT_PORT = 443
_MAX_NAME = 253
_EXAMPLE = (
    'Give "open", "none", or hosts such as "api.example.com", "*.example.com:8443", '
    '"192.0.2.7:5432", "[2001:db8::1]" or "db.corp.example.com:5432/private"'
)
_ENTRY = re.compile(
    r"(?:\[(?P<v6>[^\[\]/]*)\]|(?P<host>[^\[\]:/]+))(?::(?P<port>[^/]*))?(?P<mark>/.*)?"
)
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A host whose last label matches is parsed as an IPv4 address by many clients, such as 0x7f.1."""

_LOCAL_SERVICES = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("fe80::/10"),
    IPv6Network("fd00:ec2::/32"),
)
"""Addresses that mean this machine or the services of its host, such as instance metadata."""
_TRANSLATED = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0:0/96"),
)
"""IPv6 ranges whose last 32 bits are an IPv4 address: NAT64, and IPv4-compatible and -translated
addresses.
"""
_PRIVATE_TOO = (
    IPv6Network("fec0::/10"),
    IPv6Network("64:ff9b:1::/48"),
    IPv4Network("192.0.0.0/24"),
)
"""Private ranges that `is_global` of some versions of Python reports as global: site-local
addresses, local-use NAT64, and IETF protocol assignments.
"""


class EgressMode(StrEnum):
    """The kind of egress of a pool."""

    OPEN = "open"
    NONE = "none"
    LISTED = "listed"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a script may reach a host or an address, and why."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host and a port that scripts may reach.

    `host`: a name in lower case, `*.` and a name for all names below it, or a literal address.
    `private`: whether it may resolve to a private address; a literal address needs no permission.
    """

    host: str
    port: int = _DEFAULT_PORT
    private: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `HOST`, `HOST:PORT` or `HOST:PORT/private`.

        Raises:
            ValueError: *text* is malformed, or is an address that scripts can never reach.
        """
        match = _ENTRY.fullmatch(text.strip().lower())
        if not match:
            raise ValueError(f'invalid egress host "{text}". {_EXAMPLE}')
        if (mark := match["mark"]) not in {None, "/private"}:
            raise ValueError(
                f'invalid egress host "{text}": the only mark is "/private", which lets the name '
                "resolve to private addresses. A path cannot be given"
            )
        host = _parse_host(text, match["v6"], match["host"])
        return cls(host, _parse_port(text, match["port"]), private=mark is not None)

    def names(self, host: str) -> bool:
        """Whether the rule matches *host*, in normal form, on any port."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and _is_name(host)
        return host == self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{'/private' if self.private else ''}"


@dataclass(frozen=True, slots=True)
class Egress:
    """The egress policy of a pool.

    `rules`: the allowed hosts; empty: no egress; None: unrestricted.
    """

    rules: tuple[HostRule, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `open`, `none`, or a comma-separated list of hosts.

        Raises:
            ValueError: *text* is malformed. The message contains the allowed forms.
        """
        match text.strip():
            case EgressMode.OPEN:
                return cls(None)
            case EgressMode.NONE:
                return cls(())
            case hosts:
                return cls.listed(*hosts.split(","))

    @classmethod
    def listed(cls, *hosts: str) -> Self:
        """Allow only *hosts*, each in the format of `HostRule.parse`.

        Raises:
            ValueError: A host is malformed, or the number of hosts is not 1 to `MAX_HOSTS`.
        """
        if not 1 <= len(hosts) <= MAX_HOSTS:
            raise ValueError(
                f"egress must list 1 to {MAX_HOSTS} hosts, not {len(hosts)}. {_EXAMPLE}"
            )
        return cls(tuple(dict.fromkeys(map(HostRule.parse, hosts))))

    @property
    def mode(self) -> EgressMode:
        if self.rules:
            return EgressMode.LISTED
        return EgressMode.NONE if self.rules == () else EgressMode.OPEN

    def __str__(self) -> str:
        """The text format that `parse` accepts."""
        return ",".join(map(str, self.rules)) if self.rules else self.mode.value

    def allows(self, host: str, port: int) -> Decision:
        """Whether a script may request *host*, a name or a literal address, on *port*.

        This check runs before name resolution; `allows_address` checks the resolved address.
        """
        if self.mode is EgressMode.OPEN:
            return Decision(allowed=True, reason="the pool's egress is open")
        host = normal_host(host)
        if rule := self._rule(host, port):
            return Decision(allowed=True, reason=f"the pool's egress lists {rule}")
        if self.mode is EgressMode.NONE:
            return Decision(allowed=False, reason='the pool\'s egress is "none"')
        listed = sorted({rule.port for rule in self.rules or () if rule.names(host)})
        if listed:
            ports = " or ".join(map(str, listed))
            return Decision(
                allowed=False, reason=f"the pool's egress lists it with port {ports} only"
            )
        return Decision(allowed=False, reason="the pool's egress does not list it")

    def allows_address(self, host: str, port: int, address: Address) -> Decision:
        """Whether a script that requested *host* may connect to *address*.

        Addresses of this machine and of the services of its host are always rejected. Private
        addresses are rejected unless the list contains the literal address or marks the host with
        "/private".
        """
        for each in meanings(address):
            if kind := _local_kind(each):
                return Decision(
                    allowed=False, reason=f"{address} is {kind} address, which scripts never reach"
                )
        if self.mode is EgressMode.OPEN or _is_public(address):
            return Decision(allowed=True, reason=f"{address} is a public address")
        rule = self._rule(normal_host(host), port)
        if rule and (rule.private or rule.host == str(address)):
            return Decision(allowed=True, reason=f"the pool's egress lists {rule}")
        return Decision(
            allowed=False,
            reason=f"it resolves to {address}, a private address: list the host as "
            f'"{host}:{port}/private" if scripts may reach it',
        )

    def _rule(self, host: str, port: int) -> HostRule | None:
        """The rule that matches *host* and *port*; prefers a rule that allows private addresses."""
        found = [rule for rule in self.rules or () if rule.port == port and rule.names(host)]
        return max(found, key=lambda rule: rule.private, default=None)


OPEN = Egress(None)


def normal_host(host: str) -> str:
    """Normalize *host* for comparison with rules: lower case, without a final dot."""
    host = host.lower().removesuffix(".")
    try:
        return str(ip_address(host))
    except ValueError:
        return host


def _parse_host(text: str, v6: str | None, host: str | None) -> str:
    if host and not _looks_numeric(host):
        return _parse_name(text, host)
    try:
        address: Address = IPv6Address(v6) if v6 is not None else IPv4Address(host)
    except ValueError as error:
        raise ValueError(f'invalid address in egress host "{text}": {error}. {_EXAMPLE}') from error
    for each in meanings(address):
        if kind := _local_kind(each):
            raise ValueError(
                f'egress host "{text}" is {kind} address, which scripts never reach. Name a host '
                'or an address of a network, such as "10.0.4.7:5432"'
            )
    return str(address)


def _parse_name(text: str, host: str) -> str:
    name = host.removesuffix(".")
    labels = name.removeprefix("*.").split(".")
    if name == "*" or (name.startswith("*.") and len(labels) == 1):
        raise ValueError(
            f'egress host "{text}" is too wide: give "open" for every host, or "*." and a domain '
            'of two labels or more, such as "*.example.com"'
        )
    if not name.isascii():
        raise ValueError(
            f'egress host "{text}" must be ASCII: write international names in their xn-- form, '
            'such as "xn--bcher-kva.example"'
        )
    if name in {*EgressMode} or len(name) > _MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f'invalid egress host "{text}". {_EXAMPLE}')
    return name


def _parse_port(text: str, port: str | None) -> int:
    if not isinstance(port, str):
        return _DEFAULT_PORT
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) not in PORTS:
        raise ValueError(
            f'invalid port in egress host "{text}": use 1-65535, such as "api.example.com:8443"'
        )
    return int(port)


def _looks_numeric(host: str) -> bool:
    return NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def _is_name(host: str) -> bool:
    return all(map(_LABEL.fullmatch, host.split(".")))


def _local_kind(address: Address) -> str | None:
    """Why no script may reach *address*: the kind of address, with an article; None: no reason."""
    if address.is_unspecified:
        return "the unspecified"
    if address.is_loopback:
        return "a loopback"
    if address.is_multicast:
        return "a multicast"
    if any(address in net for net in _LOCAL_SERVICES):
        return "a link-local or metadata"
    if isinstance(address, IPv4Address) and address == IPv4Address("255.255.255.255"):
        return "a broadcast"
    return None


def _is_public(address: Address) -> bool:
    return all(
        each.is_global and not any(each in net for net in _PRIVATE_TOO)
        for each in meanings(address)
    )


def meanings(address: Address) -> list[Address]:
    """Return *address* and the IPv4 addresses embedded in it."""
    found: list[Address] = [address]
    if isinstance(address, IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        found += [each for each in inner if each is not None]
        if any(address in net for net in _TRANSLATED) and int(address) > 1:
            found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return found
