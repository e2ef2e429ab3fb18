"""The capability that calls to the mailbox carry: requested on demand, cached, and renewed before it ends.

Never asks Signer while the cached one is valid, never keeps a connection to Signer between two requests, and never
shows the capability to any service but the mailbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from snavio.clock import Clock
from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.host.background import background

CAPABILITY_KEY: Final = "snavio-capability"
"""Metadata key under which a call presents it."""
# Only these can be solved by another capability. An unknown root is one that the mailbox has not pulled yet.
HELPED: Final = frozenset({"cap-required", "cap-expired", "cap-revoked", "cap-unknown-root"})
# The last third of its lifetime remains for a Signer that is away.
RENEW_AFTER: Final = 2 / 3
RETRY_NS: Final = 5_000_000_000
QUIET_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class CapabilityScope:
    """The rights of a requested capability."""

    realm: str
    """A topic, `<tenant>/*` or `*`."""
    operations: tuple[str, ...]
    ttl_s: int = 0
    """0 for Signer's default."""


@dataclass(frozen=True, slots=True)
class HeldCapability:
    """A capability, and its lifetime from the moment of issue."""

    text: str = field(repr=False)
    ttl_s: int


Ask = Callable[[CapabilityScope, str], Awaitable[HeldCapability]]
"""Requests a capability from Signer; the text is an address that the mailbox named, empty if it named none."""


class CapabilityProvider:
    """Used on one event loop. With `fixed`, presents that capability and never asks Signer."""

    def __init__(
        self, wanted: CapabilityScope, ask: Ask | None, *, clock: Clock, fixed: str | None = None
    ) -> None:
        self._wanted = wanted
        self._ask = ask
        self._clock = clock
        self._text = fixed
        self._fixed = fixed is not None
        self._generation = 0
        self._renew_mono_ns: int | None = None
        self._told = ""
        self._quiet_until = 0.0
        self._turn = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._log = structlog.get_logger().bind(realm=wanted.realm)

    def present(self) -> str | None:
        """The capability to present now; starts a renewal in the background when it is due."""
        due = self._renew_mono_ns
        if due is not None and self._clock.mono_ns() >= due and self._renewing is None:
            self._renewing = background().once("renew capability", self._renew())
        return self._text

    def generation(self) -> int:
        """Grows with every renewal; a client with an open stream compares it, and opens another when it has grown."""
        self.present()
        return self._generation

    def helps(self, refusal: Unauthenticated) -> bool:
        """True if another capability could change this answer."""
        return not self._fixed and self._ask is not None and refusal.reason in HELPED

    async def replace(self, refusal: Unauthenticated, presented: str | None) -> None:
        """Replace a refused capability, with a request to Signer if needed.

        Passes on Signer's errors: without a capability there is no access to the mailbox. Unavailable if the refused
        one was just issued: the mailbox does not know of it yet, and Signer must not be flooded.
        """
        self._told = refusal.signer or self._told
        # Many calls are refused at once; one of them asks.
        async with self._turn:
            if self._text != presented:
                return
            now = asyncio.get_running_loop().time()
            if now < self._quiet_until:
                raise Unavailable(str(refusal), reason=refusal.reason)
            self._quiet_until = now + QUIET_S
            await self._get()

    async def close(self) -> None:
        """End the background work."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self) -> None:
        try:
            async with self._turn:
                await self._get()
        except SnavioError as error:
            self._log.warning("capability not renewed", reason=error.reason)
            self._renew_mono_ns = self._clock.mono_ns() + RETRY_NS
        except Exception as error:
            # Without a pause, the next call would start another renewal at once, and so on.
            background().failed("renew capability", error)
            self._renew_mono_ns = self._clock.mono_ns() + RETRY_NS
        finally:
            self._renewing = None

    async def _get(self) -> None:
        assert self._ask is not None
        asked = self._clock.mono_ns()
        given = await self._ask(self._wanted, self._told)
        self._text = given.text
        self._generation += 1
        # From the time of the request, on the local clock: a difference to Signer's clock does not matter.
        self._renew_mono_ns = asked + round(given.ttl_s * 1e9 * RENEW_AFTER)
