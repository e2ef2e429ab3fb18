"""Decides who gets a certificate for which identity, for how long, and which are not to be served any more.

Never certifies a mesh identity for anybody but itself: whoever could would be any service of the mesh. Never issues
what it has not written down, and never issues to a certificate while that one is being revoked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from services.signer.settings import MAX_LIFETIME_S
from snavio.clock import Clock
from snavio.domain.delegation import require_delegated
from snavio.domain.identity import Identity, Kind, parse_identity
from snavio.errors import BadRequest, NotAllowed
from snavio.pki import (
    BACKDATE_S,
    CertificateAuthority,
    certificate_pem,
    issue_leaf,
    not_after_unix_ns,
    public_key_of_csr,
    serial_of,
)
from snavio.ports.certificates import CertificateLedger, IssuedCertificate
from snavio.ports.keystore import KeyStore, Revocation, RevocationPage
from snavio.transport.gate import Gate
from snavio.transport.peer import Peer
from snavio.transport.renewal import Certified, Certify

MAX_REASON_LENGTH = 256
MAX_PAGE = 20_000
MAX_LISTED = 1_000
MAX_ASSUMED_S = 3600
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


@dataclass(frozen=True, slots=True)
class Issued:
    """A fresh certificate."""

    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_ns: int


@dataclass(frozen=True, slots=True)
class Application:
    """A certificate that somebody wants, with what is known of how he came to it."""

    public_key: ec.EllipticCurvePublicKey
    identity: Identity
    ttl_s: int
    actor: str
    parent: Peer | None = None
    """The certificate with which it is asked for."""
    delegate: str = ""
    """The principal through whose right it is had."""


async def _nothing() -> None:
    return


class Certificates:
    """The installation's CA at work."""

    def __init__(
        self,
        *,
        ca: CertificateAuthority,
        store: KeyStore,
        ledger: CertificateLedger,
        gate: Gate,
        clock: Clock,
        trust_domain: str,
        ttl_s: Callable[[Kind], int],
    ) -> None:
        self._ca = ca
        self._store = store
        self._ledger = ledger
        self._gate = gate
        self._clock = clock
        self._trust_domain = trust_domain
        self._ttl_s = ttl_s
        # Issuing and revoking take turns. Otherwise a thief who renews at the moment of the revocation would get a
        # certificate that is written down just after the revocation has looked for it.
        self._turn = asyncio.Lock()
        self._log = structlog.get_logger()

    async def issue(self, *, csr_pem: str, spiffe_id: str, ttl_s: int, caller: Peer) -> Issued:
        """A certificate for the key in the request and for that identity; its other wishes are ignored."""
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain)
        _require_may_certify(caller.identity, identity)
        public_key = public_key_of_csr(csr_pem)
        cap = self._ttl_s(identity.kind)
        renewal = identity == caller.identity
        known = await self._ledger.find(caller.cert_serial) if renewal else None
        delegate = known.delegate if known is not None else ""
        if delegate:
            # No way around AssumeService to a longer life.
            cap = min(cap, MAX_ASSUMED_S)
        return await self.certify(
            Application(public_key, identity, min(ttl_s or cap, cap), str(caller.identity), caller, delegate),
            require=lambda: self._require_still_delegated(identity, delegate) if renewal else _nothing(),
        )

    async def certify(
        self, application: Application, *, require: Callable[[], Awaitable[None]] = _nothing
    ) -> Issued:
        """Issue, unless the identity or anybody on the way to it is barred; `require` is asked at that moment."""
        async with self._turn:
            await require()
            await self.require_not_barred(application.identity, application.actor, application.delegate)
            parent = application.parent
            if parent is not None:
                self._gate.require(parent)
            now = self._clock.unix_ns()
            leaf = issue_leaf(
                self._ca,
                public_key=application.public_key,
                identity=application.identity,
                ttl_s=application.ttl_s,
                now_unix_ns=now,
            )
            issued = Issued(
                certificate_pem(leaf).decode(),
                self._ca.certificate_pem.decode(),
                serial_of(leaf),
                not_after_unix_ns(leaf),
            )
            await self._ledger.record(
                IssuedCertificate(
                    serial=issued.serial,
                    spiffe_id=application.identity.spiffe_id,
                    issued_to=application.actor,
                    # What an operator makes for others is not his own certificate renewed: revoking his would else
                    # take every tenant down with him.
                    parent=parent.cert_serial
                    if parent is not None and _inherits(parent, application)
                    else "",
                    delegate=application.delegate,
                    issued_ns=now,
                    not_after_ns=issued.not_after_ns,
                )
            )
        self._log.info(
            "certificate issued",
            identity=application.identity.spiffe_id,
            serial=issued.serial,
            actor=application.actor,
            not_after_ns=issued.not_after_ns,
        )
        return issued

    def renew_own(self, service: str) -> Certify:
        """How Signer renews its own certificate, without asking itself over the network."""
        identity = Identity(self._trust_domain, Kind.MESH, service)

        async def certify(csr_pem: bytes) -> Certified:
            issued = await self.certify(
                Application(
                    public_key_of_csr(csr_pem), identity, self._ttl_s(Kind.MESH), actor=identity.spiffe_id
                )
            )
            return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())

        return certify

    async def require_not_barred(self, identity: Identity, *others: str) -> None:
        """NotAllowed when the identity, or anybody on the way to it, may have no certificate."""
        barred = await self._ledger.barred({identity.spiffe_id, *filter(None, others)})
        if barred:
            raise NotAllowed(
                f"{min(barred)} was revoked and may have no certificate until an operator restores it.",
                reason="identity-barred",
            )

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
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain).spiffe_id
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

    async def listed(self, *, spiffe_id: str, after: str, limit: int) -> tuple[IssuedCertificate, ...]:
        """Living certificates, oldest first."""
        if spiffe_id:
            parse_identity(spiffe_id, trust_domain=self._trust_domain)
        return await self._ledger.living(
            now_ns=self._clock.unix_ns(), spiffe_id=spiffe_id, after=after, limit=limit
        )

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        """Those of the given identities that are barred."""
        return await self._ledger.barred(spiffe_ids)

    async def find(self, serial: str) -> IssuedCertificate | None:
        """What is known of a certificate."""
        return await self._ledger.find(serial)

    async def denylist(self, since: int) -> RevocationPage:
        """Revoked serials after a version."""
        return await self._store.revocations_since(since, now_ns=self._clock.unix_ns(), limit=MAX_PAGE)

    async def _require_still_delegated(self, identity: Identity, delegate: str) -> None:
        """A service that renews itself needs what the principal needed through whom it was first certified."""
        if identity.kind is not Kind.SERVICE:
            return
        known = await self._store.delegation(identity.source)
        if delegate:
            principal = parse_identity(delegate, trust_domain=self._trust_domain)
            require_delegated(known, identity.source, principal)
        elif known is not None:
            # An operator made it, so it needs no principal; suspended it is all the same.
            require_delegated(known, identity.source, None)

    async def _living(self, *, spiffe_id: str = "", delegate: str = "") -> list[IssuedCertificate]:
        found: list[IssuedCertificate] = []
        after = ""
        while True:
            page = await self._ledger.living(
                now_ns=self._clock.unix_ns(),
                spiffe_id=spiffe_id,
                delegate=delegate,
                after=after,
                limit=MAX_LISTED,
            )
            found += page
            if len(page) < MAX_LISTED:
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


def _inherits(parent: Peer, application: Application) -> bool:
    return parent.identity == application.identity or parent.identity.kind is not Kind.OPERATOR


def _require_may_certify(caller: Identity, identity: Identity) -> None:
    renews_itself = identity == caller and caller.kind in (Kind.MESH, Kind.SERVICE, Kind.OPERATOR)
    names_another = caller.kind is Kind.OPERATOR and identity.kind is not Kind.MESH
    if not renews_itself and not names_another:
        raise NotAllowed(
            f"{caller} may not have a certificate made for {identity}.", reason="not-your-identity"
        )


def _require_reason(reason: str) -> None:
    if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
        raise BadRequest(
            f"reason: must be at most {MAX_REASON_LENGTH} printable characters.", reason="bad-field"
        )
