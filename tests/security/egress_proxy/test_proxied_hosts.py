"""Attempts of a script to reach hosts that its pool does not list, by name or by address."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

import pytest

from tests.security.egress_proxy.conftest import PUBLIC, Network, Proxy, read_all


def test_listed_host_is_reached_by_a_tunnel(network: Network, proxy: Proxy) -> None:
    with proxy.tunnel("api.example.com:443") as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b""

    assert network.connected == [(PUBLIC, 443)]
    assert not proxy.refused


def test_bytes_that_come_with_the_request_are_passed_on(proxy: Proxy) -> None:
    with proxy.open() as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\nhello")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"\r\n\r\nhello")


def test_much_data_goes_both_ways(proxy: Proxy) -> None:
    data = os.urandom(5_000_000)
    with proxy.tunnel("api.example.com:443") as client, ThreadPoolExecutor(1) as other:

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sent = other.submit(send)
        assert read_all(client) == data
        sent.result()


@pytest.mark.parametrize(
    ("path", "sent"), [(b"/a?b=c", b"/a?b=c"), (b"?b=c", b"/?b=c"), (b"", b"/")]
)
def test_plain_http_is_forwarded_for_one_request(
    network: Network, proxy: Proxy, path: bytes, sent: bytes
) -> None:
    answer = proxy.ask(
        b"GET http://web.example.com" + path + b" HTTP/1.1\r\nHost: other.example.com\r\n"
        b"Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
    )

    assert answer.endswith(b"hi")
    assert b"".join(network.got) == (
        b"GET " + sent + b" HTTP/1.1\r\nHost: web.example.com\r\n"
        b"Accept: */*\r\nConnection: close\r\n\r\n"
    )


def test_literal_addresses_are_not_resolved(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("9.9.9.9:853").close()
    proxy.tunnel("[2606:4700::1111]:443").close()

    assert network.resolved == []
    assert network.connected == [("9.9.9.9", 853), ("2606:4700::1111", 443)]


@pytest.mark.parametrize(
    "authority",
    [
        "evil.example.org:443",
        "api.example.com:22",
        "api.example.com.evil.example:443",
        "127.0.0.1:443",
        "2130706433:443",
        "0x7f.0.0.1:443",
        "[::1]:443",
        "[::ffff:9.9.9.9]:853",
        "169.254.169.254:443",
        "10.0.0.7:443",
    ],
)
def test_host_that_is_not_listed_is_refused_before_it_is_resolved(
    network: Network, proxy: Proxy, authority: str
) -> None:
    answer = proxy.connect(authority).decode()
    host = authority.rpartition(":")[0].strip("[]").encode()

    assert answer.startswith("HTTP/1.1 403 ")
    assert 'its setting "egress"' in answer
    assert not network.resolved
    assert not network.connected
    [(refused, _, reason)] = proxy.refused
    assert refused.encode() == host or ip_address(refused) == ip_address(host.decode())
    assert reason


def test_plain_http_to_another_host_is_refused(network: Network, proxy: Proxy) -> None:
    answer = proxy.ask(b"GET http://api.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"with port 443 only" in answer
    assert network.connected == []


@pytest.mark.parametrize(
    "host", ["metadata", "mapped", "loopback", "private", "inside"]
)  # each name resolves to the address of that kind
def test_listed_name_does_not_lead_inside(network: Network, proxy: Proxy, host: str) -> None:
    answer = proxy.connect(f"{host}.example.com:443")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert network.connected == []
    assert [each[0] for each in proxy.refused] == [f"{host}.example.com"]


def test_private_address_is_reached_where_the_list_says_so(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("db.example.com:443").close()

    assert network.connected == [("10.0.0.7", 443)]


def test_of_several_addresses_those_inside_are_left_out(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("mixed.example.com:443").close()

    assert network.connected == [(PUBLIC, 443)]


def test_name_that_changes_its_address_is_connected_where_it_was_checked(
    network: Network, proxy: Proxy
) -> None:
    """DNS rebinding: the first answer is public, each later one is the metadata service."""
    proxy.tunnel("rebinds.example.com:443").close()
    second = proxy.connect("rebinds.example.com:443")

    assert network.connected == [(PUBLIC, 443)]
    assert network.resolved == ["rebinds.example.com"] * 2
    assert second.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1",
        b"GET https://api.example.com/ HTTP/1.1",
        b"GET http://web.example.com@evil.example/ HTTP/1.1",
        b"GET http://web.example.com:80:80/ HTTP/1.1",
        b"CONNECT api.example.com HTTP/1.1",
        b"CONNECT api.example.com:99999 HTTP/1.1",
        b"CONNECT api.example.com:443\tx HTTP/1.1",
        b"CONNECT [fe80::1%25lo]:443 HTTP/1.1",
        b"CONNECT [::::]:443 HTTP/1.1",
        b"CONNECT " + b"a" * 300 + b".example.com:443 HTTP/1.1",
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_nonsense_is_refused(network: Network, proxy: Proxy, request_line: bytes) -> None:
    assert proxy.ask(request_line + b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert not network.resolved
    assert not network.connected
    assert not proxy.refused


def test_name_that_does_not_exist_is_not_a_refusal(proxy: Proxy) -> None:
    answer = proxy.connect("missing.example.com:443")

    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"Name or service not known" in answer
    assert not proxy.refused
