"""Sorts IP addresses by how far an outsider's request may go: public, private, or sealed.

An IPv6 address that carries an IPv4 address is judged as both. Never relies on `ipaddress.is_global` alone, which
calls translated forms of loopback global.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Reach(IntEnum):
    """The further from the public Internet, the higher."""

    PUBLIC = 0
    PRIVATE = 1
    """An organisation's own network."""
    SEALED = 2
    """This machine, its link, cloud metadata, and what is no host's address at all."""


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in text.split())


_PRIVATE: Final = _networks("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7")
_SEALED: Final = _networks(
    "0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24"
    " 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
    # Metadata outside of the link-local range: Alibaba's, Azure's, and those of AWS and Google over IPv6.
    " 100.100.100.200/32 168.63.129.16/32 fd00:ec2::/32 fd20:ce::254/128"
    " ::/128 ::1/128 fe80::/10 fec0::/10 ff00::/8 100::/64 2001:db8::/32 3fff::/20 5f00::/16"
    # Translation of a network's own choice: the IPv4 address may stand in any place, so nothing of it is judged.
    " 64:ff9b:1::/48"
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_TRANSLATED: Final = ipaddress.IPv6Network("::ffff:0:0:0/96")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


def embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """IPv4 addresses that a packet to `address` may end at."""
    if address.version == 4:
        return
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if (mapped := address.ipv4_mapped) is not None:
        yield mapped
    if (relayed := address.sixtofour) is not None:
        yield relayed
    if (teredo := address.teredo) is not None:
        yield from teredo
    if any(address in network for network in (_NAT64, _COMPATIBLE, _TRANSLATED)):
        yield low
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield low


def forms(address: Address) -> tuple[Address, ...]:
    """`address` and all that it carries."""
    return (address, *embedded(address))


def reach(address: Address) -> Reach:
    """The reach of the least public of its forms."""
    return max(_reach(form) for form in forms(address))


def _reach(address: Address) -> Reach:
    if any(address.version == network.version and address in network for network in _SEALED):
        return Reach.SEALED
    if any(address.version == network.version and address in network for network in _PRIVATE):
        return Reach.PRIVATE
    if address.version == 6 and any(embedded(address)):
        return Reach.PUBLIC  # As far as the outer form goes; `reach` judges what it carries.
    return Reach.PUBLIC if address.is_global and not address.is_multicast else Reach.SEALED


def opens_sealed(network: Network) -> bool:
    """True if a rule for `network` names sealed addresses on purpose: all of it is sealed.

    A rule for 0.0.0.0/0 means the Internet, and does not open this machine.
    """
    return any(
        network.version == sealed.version and network.subnet_of(sealed)  # type: ignore[arg-type]
        for sealed in _SEALED
    )


def address_of(text: str) -> Address | None:
    """The address of its text, or None; brackets and a zone are dropped, a mapped address is the one that it maps."""
    try:
        found = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped if found.version == 6 else None) or found
