"""The bytes of secrets, read before a plan is in force and again while it is.

Never keeps a secret longer than a minute after its source was last heard: that is the longest a revoked one verifies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from snavio.clock import Clock
from snavio.edge.plan import EdgePlan
from snavio.edge.references import EdgeSecret, SecretReference, SecretScheme, SecretSource
from snavio.errors import BadRequest, NotFound, SnavioError, Unavailable

REFRESH_SECONDS: Final = 20.0
KEPT_NS: Final = 60_000_000_000
AT_ONCE: Final = 16
_FOR_EVER: Final = frozenset({SecretScheme.RAW, SecretScheme.ENV})
_log = structlog.get_logger(__name__)

Keys = Callable[[int], Sequence[tuple[str, bytes]]]


@dataclass(slots=True)
class _Held:
    value: bytes | None
    """None when its source says that it is gone."""
    until_mono_ns: int | None


class SecretTable:
    """The secrets of one plan. A request that began under it ends with it, also when another plan is in force."""

    def __init__(self, held: dict[SecretReference, _Held], clock: Clock) -> None:
        self.held = held
        self._clock = clock

    def value(self, reference: SecretReference) -> bytes | None:
        """The bytes, or None when they are gone; Unavailable when their source has been silent for too long."""
        held = self.held.get(reference)
        if held is None or (held.until_mono_ns is not None and self._clock.mono_ns() > held.until_mono_ns):
            raise Unavailable(
                "A secret of the route cannot be read at the moment.",
                reason="secret-unavailable",
                retry_after_ms=5000,
            )
        return held.value


class SecretKeeper:
    """Reads secrets, and keeps those of the plan in force fresh."""

    def __init__(self, source: SecretSource, *, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._table = SecretTable({}, clock)
        self.failures = 0

    async def load(self, references: Iterable[SecretReference]) -> SecretTable:
        """Read all of them; BadRequest names each one that cannot be read."""
        wanted = list(dict.fromkeys(references))
        turn = asyncio.Semaphore(AT_ONCE)

        async def read(reference: SecretReference) -> _Held | SnavioError:
            async with turn:
                try:
                    return await self._read(reference)
                except SnavioError as error:
                    return error

        answers = dict(zip(wanted, await asyncio.gather(*(read(each) for each in wanted)), strict=True))
        wrong = [f"`{each}`: {answer}" for each, answer in answers.items() if isinstance(answer, SnavioError)]
        if wrong:
            raise BadRequest(
                f"{len(wrong)} of {len(wanted)} secrets cannot be read. " + " ".join(wrong[:20]),
                reason="secret-unreadable",
            )
        return SecretTable(
            {each: answer for each, answer in answers.items() if isinstance(answer, _Held)}, self._clock
        )

    def use(self, table: SecretTable) -> None:
        """Keep the secrets of this table fresh from now on, and of no other."""
        self._table = table

    async def refresh(self) -> None:
        """Read those again that can change; what cannot be read stays for the rest of its minute."""
        held = self._table.held
        for reference, before in list(held.items()):
            if before.until_mono_ns is None:
                continue
            try:
                held[reference] = await self._read(reference)
            except NotFound:
                held[reference] = _Held(None, self._clock.mono_ns() + KEPT_NS)
            except SnavioError as error:
                self.failures += 1
                _log.warning(
                    "a secret could not be read again", secret_ref=str(reference), reason=error.reason
                )

    async def _read(self, reference: SecretReference) -> _Held:
        asked = self._clock.mono_ns()
        value = await self._source.read(reference)
        return _Held(value, None if reference.scheme in _FOR_EVER else asked + KEPT_NS)


def references_of(plan: EdgePlan) -> list[SecretReference]:
    """Every reference whose bytes the plan needs for letting requests in and workers fetch."""
    used = {name for route in plan.routes if route.auth.hmac for name in route.auth.hmac.secret_names}
    found = [each.version.reference for each in plan.secrets if each.version and each.name in used]
    for listener in (plan.pull_api, plan.admin_api):
        found += list(listener.tokens) if listener else []
    for route in plan.routes:
        found += list(route.auth.hmac.secrets) if route.auth.hmac else []
        found += list(route.pull.tokens) if route.pull else []
    return found


def keys_of(table: SecretTable, inline: Sequence[SecretReference], named: Sequence[EdgeSecret]) -> Keys:
    """The keys of a route at a time: those given in it, and the named ones in their windows."""

    def keys(at_unix_ns: int) -> list[tuple[str, bytes]]:
        found = []
        for number, reference in enumerate(inline, 1):
            if value := table.value(reference):
                found.append((f"secret {number}", value))
        for secret in named:
            version = secret.version
            if (
                version is not None
                and version.valid_at(at_unix_ns)
                and (value := table.value(version.reference))
            ):
                found.append((secret.name, value))
        return found

    return keys
