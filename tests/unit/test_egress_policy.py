"""The rules of outgoing requests, without a connection."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from snavio.egress.addresses import Reach, address_of, reach
from snavio.egress.policy import EgressPolicy
from snavio.errors import BadRequest, NotAllowed, SnavioError

SEALED = """
    127.0.0.1 127.255.1.2 0.0.0.0 0.1.2.3 169.254.169.254 169.254.0.1 224.0.0.1 255.255.255.255 240.0.0.1 192.0.0.192
    100.100.100.200 168.63.129.16 198.18.0.1 192.0.2.1
    ::1 :: fe80::1 fec0::1 ff02::1 fd00:ec2::254 fd20:ce::254 2001:db8::1
    ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe
    64:ff9b:1::1 64:ff9b:1:7f00:0:100:: 2002:7f00:1:: 2002:a9fe:a9fe::1 2001:0:7f00:1::1
    2001:0:808:808:0:0:80ff:fffe 2606:4700::5efe:7f00:1 2606:4700::200:5efe:a9fe:a9fe
"""
PRIVATE = (
    "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 fd12::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1"
)
PUBLIC = "1.1.1.1 172.32.0.1 8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((each, Reach.SEALED) for each in SEALED.split()),
        *((each, Reach.PRIVATE) for each in PRIVATE.split()),
        *((each, Reach.PUBLIC) for each in PUBLIC.split()),
    ],
)
def test_an_address_is_as_private_as_the_least_public_of_its_forms(text: str, expected: Reach) -> None:
    address = address_of(text)
    assert address is not None
    assert reach(address) is expected


@given(st.integers(0, 2**32 - 1))
def test_no_wrapping_makes_an_ipv4_address_more_public(number: int) -> None:
    plain = ipaddress.IPv4Address(number)
    wrapped = [
        ipaddress.IPv6Address(prefix | number)
        for prefix in (0xFFFF << 32, 0, 0xFFFF << 48, 0x64FF9B << 96, 0x26064700 << 96 | 0x5EFE << 32)
    ]
    wrapped.append(ipaddress.IPv6Address(0x2002 << 112 | number << 80))
    wrapped.append(ipaddress.IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | (number ^ 0xFFFFFFFF)))
    assert all(reach(each) >= reach(plain) for each in wrapped)


def reason(policy: EgressPolicy, url: str, *addresses: str) -> str:
    """The reason of the refusal; empty if the request is permitted."""
    parsed = URL(url)
    try:
        policy.check_url(parsed)
        found = [address_of(each) for each in addresses]
        policy.check_addresses(parsed.raw_host or "", [each for each in found if each is not None])
    except SnavioError as error:
        assert isinstance(error, BadRequest | NotAllowed)
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("rules", "url", "address", "expected"),
    [
        ({}, "https://a.example/", "8.8.8.8", ""),
        ({}, "http://a.example/", "8.8.8.8", "egress-scheme"),
        ({"https_only": False}, "http://a.example/", "8.8.8.8", ""),
        ({"https_only": False}, "ftp://a.example/", "8.8.8.8", "egress-url"),
        ({}, "https://u:p@a.example/", "8.8.8.8", "egress-url"),
        ({}, "https://a.example/" + "x" * 3000, "8.8.8.8", "egress-url"),
        ({}, "https://127.0.0.1/", "127.0.0.1", "egress-address"),
        ({}, "https://[::ffff:169.254.169.254]/", "127.0.0.1", "egress-address"),
        ({}, "https://localhost/", "127.0.0.1", "egress-address"),
        ({}, "https://a.example/", "10.1.2.3", "egress-address"),
        ({"check_private": False}, "https://a.example/", "10.1.2.3", ""),
        ({"check_private": False}, "https://a.example/", "127.0.0.1", "egress-address"),
        ({"allow": ["*"]}, "https://a.example/", "10.1.2.3", ""),
        ({"allow": ["*"]}, "https://a.example/", "127.0.0.1", "egress-address"),
        ({"allow": ["0.0.0.0/0"]}, "https://a.example/", "127.0.0.1", "egress-address"),
        ({"allow": ["127.0.0.0/8"]}, "https://a.example/", "127.0.0.1", ""),
        ({"allow": ["127.0.0.0/8"]}, "https://a.example/", "::ffff:127.0.0.1", ""),
        ({"allow": ["127.0.0.0/8"]}, "https://a.example/", "::ffff:169.254.169.254", "egress-not-allowed"),
        ({"allow": ["127.0.0.0/8"]}, "https://a.example/", "64:ff9b::127.0.0.1", "egress-not-allowed"),
        ({"allow": ["127.0.0.0/8"]}, "https://a.example/", "8.8.8.8", "egress-not-allowed"),
        # The owner of a name decides where it leads: naming it opens no loopback.
        ({"allow": ["a.example"]}, "https://a.example/", "127.0.0.1", "egress-address"),
        ({"allow": ["a.example"]}, "https://A.EXAMPLE./", "10.0.0.1", ""),
        ({"allow": ["a.example"]}, "https://b.example/", "8.8.8.8", "egress-not-allowed"),
        ({"allow": ["*.example"]}, "https://b.example/", "8.8.8.8", ""),
        ({"allow": ["*.example"]}, "https://example/", "8.8.8.8", "egress-not-allowed"),
        ({"allow": ["localhost"]}, "https://localhost/", "127.0.0.1", ""),
        ({"allow": ["169.254.169.254"]}, "https://a.example/", "169.254.169.254", ""),
        ({"deny": ["8.8.0.0/16"]}, "https://a.example/", "8.8.8.8", "egress-denied"),
        ({"deny": ["8.8.0.0/16"]}, "https://a.example/", "64:ff9b::8.8.8.8", "egress-denied"),
        ({"deny": ["*.example"]}, "https://a.example/", "9.9.9.9", "egress-denied"),
        ({"deny": ["a.example"], "allow": ["a.example"]}, "https://a.example/", "9.9.9.9", "egress-denied"),
    ],
)
def test_a_request_goes_where_the_rules_say(
    rules: dict[str, object], url: str, address: str, expected: str
) -> None:
    assert reason(EgressPolicy(**rules), url, address) == expected  # type: ignore[arg-type]


def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    assert reason(EgressPolicy(), "https://a.example/", "8.8.8.8", "127.0.0.1", "9.9.9.9") == "egress-address"


@pytest.mark.parametrize("rule", ["", "a b", "http://a", "10.0.0.0/99", "*.", "a..b", "*a.example"])
def test_a_rule_that_is_none_is_refused_with_its_text(rule: str) -> None:
    with pytest.raises(BadRequest, match="no host") as refused:
        EgressPolicy(deny=[rule])
    assert refused.value.reason == "egress-rule"
