# ruff: noqa: RUF001, S104 - spellings of addresses
"""Where HTTP callbacks may go: no forbidden destination is connected to, however it is written."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http.addresses import AddressRules, allows, check_url
from nextfire.targets.http.messages import CallFailedError, Failure, Request
from nextfire.targets.http.transport import Transport

RULES = AddressRules(http=True, any_port=True)
"""Nothing but addresses is restricted."""

ADDRESSES = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254"),
    *("127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.255", "169.254.0.1", "169.254.169.254"),
    *("169.254.170.2", "169.254.169.123", "172.16.0.1", "172.31.255.255", "192.0.0.1"),
    *("192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1"),
    *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::2", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8"),
    *("::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:10::1"),
    *("2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::", "2002:808:808::1", "3fff::1"),
    *("5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd12:3456::1", "fe80::1", "fe80::1%1"),
    *("fe80::1%eth0", "febf::1", "fec0::1", "ff00::1", "ff02::1", "ff0e::1"),
    *("2620:4f:8000::1", "8000::1", "4000::1", "1::1"),
]
SPELLINGS = [
    *("2130706433", "017700000001", "0x7f000001", "0x7F000001", "127.1", "127.0.1", "0177.0.0.1"),
    *("0x7f.0.0.1", "0x7f.1", "127.0.0.01", "127.000.000.001", "00127.0.0.1", "127.0.0.1.", "0"),
    *("0.0.0.0.", "1", "3232235521", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376"),
    *("169.254.43518", "0xa9.0xfe.0xa9.0xfe", "10.1", "0xa000001", "4294967295", "99999999999"),
    *("127.0.0.1%00", "127.0.0.1%2e", "127%2e0%2e0%2e1", "%31%32%37.0.0.1"),
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "printer.local", "db.internal"),
    *("metadata.google.internal", "instance-data.ec2.internal", "localhost.localdomain"),
    *(
        "①②⑦.⓪.⓪.①",
        "１２７.０.０.１",
        "127。0。0。1",
        "127．0．0．1",
        "ⓛocalhost",
        "ｌｏｃａｌｈｏｓｔ",
    ),
    *(
        "bücher.example",
        "ex\u200bample.com",
        "example。com",
        "xn--",
        "-a.example",
        "a..b",
        ".",
        ".a",
    ),
    *("user@127.0.0.1", "user:pw@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1\\@example.com"),
    *("example.com\\.127.0.0.1", "example.com#@127.0.0.1", "example.com\t.a", "exam ple.com"),
    *("example.com\n", "example.com\r\nHost: a", "example.com\x00", "[::1]", "[0:0:0:0:0:0:0:1]"),
    *("[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1%25eth0]", "[::1]:0", "[v1.a]", "[]", "[", ""),
    *("example.com:", "example.com:0", "example.com:99999", "example.com:-1", "example.com:８０"),
    *("[2606:4700::1111]a.example", "a[2606:4700::1111]", "[2606:4700::1111]:a"),
    *("[FD00::1]", "[2001:DB8::1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "a_.b-"),
]


def urls() -> list[str]:
    """The URLs of all forbidden destinations."""
    literal = [f"[{each}]" if ":" in each else each for each in ADDRESSES]
    return [f"http://{host}/" for host in (*literal, *SPELLINGS)]


def test_there_are_many_forbidden_spellings() -> None:
    assert len(set(urls())) >= 120


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses that sockets were connected to; none is really connected."""
    made: list[Any] = []

    def connect(_self: socket.socket, address: Any) -> None:
        made.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    return made


def call(url: str, transport: Transport) -> CallFailedError:
    with pytest.raises(CallFailedError) as failed:
        transport.send(Request("GET", url, {}, b""), timeout=5, ask=lambda: False)
    return failed.value


@pytest.mark.parametrize("url", urls())
def test_a_forbidden_url_is_rejected_when_the_job_is_stored(url: str) -> None:
    with pytest.raises(InvalidInputError):
        check_url(url, RULES)


@pytest.mark.parametrize("url", urls())
def test_a_forbidden_url_is_not_connected_to(url: str, connections: list[Any]) -> None:
    """A job may have been stored by a version without this check."""
    failed = call(url, Transport(RULES))

    assert connections == []
    assert (failed.problem, failed.sent) == (Failure.FORBIDDEN, False)


@pytest.fixture(scope="module")
def redirecting() -> Iterator[tuple[str, list[str]]]:
    """The URL of a server that redirects to the last URL of the list."""
    to: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # the server is closed
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    location = to[-1].encode("utf-8").translate(None, b"\r\n\x00")
                    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
                    connection.sendall(head + location + b"\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/", to
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("url", urls())
def test_a_redirect_to_a_forbidden_url_is_not_followed(
    url: str, redirecting: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, to = redirecting
    to.append(url)
    made: list[Any] = []
    connect = socket.socket.connect

    def recorded(self: socket.socket, address: Any) -> None:
        made.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", recorded)
    rules = AddressRules(http=True, any_port=True, networks=(ip_network("127.0.0.1/32"),))

    with suppress(CallFailedError):  # the header is invalid
        response = Transport(rules).send(
            Request("GET", server, {}, b""), timeout=5, ask=lambda: False
        )
        assert response.status == 302

    assert len(made) == 1, "only the server is connected to"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_name_that_resolves_to_a_forbidden_address_is_not_connected_to(
    address: str, connections: list[Any]
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def rebinding(_host: str, port: int) -> list[tuple[Any, ...]]:
        """Public first, then forbidden: all addresses are checked."""
        public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))
        return [public, (family, socket.SOCK_STREAM, 6, "", (address, port))]

    failed = call("http://example.com/", Transport(RULES, resolve=rebinding))

    assert connections == []
    assert (failed.problem, failed.sent) == (Failure.FORBIDDEN, False)
    assert failed.text == "the destination is not allowed"


def test_a_name_is_resolved_once_so_it_cannot_change_after_the_check(
    connections: list[Any],
) -> None:
    answers = iter(["93.184.216.34", "127.0.0.1"])

    def rebinding(_host: str, port: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    failed = call("http://example.com/", Transport(RULES, resolve=rebinding))

    assert connections == [("93.184.216.34", 80)]
    assert failed.problem is Failure.CONNECT


def test_the_connected_address_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the machine may lead elsewhere."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_: None)
    monkeypatch.setattr(socket.socket, "getpeername", lambda _: ("127.0.0.1", 80))

    def public(_host: str, port: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]

    failed = call("http://example.com/", Transport(RULES, resolve=public))

    assert (failed.problem, failed.sent) == (Failure.FORBIDDEN, False)


@pytest.mark.parametrize(
    "url",
    [
        *("https://example.com", "https://api.example.com/hooks?a=1", "https://EXAMPLE.com/"),
        *("https://93.184.216.34/", "https://[2606:2800:220:1:248:1893:25c8:1946]/"),
        *("https://xn--bcher-kva.example/", "https://a-b.example.com/%C3%BC", "https://a.b.c.d.e"),
    ],
)
def test_a_public_url_is_accepted(url: str) -> None:
    check_url(url, AddressRules())


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("http://example.com", "callHttp"),
        ("https://example.com:8443", "callPorts"),
        ("ftp://example.com", "https"),
        ("https://me:secret@example.com", "auth"),
        ("https://10.0.0.1", "callNetworks"),
    ],
)
def test_what_a_setting_opens_is_named(url: str, remedy: str) -> None:
    with pytest.raises(InvalidInputError) as invalid:
        check_url(url, AddressRules())

    assert remedy in str(invalid.value)
    assert "secret" not in str(invalid.value).replace("a secret", "")


@pytest.mark.parametrize(("http", "problem"), [(False, "an https"), (True, "an http or https")])
@pytest.mark.parametrize("url", ["127.0.0.1:8000/", "api.example.com/hooks", "ftp://example.com"])
def test_a_url_of_another_scheme_is_refused_with_an_example(
    url: str, problem: str, *, http: bool
) -> None:
    with pytest.raises(InvalidInputError) as invalid:
        check_url(url, AddressRules.of(["127.0.0.0/8"], [0], http=http))

    assert f"not {problem} URL" in str(invalid.value)
    assert "For example https://api.example.com/hooks." in str(invalid.value)


def test_settings_open_networks_ports_and_http() -> None:
    rules = AddressRules.of(["127.0.0.0/8", "fd00::/8"], [8443], http=True)

    check_url("http://127.0.0.1/", rules)
    check_url("https://localhost:8443/", rules)
    check_url("https://[fd00::1]/", rules)
    assert not allows(ip_address("10.0.0.1"), rules)
    assert not allows(ip_address("::ffff:127.0.0.1"), rules)


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fe80::1", "0.0.0.0", "::"),
        *("224.0.0.1", "ff02::1", "255.255.255.255", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
        *("2001:0:a9fe:a9fe::1", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::"),
    ],
)
def test_metadata_is_never_opened_however_wide_the_networks(address: str) -> None:
    rules = AddressRules.of(["0.0.0.0/0", "::/0"], [0], http=True)

    assert not allows(ip_address(address), rules)
    assert allows(ip_address("10.0.0.1"), rules)


_HOSTS = st.one_of(
    st.ip_addresses().map(lambda each: f"[{each}]" if each.version == 6 else str(each)),
    st.ip_addresses(v=4).map(lambda each: str(int(each))),
    st.ip_addresses(v=4).map(lambda each: hex(int(each))),
    st.from_regex(r"[0-9a-fx.:\[\]%@/\\-]{1,24}", fullmatch=True),
    st.text(max_size=20),
    st.sampled_from(["a.example", "localhost", *ADDRESSES, *SPELLINGS]),
)


@given(_HOSTS, _HOSTS, st.lists(st.ip_addresses(), min_size=1, max_size=3))
def test_an_accepted_url_is_connected_to_allowed_addresses_only(
    host: str, rest: str, resolved: list[Any]
) -> None:
    made: list[str] = []

    def resolve(name: str, port: int) -> list[tuple[Any, ...]]:
        addresses = resolved
        with suppress(ValueError):  # as getaddrinfo does for a literal address
            addresses = [ip_address(name)]
        return [
            (socket.AF_INET6 if each.version == 6 else socket.AF_INET, 1, 6, "", (str(each), port))
            for each in addresses
        ]

    def connect(_self: socket.socket, address: Any) -> None:
        made.append(address[0])
        raise ConnectionRefusedError

    url = f"http://{host}{rest}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        failed = call(url, Transport(RULES, resolve=resolve))

    assert not failed.sent
    assert all(allows(ip_address(each), RULES) for each in made)
    try:
        check_url(url, RULES)
    except InvalidInputError:
        assert made == []


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_allowed(address: Any) -> None:
    if not address.is_global or address.is_multicast:
        assert not allows(address, RULES)


def test_nat64_can_be_opened_and_the_address_inside_is_checked() -> None:
    rules = AddressRules.of(["64:ff9b::/96"], [], http=False)

    assert allows(ip_address("64:ff9b::808:808"), rules)
    for inside in ("a9fe:a9fe", "a00:1", "7f00:1", "a83f:8110"):
        assert not allows(ip_address(f"64:ff9b::{inside}"), rules)
