"""Keeps a keyring as Signer tells it: at start, when Signer said to ask again, and when Shield disagrees.

Never asks twice at the same time, and never more often than once in `AT_MOST_EVERY_S` on Shield's word alone.
"""

from __future__ import annotations

import asyncio
import random

import structlog

from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.sdk.keyring import Keyring
from snavio.v1.signer_pb2 import TenantConfigRequest, TenantConfigResponse

METHOD = "/snavio.v1.Signer/TenantConfig"
CALL_S = 5.0
AT_MOST_EVERY_S = 1.0
SHORTEST_POLL_S = 1.0
LONGEST_POLL_S = 24 * 3600.0
AFTER_FAILURE_S = 2.0


class KeyPoller:
    """The only caller of TenantConfig."""

    def __init__(self, keyring: Keyring, *, channel: MeshChannel, clock: Clock) -> None:
        self._keyring = keyring
        self._channel = channel
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._poll_s = SHORTEST_POLL_S
        self._pressed_mono_ns = -(1 << 62)
        self._log = structlog.get_logger().bind(peer=METHOD)

    async def fetch(self) -> None:
        """Ask Signer now; raises what the call raises."""
        async with self._one_at_a_time:
            await self._ask()

    async def renew(self, seen_generation: int) -> bool:
        """Ask Signer because a key of `seen_generation` was refused; whether there is something newer now."""
        async with self._one_at_a_time:
            now = self._clock.mono_ns()
            quiet = now - self._pressed_mono_ns >= AT_MOST_EVERY_S * 1e9
            if self._keyring.generation == seen_generation and quiet:
                self._pressed_mono_ns = now
                try:
                    await self._ask()
                except SnavioError as error:
                    self._log.warning("keys not renewed", reason=error.reason)
        return self._keyring.generation != seen_generation

    async def follow(self) -> None:
        """Ask again whenever it is time; runs until cancelled."""
        while True:
            # Only ever sooner: a fleet that was started in one minute must not ask in one minute for ever.
            await asyncio.sleep(self._poll_s * random.uniform(0.9, 1.0))  # noqa: S311 spreads load, hides nothing
            try:
                await self.fetch()
            except SnavioError as error:
                # The keys that we have go on signing; Shield is the judge of them.
                self._poll_s = AFTER_FAILURE_S
                self._log.warning("keys not renewed", reason=error.reason)

    async def _ask(self) -> None:
        config = await self._channel.call(
            METHOD, TenantConfigRequest(), TenantConfigResponse, timeout_s=CALL_S
        )
        self._keyring.learn(config)
        self._poll_s = min(LONGEST_POLL_S, max(SHORTEST_POLL_S, float(config.poll_after_seconds)))
