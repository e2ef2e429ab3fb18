"""A request as the edge judges it: its path in one form, its headers, and the address that it came from.

Never two readings of one path: a path that another program could resolve differently is refused, not repaired, so that
what is matched, what is signed and what is stored is the same text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

MOST_PATH: Final = 2048
MOST_QUERY_FIELDS: Final = 256

# Unreserved characters have no business behind a `%`: `/%77ebhooks` and `/webhooks` would be two names of one path.
_PATH: Final = re.compile(rb"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*)+")
_HIDDEN: Final = re.compile(
    rb"%(?:2[dDeEfF]|3[0-9]|4[1-9a-fA-F]|5[0-9aAcCfF]|6[1-9a-fA-F]|7[0-9aAeE]|0[0-9a-fA-F]|1[0-9a-fA-F]|7[fF])"
)
_DOTS: Final = re.compile(rb"/\.{0,2}(?=/)|/\.{1,2}\Z")
_LOWER_HEX: Final = re.compile(r"%[0-9A-Fa-f]{2}")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadPath(ValueError):
    """A path with more than one reading; the message is one sentence."""


def request_path(raw: bytes) -> str:
    """The path as it was sent, once it can be read in one way only; BadPath otherwise."""
    if len(raw) > MOST_PATH:
        raise BadPath(f"The path is longer than {MOST_PATH} bytes.")
    if not _PATH.fullmatch(raw):
        raise BadPath("The path holds a character that a path cannot have, or does not begin with `/`.")
    if _DOTS.search(raw):
        raise BadPath("The path has an empty segment, `.` or `..`, which programs resolve differently.")
    if b"%" in raw and _HIDDEN.search(raw):
        raise BadPath("The path hides a letter, digit, `/`, `.`, `\\` or control character behind a `%`.")
    return raw.decode("ascii")


def matched_path(path: str) -> str:
    """The path in the form in which it is compared: hexadecimal digits in upper case, no `/` at the end."""
    if "%" in path:
        path = _LOWER_HEX.sub(lambda found: found[0].upper(), path)
    return path.rstrip("/") or "/"


@dataclass(slots=True)
class EdgeRequest:
    """One request, before its body. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[bytes, bytes]]
    remote: Address | None
    certificate: str = ""
    """The URI in the verified certificate of the client, or empty."""

    def header(self, name: str) -> str | None:
        """The one value of a header; None when it is absent, or there more than once and so ambiguous."""
        wanted, found = name.encode("latin-1"), None
        for each, value in self.headers:
            if each == wanted:
                if found is not None:
                    return None
                found = value
        return None if found is None else found.decode("latin-1")

    def values(self, name: str) -> list[str]:
        """Every value of a header."""
        wanted = name.encode("latin-1")
        return [value.decode("latin-1") for each, value in self.headers if each == wanted]

    def has(self, name: str) -> bool:
        """True when the header is there."""
        wanted = name.encode("latin-1")
        return any(each == wanted for each, _ in self.headers)

    @property
    def host(self) -> str:
        """The host that was asked for, in lower case and without its port; empty when it is not said once."""
        text = (self.header("host") or "").lower()
        if text.startswith("["):
            return text.partition("]")[0].removeprefix("[")
        return text.rpartition(":")[0].rstrip(".") if ":" in text else text.rstrip(".")

    def fields(self) -> list[tuple[str, str]]:
        """The fields of the query; a query with too many of them has none."""
        try:
            return parse_qsl(self.query, keep_blank_values=True, max_num_fields=MOST_QUERY_FIELDS)
        except ValueError:
            return []


def address_of(text: str) -> Address | None:
    """An address, an IPv4 one in its own form; None when it is none."""
    try:
        found = ipaddress.ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def client_address(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """The address of the client: the connection's, or, behind trusted proxies, the last one that is none of them.

    What stands left of an untrusted address was written by it, and is believed by nobody.
    """
    found = address_of(peer)
    if not trusted or found is None or not within(found, trusted):
        return found
    for text in reversed([each for value in forwarded for each in value.split(",")]):
        named = address_of(text)
        if named is None:
            return found
        found = named
        if not within(found, trusted):
            return found
    return found


def within(address: Address, networks: Iterable[Network]) -> bool:
    """True when one of the networks holds the address."""
    return any(address.version == each.version and address in each for each in networks)
