"""The parser of callback URLs."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.egress import HttpUrl, on_the_wire, parse_http_url
from chimes.errors import InvalidInput
from chimes.targets.http.request import wire_url
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://example.com", ("http", "example.com", 80, "/")),
        ("HTTPS://Example.COM/A?b=C", ("https", "example.com", 443, "/A?b=C")),
        ("http://example.com:8080?x=1", ("http", "example.com", 8080, "/?x=1")),
        ("http://h/a/../b//c;d?e=@f", ("http", "h", 80, "/a/../b//c;d?e=@f")),
        ("http://under_score.local./", ("http", "under_score.local.", 80, "/")),
        ("http://[::1]:81/x", ("http", "::1", 81, "/x")),
        ("http://[0:0::FFFF:7F00:1]", ("http", "::ffff:7f00:1", 80, "/")),
        ("http://bücher.example/ü", ("http", "xn--bcher-kva.example", 80, "/ü")),
        ("http://例え.テスト/", ("http", "xn--r8jz45g.xn--zckzah", 80, "/")),
        ("http://１２７。０。０。１/", ("http", "127.0.0.1", 80, "/")),
        ("http://h/{{run_id}}?a={{slot}}", ("http", "h", 80, "/{{run_id}}?a={{slot}}")),
    ],
)
def test_url_is_split_into_parts(text: str, expected: tuple[str, str, int, str]) -> None:
    scheme, host, port, tail = expected
    assert parse_http_url(text) == HttpUrl(scheme=scheme, host=host, port=port, tail=tail)


@each_row(
    ("host", "address"),
    [
        ("0", "0.0.0.0"),
        ("127.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.772", "1.2.3.4"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0xa9.0xfe.0xa9.0xfe", "169.254.169.254"),
        ("4294967295", "255.255.255.255"),
    ],
)
def test_every_notation_of_an_address_is_normalised(host: str, address: str) -> None:
    url = parse_http_url(f"http://{host}/")
    assert url.host == address
    assert url.address == ipaddress.ip_address(address)
    assert socket.inet_ntoa(socket.inet_aton(host.rstrip("."))) == address


@each_row(
    ("text", "code"),
    [
        ("", "url_required"),
        ("http://h/" + "x" * 2040, "url_too_long"),
        ("file:///etc/passwd", "url_scheme"),
        ("gopher://h/", "url_scheme"),
        ("ftp://h/", "url_scheme"),
        ("javascript:alert(1)", "url_scheme"),
        ("//h/", "url_scheme"),
        ("h", "url_scheme"),
        ("http:/h", "url_scheme"),
        ("http:h", "url_scheme"),
        ("httpx://h", "url_scheme"),
        ("http://user:pw@h/", "url_userinfo"),
        ("http://user@h/", "url_userinfo"),
        ("http://a@b@c", "url_userinfo"),
        ("http://@h", "url_userinfo"),
        ("http://h#@evil", "url_fragment"),
        ("http://h/#x", "url_fragment"),
        ("http://h\\@evil", "url_character"),
        ("http://h\\evil/", "url_character"),
        ("http://h/a b", "url_character"),
        (" http://h/", "url_character"),
        ("http://h/\r\nX: y", "url_character"),
        ("http://h/\tx", "url_character"),
        ("http://h\n/", "url_character"),
        ("http://h/\x00", "url_character"),
        ("http://h/\x7f", "url_character"),
        ("http://h/\x85", "url_character"),
        ("http://h/\u2028", "url_character"),
        ("http://h/\ud800", "url_character"),
        ("http://", "url_host"),
        ("http:///x", "url_host"),
        ("http://:80/", "url_host"),
        ("http://?x", "url_host"),
        ("http://[::1", "url_host"),
        ("http://[::1]x/", "url_host"),
        ("http://[::1%25eth0]/", "url_host"),
        ("http://[fe80::1%eth0]/", "url_host"),
        ("http://[127.0.0.1]/", "url_host"),
        ("http://::1/", "url_port"),
        ("http://-h/", "url_host"),
        ("http://h-/", "url_host"),
        ("http://a..b/", "url_host"),
        ("http://.a/", "url_host"),
        ("http://%31%32%37.1/", "url_host"),
        ("http://{{run_id}}/", "url_host"),
        ("http://h{{run_id}}/", "url_host"),
        ("http://a,b/", "url_host"),
        ("http://h;x/", "url_host"),
        ("http://" + "a" * 64 + "/", "url_host"),
        ("http://" + "a." * 130 + "a/", "url_host"),
        ("http://1.2.3.4.5/", "url_host"),
        ("http://256.1.1.1/", "url_host"),
        ("http://1.2.3.256/", "url_host"),
        ("http://1.2.65536/", "url_host"),
        ("http://4294967296/", "url_host"),
        ("http://08.1.1.1/", "url_host"),
        ("http://x.08/", "url_host"),
        ("http://a.1/", "url_host"),
        ("http://" + "9" * 60 + "/", "url_host"),
        ("http://straße.example/", "url_host"),
        ("http://a\u200db.example/", "url_host"),
        ("http://☃\u202e.example/", "url_host"),
        ("http://h:0/", "url_port"),
        ("http://h:65536/", "url_port"),
        ("http://h:/", "url_port"),
        ("http://h:8a/", "url_port"),
        ("http://h:-1/", "url_port"),
        ("http://h:+80/", "url_port"),
        ("http://h:٨٠/", "url_port"),
        ("http://h:80:80/", "url_port"),
        ("http://h:{{run_id}}/", "url_port"),
    ],
)
def test_invalid_urls_are_rejected(text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_http_url(text)
    assert (caught.value.field, caught.value.code) == ("url", code)


@pytest.mark.parametrize(
    ("tail", "wire"),
    [
        ("/a%20b?c=%zz&d=100%", "/a%20b?c=%25zz&d=100%25"),
        ("/ü?ä=€", "/%C3%BC?%C3%A4=%E2%82%AC"),
        ('/"<>^`{|}', "/%22%3C%3E%5E%60%7B%7C%7D"),
        ("/a[]=1?b[]=2&c=@:!$'()*+,;", "/a[]=1?b[]=2&c=@:!$'()*+,;"),
    ],
)
def test_path_is_encoded_for_the_wire(tail: str, wire: str) -> None:
    assert on_the_wire(tail) == wire


def connect_parts(text: str) -> tuple[str | None, int | None, str]:
    url = parse_http_url(text)
    wire = wire_url(url, url.tail)
    assert (wire.raw_host, wire.port) == (url.host, url.port)
    assert wire.raw_path_qs == on_the_wire(url.tail)
    # The URL as aiohttp builds it, parsed by another library.
    authority = urlsplit(str(wire))
    assert authority.hostname == url.host
    return wire.raw_host, wire.port, wire.raw_path_qs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://[::1]:8080/", ("::1", 8080, "/")),
        ("https://[2606:4700::1]", ("2606:4700::1", 443, "/")),
        ("http://0x7f.1/x", ("127.0.0.1", 80, "/x")),
        ("http://bücher.example:81/ü", ("xn--bcher-kva.example", 81, "/%C3%BC")),
    ],
)
def test_connected_host_port_and_path(text: str, expected: tuple[str, int, str]) -> None:
    assert connect_parts(text) == expected


def test_path_is_sent_unchanged() -> None:
    assert connect_parts("http://h/a/../b/./c//?x=1+2&y=%2f")[2] == "/a/../b/./c//?x=1+2&y=%2f"


@given(
    st.text(alphabet="htp:/@?#[]\\.%0x17fé。a-_ \t", max_size=30),
    st.sampled_from(["http://", "https://", ""]),
)
def test_checked_host_is_the_connected_host(rest: str, start: str) -> None:
    with suppress(InvalidInput):
        connect_parts(start + rest)
