"""Measures how long a revoked right is still used: a canary of the platform's own, revoked while it sends.

Never touches a tenant's rights: tenant, service and targets are the canary's, made when they are missing. What it
measured is kept in the state folder for `snavio status`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.admin.operator import Operator
from snavio.admin.queue import QueueClient
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.directory import Profile
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.message import MessageState
from snavio.domain.revocation import RevocationTimes, last_accepted_s
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError, Unavailable
from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as wire

TENANT: Final = "snavio-canary"
SERVICE: Final = "meter"
SOURCE: Final = f"{TENANT}/{SERVICE}"
NAME: Final = "probe"
FILE: Final = "revocation.json"
WARM_SECONDS: Final = 30.0
"""The longest wait for a right to arrive."""
REFUSED_IN_A_ROW: Final = 25
"""So many refusals one after the other end a round: several pulls of every instance."""
BETWEEN_SECONDS: Final = 0.01
HEARD_MS: Final = 10_000
"""A Fast that has not called for longer is gone, or cut off; it cannot be measured by what it hears."""


class RevocationMeter:
    """Measures on a running mesh, as an operator."""

    def __init__(self, mesh: MeshSettings, *, operator_certificates: Path, clock: Clock) -> None:
        self._mesh = mesh
        self._operator_certificates = operator_certificates
        self._clock = clock

    async def measure(self, profiles: Sequence[Profile], *, rounds: int) -> list[RevocationTimes]:
        """`rounds` revocations of each profile, the profiles side by side."""
        mesh = self._mesh
        async with AsyncExitStack() as stack:
            operator = await stack.enter_async_context(
                Operator(
                    signer_address=mesh.signer,
                    registry_address=mesh.registry,
                    certificates=self._operator_certificates,
                    trust_domain=mesh.trust_domain,
                )
            )
            await self._prepare(operator, profiles)
            producer = await stack.enter_async_context(
                Producer(
                    shield=mesh.shield,
                    signer=mesh.signer,
                    certificates=mesh.certificates(f"{TENANT}-{SERVICE}"),
                    trust_domain=mesh.trust_domain,
                )
            )
            try:
                return list(
                    await asyncio.gather(
                        *(self._rounds(operator, producer, profile, rounds) for profile in profiles)
                    )
                )
            finally:
                await self._tidy(operator, profiles)

    async def _rounds(
        self, operator: Operator, producer: Producer, profile: Profile, rounds: int
    ) -> RevocationTimes:
        target = target_of(profile)
        times = []
        for _ in range(rounds):
            granted = await operator.grant(SOURCE, target, NAME)
            if profile is not Profile.SYNC:
                await self._known_to_fast(operator, granted)
            await self._warm(producer, target)
            times.append(await self._round(operator, producer, target, profile))
        return RevocationTimes(profile, tuple(times))

    async def _known_to_fast(self, operator: Operator, version: int) -> None:
        # Before that, Slow decides with the rights of the moment, and a revocation would be felt at once: it is the
        # rights in Fast's memory that are measured.
        limit = self._clock.mono_ns() + round(WARM_SECONDS * 1e9)
        while True:
            known = [each for each in await operator.followers("fast") if each.silent_ms < HEARD_MS]
            if known and all(each.version >= version for each in known):
                return
            if self._clock.mono_ns() > limit:
                raise Unavailable("No Fast has heard of the canary's right; nothing to measure.")
            await asyncio.sleep(BETWEEN_SECONDS)

    async def _warm(self, producer: Producer, target: str) -> None:
        limit = self._clock.mono_ns() + round(WARM_SECONDS * 1e9)
        accepted = 0
        while accepted < 3:
            outcome = await producer.send(target, NAME, b"")
            accepted = accepted + 1 if outcome.delivered else 0
            if self._clock.mono_ns() > limit:
                raise Unavailable(
                    f"The canary's commands are refused ({outcome.reason}); nothing to measure."
                )
            await asyncio.sleep(BETWEEN_SECONDS)

    async def _round(self, operator: Operator, producer: Producer, target: str, profile: Profile) -> float:
        revoking = asyncio.create_task(self._revoked(operator, target))
        sent: list[tuple[int, bool]] = []
        refused = 0
        limit: int | None = None
        try:
            while refused < REFUSED_IN_A_ROW:
                at = self._clock.mono_ns()
                outcome = await producer.send(target, NAME, b"")
                sent.append((at, outcome.delivered))
                # Only the refusal that is waited for: one for another reason says nothing about the right.
                if revoking.done():
                    refused = refused + 1 if outcome.verdict is Verdict.ACL_DENY else 0
                    bound_s = RevocationTimes(profile, ()).bound_s
                    limit = limit or revoking.result() + round((2 * bound_s + WARM_SECONDS) * 1e9)
                    if at > limit:
                        break
                await asyncio.sleep(BETWEEN_SECONDS)
            return last_accepted_s(sent, await revoking)
        finally:
            revoking.cancel()

    async def _revoked(self, operator: Operator, target: str) -> int:
        """When the revocation was durable, as the revoker knows it."""
        await asyncio.sleep(5 * BETWEEN_SECONDS)
        await operator.revoke(SOURCE, target, NAME)
        return self._clock.mono_ns()

    async def _prepare(self, operator: Operator, profiles: Sequence[Profile]) -> None:
        await operator.create_tenant(TENANT)
        await operator.register_service(TENANT, SERVICE)
        identity = Identity(self._mesh.trust_domain, IdentityKind.SERVICE, SERVICE, TENANT)
        await operator.certify(identity, self._mesh.certificates(f"{TENANT}-{SERVICE}"))
        for profile in profiles:
            await operator.claim_target(target_of(profile), TENANT)
            await operator.put_route(
                target_of(profile),
                NAME,
                profile=wire.Profile.Name(int(profile)),
            )

    async def _tidy(self, operator: Operator, profiles: Sequence[Profile]) -> None:
        """No right and no message is left behind; what fails here is tidied by the next measurement."""
        mesh = self._mesh
        for profile in profiles:
            topic = f"{TENANT}/{target_of(profile)}"
            with suppress(SnavioError):
                await operator.revoke(SOURCE, target_of(profile), NAME)
                async with QueueClient(
                    mesh.mailbox,
                    certificates=self._operator_certificates,
                    realm=topic,
                    signer=mesh.signer,
                    trust_domain=mesh.trust_domain,
                ) as queue:
                    await (await queue.preview_purge(topic, MessageState.READY, reason="canary")).apply()


def target_of(profile: Profile) -> str:
    """The canary's target of a profile."""
    return f"{TENANT}-{profile.name.lower()}"


def document(times: Sequence[RevocationTimes], *, at_unix_ns: int) -> dict[str, Any]:
    """The measurements as JSON."""
    return {
        "measured_unix_ns": at_unix_ns,
        "profiles": {
            each.profile.name.lower(): {
                "rounds": len(each.seconds),
                "p50_s": round(each.p50, 4),
                "p99_s": round(each.p99, 4),
                "max_s": round(each.max, 4),
                "bound_s": each.bound_s,
                "kept": each.kept,
            }
            for each in times
        },
    }


def keep(state_dir: Path, measured: dict[str, Any]) -> None:
    """Write it down for `last`; profiles that were not measured this time stay as they were."""
    before = last(state_dir) or {}
    profiles = {**before.get("profiles", {}), **measured["profiles"]}
    fresh = state_dir / f".{FILE}.{os.getpid()}"
    fresh.write_bytes(orjson.dumps({**measured, "profiles": profiles}, option=orjson.OPT_INDENT_2) + b"\n")
    fresh.replace(state_dir / FILE)


def last(state_dir: Path) -> dict[str, Any] | None:
    """The last measurement; None when there is none, or it cannot be read."""
    try:
        found = orjson.loads((state_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
