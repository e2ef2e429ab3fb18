"""Look-ups of names for outgoing requests, each in a thread of its own, with a deadline and a bound.

Returns literal addresses that the policy has checked, all of them. Never keeps an answer: the next connection is looked
up and checked anew. Never lets one tenant's slow name server hold every look-up.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from snavio.egress.addresses import Address, address_of
from snavio.egress.policy import EgressPolicy
from snavio.errors import Unavailable
from snavio.host.background import background
from snavio.host.shares import HOLDER, Shares, default_share

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

LOOKUPS: Final = 32
MOST_ADDRESSES: Final = 16

Lookup = Callable[[str], Sequence[str]]
"""Addresses of a host; blocks, and raises OSError where there are none."""


def lookup_shares() -> Shares:
    """The bound on look-ups under way."""
    return Shares("lookups", default_share("lookups", LOOKUPS))


def system_lookup(host: str) -> Sequence[str]:
    """The operating system's answer."""
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


class CheckedResolver:
    """Resolves names to addresses that may be dialled; a resolver as aiohttp has them, without importing it."""

    def __init__(
        self, policy: EgressPolicy, *, lookup: Lookup = system_lookup, shares: Shares | None = None
    ) -> None:
        self._policy = policy
        self._lookup = lookup
        self.shares = shares or lookup_shares()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """NotAllowed if one of the addresses may not be dialled; Unavailable without an answer."""
        found: list[Address] = []
        for text in await self._ask(host):
            if (address := address_of(text)) is None:
                raise Unavailable(f"{host} has an address that is none.", reason="egress-dns")
            found.append(address)
        if not found:
            raise Unavailable(f"{host} has no address.", reason="egress-dns")
        # All of them: with one bad address among good ones, which is dialled would be the name's owner's choice.
        self._policy.check_addresses(host, found)
        return [
            {
                "hostname": host,
                "host": str(address),
                "port": port,
                "family": socket.AF_INET6 if address.version == 6 else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in found[:MOST_ADDRESSES]
        ]

    async def close(self) -> None:
        """Nothing is kept."""

    async def _ask(self, host: str) -> Sequence[str]:
        loop, holder = asyncio.get_running_loop(), HOLDER.get()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()
        self.shares.take(holder)

        def settle(found: Sequence[str] | None, error: Exception | None) -> None:
            # Given back when the thread ends, not when the caller stops waiting: the thread is what is bounded.
            self.shares.give_back(holder)
            if answer.done():
                return
            if error is not None:
                answer.set_exception(
                    Unavailable(f"{host} cannot be looked up: {error}.", reason="egress-dns")
                )
            else:
                answer.set_result(found or ())

        def look() -> None:
            found, failure = None, None
            try:
                found = self._lookup(host)
            except (OSError, UnicodeError) as error:
                failure = error
            try:
                loop.call_soon_threadsafe(settle, found, failure)
            except RuntimeError:
                return  # The loop has ended before it.

        background().thread("name look-up", look)
        return await answer
