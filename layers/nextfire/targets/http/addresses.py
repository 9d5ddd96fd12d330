"""Where an HTTP callback may go: URLs when a job is stored, addresses when a connection is made."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self
from urllib.parse import SplitResult, urlsplit

from nextfire.dataclass import dataclass
from nextfire.domain.egress import NUMERIC, Address, meanings
from nextfire.domain.errors import InvalidInputError

Network = IPv4Network | IPv6Network
DEFAULT_PORTS = {"https": 443, "http": 80}

_FORBIDDEN_V4 = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # a cloud's platform address, not private
        ),
    )
)
"""Special-purpose addresses (IANA registry)."""
_GLOBAL_V6 = IPv6Network("2000::/3")
_FORBIDDEN_V6 = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48"))
)
"""Special-purpose addresses in the global range: Teredo, ORCHID, documentation, 6to4, AS112."""

_NEVER = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "169.254.0.0/16", "168.63.129.16/32", "224.0.0.0/4"),
            *("255.255.255.255/32", "::/128", "fe80::/10", "fd00:ec2::/32", "ff00::/8"),
            "64:ff9b:1::/48",  # IPv4 addresses in it can be anywhere
        ),
    )
)
"""Never opened, however wide the networks of a pool: instance metadata, groups, this machine."""

_MAPPED = IPv6Network("::ffff:0:0/96")

NEUTRAL = "the destination is not allowed"
"""The only text about forbidden destinations: callbacks must not help to scan networks."""
_EXAMPLE = "For example https://api.example.com/hooks."
_REMEDY = "Use a public host name with https, or open the network with callNetworks of the pool."
_HOST = re.compile(
    r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]]*)(:[0-9]*)?")
_UNSAFE = re.compile(r"[^\x21-\x5b\x5d-\x7e]")  # anything but printable ASCII without a backslash


class ForbiddenAddressError(Exception):
    """The address must not be connected to."""

    def __init__(self) -> None:
        super().__init__(NEUTRAL)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`networks`: opened although they are not public. `ports`: allowed in addition to 443, and to
    80 with `http`. `http`: whether plain HTTP is allowed. `any_port`: whether all ports are.
    """

    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset()
    http: bool = False
    any_port: bool = False

    @classmethod
    def of(cls, networks: Collection[str], ports: Collection[int], *, http: bool) -> Self:
        """Build from settings. The port 0 stands for all ports.

        Raises:
            ValueError: A network is invalid.
        """
        return cls(tuple(map(ip_network, networks)), frozenset(ports), http, 0 in ports)

    def allows_port(self, scheme: str, port: int) -> bool:
        return self.any_port or port in self.ports or port == DEFAULT_PORTS[scheme]


def allows(address: Address, rules: AddressRules) -> bool:
    """Whether *rules* allow a connection to *address*: each of its meanings must be allowed."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return False
    return all(_is_public(each) or _is_opened(each, rules) for each in meanings(address))


def check_address(address: Address, rules: AddressRules) -> None:
    """Check the address that a connection is made to.

    Raises:
        ForbiddenAddressError: It is not allowed.
    """
    if not allows(address, rules):
        raise ForbiddenAddressError


def check_url(url: str, rules: AddressRules, field: str = "target.http.url") -> SplitResult:
    """Check *url* before it is stored and before it is called. Returns its parts.

    Raises:
        InvalidInputError: It can never be called in this pool.
    """

    def invalid(problem: str, remedy: str = _REMEDY) -> InvalidInputError:
        return InvalidInputError(field, _without_secrets(url), problem, remedy)

    if _UNSAFE.search(url):
        raise invalid(
            "it has blanks, backslashes, control or non-ASCII characters",
            "Write international names in their xn-- form, and percent-encode the path.",
        )
    try:
        parts = _split(url)
        port = parts.port
    except ValueError as error:
        raise invalid("not a URL") from error
    if parts.scheme not in (DEFAULT_PORTS if rules.http else {"https"}):
        known = parts.scheme in DEFAULT_PORTS
        raise invalid(
            "not an http or https URL" if rules.http else "not an https URL",
            "Use https. Pools can allow http with callHttp." if known else _EXAMPLE,
        )
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise invalid("it has user information", "Use `auth` with a reference to a secret.")
    if parts.fragment or "#" in url:
        raise invalid("it has a fragment", "Leave out the part after #.")
    if parts.netloc.endswith(":") or port == 0:
        raise invalid("its port is empty", "For example https://api.example.com:8443/hooks.")
    if not rules.allows_port(parts.scheme, port or DEFAULT_PORTS[parts.scheme]):
        raise invalid(f"port {port} is not allowed", "Use 443, or open it with callPorts.")
    host = parts.hostname or ""
    if "[" in parts.netloc or ":" in host or NUMERIC.fullmatch(host.rpartition(".")[2]):
        _check_literal(host, rules, invalid(NEUTRAL))
    elif not _HOST.fullmatch(host):
        raise invalid("its host is not a valid name", _EXAMPLE)
    elif (
        host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".localdomain"))
    ) and not rules.networks:
        raise invalid(NEUTRAL)
    return parts


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if "@" not in parts.netloc and not _AUTHORITY.fullmatch(parts.netloc):
        raise ValueError("text next to the brackets of an address")  # urlsplit ignores it
    return parts


def _check_literal(host: str, rules: AddressRules, error: InvalidInputError) -> None:
    """Check a literal address. Only the canonical spelling is accepted."""
    try:
        address = ip_address(host)
    except ValueError:
        raise error from None
    if str(address) != host or not allows(address, rules):
        raise error


def _is_public(address: Address) -> bool:
    if address.version == 4:  # noqa: PLR2004
        return not any(address in network for network in _FORBIDDEN_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _FORBIDDEN_V6)


def _is_opened(address: Address, rules: AddressRules) -> bool:
    return _is_in(address, rules.networks) and not _is_in(address, _NEVER)


def never_opens(network: Network) -> bool:
    """Whether no rules allow any address of *network*."""
    return any(
        network.version == never.version and network.subnet_of(never)  # type: ignore[arg-type]
        for never in _NEVER
    ) or (isinstance(network, IPv6Network) and network.subnet_of(_MAPPED))


def _is_in(address: Address, networks: Collection[Network]) -> bool:
    return any(address in net for net in networks)


def _without_secrets(url: str) -> str:
    """*url* for a message: without user information and query, either of which may have secrets."""
    text = re.sub(r"//[^/?#]*@", "//…@", url)
    return re.sub(r"\?.*", "?…", text, flags=re.DOTALL)[:256]
