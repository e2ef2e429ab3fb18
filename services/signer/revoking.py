"""Decides which certificates are not to be served any more: one with all that came from it, or all of an identity.

Never revokes half of a chain: whoever stole a certificate may have renewed it first. Never looks for what to revoke
while something is being issued.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable

import structlog

from services.signer.settings import MAX_LIFETIME_S
from snavio.clock import Clock
from snavio.domain.identity import Identity, Kind, parse_identity
from snavio.errors import BadRequest, NotAllowed
from snavio.pki import BACKDATE_S
from snavio.ports.certificates import CertificateLedger, IssuedCertificate
from snavio.ports.keystore import KeyStore, Revocation, RevocationPage
from snavio.transport.gate import Gate

MAX_REASON_LENGTH = 256
MAX_PAGE = 20_000
_LIVING_PAGE = 1_000
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


class Revoking:
    """The denylist, and those who are barred; `turn` is the one that issuing takes."""

    def __init__(
        self,
        *,
        store: KeyStore,
        ledger: CertificateLedger,
        gate: Gate,
        clock: Clock,
        trust_domain: str,
        turn: asyncio.Lock,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._gate = gate
        self._clock = clock
        self._trust_domain = trust_domain
        self._turn = turn
        self._log = structlog.get_logger()

    async def revoke(self, *, serial: str, reason: str, caller: Identity) -> tuple[int, tuple[str, ...]]:
        """Put a serial, and all that came from it, on the denylist; the version that has them, and the serials."""
        # Leading zeros would put a serial on the list that no certificate ever presents.
        if not _SERIAL.fullmatch(serial) or serial.startswith("0"):
            raise BadRequest("serial: must be lower-case hex without leading zeros.", reason="bad-field")
        _require_reason(reason)
        async with self._turn:
            # Whoever stole it may have renewed first.
            later = await self._ledger.descendants([serial], now_ns=self._clock.unix_ns())
            serials = (serial, *later)
            return await self._revoke_all(serials, actor=str(caller), reason=reason), serials

    async def revoke_identity(self, *, spiffe_id: str, reason: str, caller: Identity) -> tuple[str, ...]:
        """Revoke what an identity has and what came from it or through it, and bar it; the serials."""
        parsed = parse_identity(spiffe_id, trust_domain=self._trust_domain)
        if caller.kind is Kind.MESH and parsed.kind is not Kind.PRINCIPAL:
            # Registry speaks for the directory, in which principals come and go; whose operator goes is not its to say.
            raise NotAllowed(f"{caller} may revoke principals only.", reason="not-your-identity")
        identity = parsed.spiffe_id
        _require_reason(reason)
        async with self._turn:
            now = self._clock.unix_ns()
            # Barred first: if the rest fails, it is asked again, and nothing was issued meanwhile.
            await self._ledger.bar(identity, at_ns=now, actor=str(caller), reason=reason)
            own = [*await self._living(spiffe_id=identity), *await self._living(delegate=identity)]
            serials = {entry.serial for entry in own}
            serials.update(await self._ledger.descendants(serials, now_ns=now))
            await self._revoke_all(serials, actor=str(caller), reason=reason)
        self._log.warning("identity revoked", identity=identity, actor=str(caller), reason=reason)
        return tuple(sorted(serials))

    async def restore_identity(self, *, spiffe_id: str, caller: Identity) -> bool:
        """Let an identity have certificates again; whether it was barred."""
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain).spiffe_id
        changed = await self._ledger.unbar(identity)
        if changed:
            self._log.warning("identity restored", identity=identity, actor=str(caller))
        return changed

    async def revoke_delegates(
        self, spiffe_id: str, delegates: Collection[str], *, actor: str
    ) -> tuple[str, ...]:
        """Revoke what the named principals have for a service; the serials. The caller holds `taking_turns`."""
        entries = [
            entry
            for delegate in delegates
            for entry in await self._living(spiffe_id=spiffe_id, delegate=delegate)
        ]
        serials = {entry.serial for entry in entries}
        serials.update(await self._ledger.descendants(serials, now_ns=self._clock.unix_ns()))
        await self._revoke_all(serials, actor=actor, reason="the registration names its principal no more")
        return tuple(sorted(serials))

    def taking_turns(self) -> asyncio.Lock:
        """Held by whoever changes what `certify` asks `require` for."""
        return self._turn

    async def denylist(self, since: int) -> RevocationPage:
        """Revoked serials after a version."""
        return await self._store.revocations_since(since, now_ns=self._clock.unix_ns(), limit=MAX_PAGE)

    async def _living(self, *, spiffe_id: str = "", delegate: str = "") -> list[IssuedCertificate]:
        found: list[IssuedCertificate] = []
        after = ""
        while True:
            page = await self._ledger.living(
                now_ns=self._clock.unix_ns(),
                spiffe_id=spiffe_id,
                delegate=delegate,
                after=after,
                limit=_LIVING_PAGE,
            )
            found += page
            if len(page) < _LIVING_PAGE:
                return found
            after = page[-1].serial

    async def _revoke_all(self, serials: Iterable[str], *, actor: str, reason: str) -> int:
        now = self._clock.unix_ns()
        revocations = []
        for serial in serials:
            known = await self._ledger.find(serial)
            # Whichever certificate it is, issued before now, it has ended by then. A known one is kept a little
            # longer than its life, for services whose clocks are behind.
            life_s = MAX_LIFETIME_S if known is None else 0
            end = (now if known is None else max(now, known.not_after_ns)) + (
                life_s + BACKDATE_S
            ) * 1_000_000_000
            revocations.append(Revocation(serial, now, end, actor=actor, reason=reason))
        if not revocations:
            return 0
        version = await self._store.revoke_all(revocations, now_ns=now)
        # Signer pulls from nobody: its own gate learns here, and from the store at start.
        self._gate.revoke(revocation.serial for revocation in revocations)
        for revocation in revocations:
            self._log.warning("certificate revoked", serial=revocation.serial, actor=actor, reason=reason)
        return version


def _require_reason(reason: str) -> None:
    if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
        raise BadRequest(
            f"reason: must be at most {MAX_REASON_LENGTH} printable characters.", reason="bad-field"
        )
