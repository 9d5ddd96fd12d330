"""Egress settings: their syntax and the connections that they allow."""

import re
from ipaddress import ip_address

import pytest

from nextfire.domain.egress import MAX_HOSTS, Egress, EgressMode

LISTED = (
    "api.example.com,*.example.org:8443,10.0.0.7:5432,[2001:db8::1],"
    "db.corp.example.com:5432/private"
)


@pytest.mark.parametrize("text", ["open", "none", "api.example.com:443", "[2001:db8::1]:443"])
def test_what_is_written_is_read_again(text: str) -> None:
    assert str(Egress.parse(text)) == text


def test_ports_are_written_out() -> None:
    assert str(Egress.parse("API.example.com., *.example.org:8443")) == (
        "api.example.com:443,*.example.org:8443"
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [("open", EgressMode.OPEN), ("none", EgressMode.NONE), (LISTED, EgressMode.LISTED)],
)
def test_mode(text: str, mode: EgressMode) -> None:
    assert Egress.parse(text).mode is mode


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'invalid egress host ""'),
        ("a.example,,b.example", 'invalid egress host ""'),
        ("open,none", 'invalid egress host "open"'),
        ("*", 'give "open" for every host'),
        ("*.com", "of two labels or more"),
        ("a*.example.com", "invalid egress host"),
        ("https://api.example.com", "A path cannot be given"),
        ("api.example.com/v1", "A path cannot be given"),
        ("api.example.com:0", "use 1-65535"),
        ("api.example.com:65536", "use 1-65535"),
        ("api.example.com:", "use 1-65535"),
        ("api.example.com:\uff14\uff14", "use 1-65535"),
        ("-a.example.com", "invalid egress host"),
        ("bücher.example", "xn--"),
        ("10.0.0.256", "invalid address"),
        ("0x7f.1", "invalid address"),
        ("*.1.2", "invalid address"),
        ("2001:db8::1", "invalid address"),
        ("[2001:db8::g]", "invalid address"),
        ("127.0.0.1:80", "a loopback address"),
        ("[::1]:80", "a loopback address"),
        ("[::]", "unspecified"),
        ("169.254.169.254:80", "metadata"),
        ("[fd00:ec2::254]:80", "metadata"),
        ("[::ffff:169.254.169.254]:80", "metadata"),
        ("224.0.0.1", "a multicast address"),
        (",".join(f"h{n}.example.com" for n in range(MAX_HOSTS + 1)), "1 to 50 hosts, not 51"),
    ],
)
def test_malformed_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Egress.parse(text)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("api.example.com", 443),
        ("API.Example.COM.", 443),
        ("a.example.org", 8443),
        ("a.b.example.org", 8443),
        ("10.0.0.7", 5432),
        ("2001:DB8:0::1", 443),
    ],
)
def test_listed_host_is_allowed(host: str, port: int) -> None:
    assert Egress.parse(LISTED).allows(host, port).allowed


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("api.example.com", 80, "with port 443 only"),
        ("example.org", 8443, "does not list it"),
        ("evilexample.org", 8443, "does not list it"),
        ("x.api.example.com", 443, "does not list it"),
        ("api.example.com.evil.example", 443, "does not list it"),
        ("api.example.com\n.example.org", 8443, "does not list it"),
        ("\0.example.org", 8443, "does not list it"),
        ("..example.org", 8443, "does not list it"),
        ("10.0.0.8", 5432, "does not list it"),
        ("127.1", 443, "does not list it"),
    ],
)
def test_other_host_is_refused(host: str, port: int, reason: str) -> None:
    decision = Egress.parse(LISTED).allows(host, port)

    assert not decision.allowed
    assert reason in decision.reason


def test_open_allows_any_host_and_none_allows_no_host() -> None:
    assert Egress.parse("open").allows("x.example", 1).allowed
    assert Egress.parse("none").allows("x.example", 443).reason == 'the pool\'s egress is "none"'


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.1.2.3", "169.254.169.254", "169.254.170.2",
        "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "ff02::1", "fd00:ec2::254",
        "fd00:ec2::23", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1",
        "168.63.129.16", "::ffff:168.63.129.16", "::ffff:0:169.254.169.254",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["open", "api.example.com", "api.example.com/private"])
def test_addresses_of_the_machine_are_always_refused(text: str, address: str) -> None:
    decision = Egress.parse(text).allows_address("api.example.com", 443, ip_address(address))

    assert not decision.allowed
    assert "which scripts never reach" in decision.reason


_PRIVATE = [
    "10.0.0.7", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "fec0::1", "64:ff9b:1::1",
    "::ffff:10.0.0.7", "64:ff9b::a00:7", "240.0.0.1", "192.0.0.192",
    "::ffff:0:10.0.0.7", "::ffff:0:192.0.0.9",
]  # fmt: skip


@pytest.mark.parametrize("address", _PRIVATE)
def test_private_addresses_are_refused_unless_the_host_is_marked(address: str) -> None:
    def decide(text: str) -> bool:
        egress = Egress.parse(text)
        return egress.allows_address("api.example.com", 443, ip_address(address)).allowed

    assert not decide("api.example.com")
    assert not decide("api.example.com,api.example.com:8443/private")
    assert decide("api.example.com/private")
    assert decide("api.example.com,*.example.com/private")
    assert decide("open")


@pytest.mark.parametrize(
    "text", ["api.example.com:443", "*.example.com:8443/private", "[fd12::1]:443", "10.0.0.7:80"]
)
def test_a_rule_reads_as_it_was_written(text: str) -> None:
    assert [str(rule) for rule in Egress.parse(text).rules or ()] == [text]


def test_listed_private_address_needs_no_mark() -> None:
    egress = Egress.parse("10.0.0.7:5432,api.example.com:5432")

    assert egress.allows_address("10.0.0.7", 5432, ip_address("10.0.0.7")).allowed
    assert not egress.allows_address("api.example.com", 5432, ip_address("10.0.0.7")).allowed


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_allowed(address: str) -> None:
    egress = Egress.parse("api.example.com")

    assert egress.allows_address("api.example.com", 443, ip_address(address)).allowed
