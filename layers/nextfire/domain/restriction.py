"""Restrictions of API keys: source networks, and labels of the jobs that a key can access.

An empty restriction allows everything. A restricted key can only create keys that are at least as
restricted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import ForbiddenError, InvalidInputError

MAX_CIDRS = 20
MAX_KEY_LABELS = 10
MAX_RESTRICTION_BYTES = 2048
"""The authorizer returns the restriction to the gateway with each response."""
MAX_LABEL_KEY = 64
MAX_LABEL_VALUE = 256
_Network = IPv4Network | IPv6Network


class RestrictedError(ForbiddenError):
    """The restriction of the key does not allow this."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """`cidrs`: allowed source networks; empty: all. `labels`: labels with values that a job must
    have for the key to access it; empty: all jobs.
    """

    cidrs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.cidrs or self.labels)

    def admits_address(self, address: str) -> bool:
        """Whether a request from *address* is allowed. Text that is not an IP address is not."""
        if not self.cidrs:
            return True
        try:
            source = ip_address(address)
        except ValueError:
            return False
        if isinstance(source, IPv6Address) and source.ipv4_mapped is not None:
            source = source.ipv4_mapped
        return any(source in ip_network(cidr) for cidr in self.cidrs)

    def admits_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether the key can access a job with *labels*."""
        return self.labels.items() <= labels.items()

    def covers(self, other: Restriction) -> bool:
        """Whether this restriction allows everything that *other* allows."""
        return self.admits_labels(other.labels) and (
            not self.cidrs
            or (bool(other.cidrs) and all(_within(cidr, self.cidrs) for cidr in other.cidrs))
        )

    def narrowed(self, cidrs: Collection[str], labels: Mapping[str, str]) -> Restriction:
        """The restriction of a key that a key with this restriction creates. Networks and labels
        that are not given are inherited.

        Raises:
            InvalidInputError: *cidrs* or *labels* are not valid.
            RestrictedError: The new key could access more than this one.
        """
        asked = restriction(cidrs or self.cidrs, {**self.labels, **labels})
        if not self.covers(asked):
            raise RestrictedError(
                f"Your key is restricted to {self}, and keys that it creates cannot access more. "
                "Omit `cidrs` and `labels` to create a key with the same restriction."
            )
        return asked

    def __str__(self) -> str:
        networks = f"calls from {', '.join(self.cidrs)}" if self.cidrs else ""
        jobs = ", ".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return " and ".join(filter(None, [networks, jobs and f"jobs labelled {jobs}"]))


UNRESTRICTED = Restriction()


def restriction(cidrs: Collection[str], labels: Mapping[str, str]) -> Restriction:
    """A restriction to *cidrs* and *labels*, in a canonical order.

    Raises:
        InvalidInputError: A network or a label is invalid, or there are too many.
    """
    networks = sorted({str(_network(cidr)) for cidr in cidrs})
    if len(networks) > MAX_CIDRS:
        raise InvalidInputError(
            "cidrs", len(networks), f"more than {MAX_CIDRS}", "Use larger networks, or more keys."
        )
    if len(labels) > MAX_KEY_LABELS:
        raise InvalidInputError(
            "labels", len(labels), f"more than {MAX_KEY_LABELS}", 'For example {"team": "etl"}.'
        )
    for name, value in labels.items():
        if not 1 <= len(name) <= MAX_LABEL_KEY or len(value) > MAX_LABEL_VALUE:
            raise InvalidInputError(
                "labels",
                name,
                "not a valid job label",
                f"Use 1 to {MAX_LABEL_KEY} characters, and at most {MAX_LABEL_VALUE} in the value."
                ' For example {"team": "etl"}.',
            )
    found = Restriction(tuple(networks), dict(sorted(labels.items())))
    if len(json.dumps([networks, labels])) > MAX_RESTRICTION_BYTES:
        raise InvalidInputError(
            "labels",
            len(labels),
            f"together with `cidrs` more than {MAX_RESTRICTION_BYTES} bytes as JSON",
            "Use fewer or shorter labels and networks.",
        )
    return found


def _network(cidr: str) -> _Network:
    try:
        network = ip_network(cidr)
    except ValueError as error:
        raise InvalidInputError(
            "cidrs", cidr, "not a network", _as_network(cidr) or "For example 203.0.113.0/24."
        ) from error
    if isinstance(network, IPv6Network):
        first = network.network_address
        if first.ipv4_mapped is not None or first.scope_id is not None:
            problem = "a network that the gateway never reports as a source"
            remedy = "Write IPv4 as 203.0.113.0/24, and IPv6 without a zone, as 2001:db8::/32."
            raise InvalidInputError("cidrs", cidr, problem, remedy)
    return network


def _as_network(cidr: str) -> str | None:
    """The remedy for an address with bits beyond its prefix, such as 203.0.113.7/24."""
    try:
        network = ip_network(cidr, strict=False)
    except ValueError:
        return None
    return f"Its host bits are set. Use {network} instead."


def _within(cidr: str, networks: Collection[str]) -> bool:
    inner = ip_network(cidr)
    return any(
        inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
        for outer in map(ip_network, networks)
    )
