"""Decides which certificates are revoked: those of a chain of renewals, or all of an identity.

A revocation is one entry, however often a thief has renewed first. Never leaves out what is issued meanwhile: issuing
and revoking take turns. Never fails for lack of room when an operator asks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from services.signer.certificates.issue_order import IssueOrder
from services.signer.certificates.issuing import MAX_ASSUMED_S
from services.signer.settings import MAX_LIFETIME_S, MAX_SERVICE_LIFETIME_S
from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.domain.lineage import Revoked, tenant_of_spiffe, through
from snavio.errors import BadRequest, NotAllowed
from snavio.host.shares import MESH, ShareLimit, Shares
from snavio.pki import BACKDATE_S
from snavio.ports.certificates import CertificateLedger, IssuedCertificate
from snavio.ports.keystore import KeyStore, Revocation, RevocationPage
from snavio.rpc.certificate_gate import CertificateGate

MAX_REASON_LENGTH = 256
# At most about 1 MB, however long the names are.
MAX_PAGE = 1_000
MAX_TOLD = 1_000
# Certificates that do not carry their chain are named one by one, unless there are more: then it is their identities.
MAX_UNMARKED = 100
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


@dataclass(frozen=True, slots=True)
class RevocationResult:
    """The effect of a revocation."""

    version: int
    """Version of the denylist that has it."""
    entries: tuple[Revoked, ...] = ()
    serials: tuple[str, ...] = ()
    """Living certificates that it covers, at most `MAX_TOLD`."""
    more: bool = False
    """There are more than that."""


class CertificateRevocation:
    """The denylist and the barred identities; `turn` is the lock that issuing takes. `start` before use."""

    def __init__(
        self,
        *,
        store: KeyStore,
        ledger: CertificateLedger,
        gate: CertificateGate,
        clock: Clock,
        order: IssueOrder,
        trust_domain: str,
        turn: asyncio.Lock,
        limit: ShareLimit,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._gate = gate
        self._clock = clock
        self._order = order
        self._trust_domain = trust_domain
        self._turn = turn
        self.shares = Shares("revocations", limit)
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Fill Signer's own gate from the store."""
        version, more = 0, True
        while more:
            page = await self.denylist(version)
            self._gate.revoke(revocation.entry for revocation in page.revocations)
            version, more = page.version, page.more
        await self._count()

    async def revoke(self, *, serial: str, reason: str, caller: Identity) -> RevocationResult:
        """Revoke a certificate with its whole chain of renewals."""
        # Leading zeros would put a serial on the list that no certificate ever presents.
        if not _SERIAL.fullmatch(serial) or serial.startswith("0"):
            raise BadRequest("serial: must be lower-case hex without leading zeros.", reason="bad-field")
        _require_reason(reason)
        async with self._turn:
            known = await self._ledger.find(serial)
            # Whoever stole it may have renewed first, or taken one that was renewed: the chain goes as a whole.
            root = serial if known is None else known.root or serial
            identity = "" if known is None else known.spiffe_id
            covered = await self._living(chain=root)
            unmarked = await self._living(chain=root, unmarked=True, limit=MAX_UNMARKED + 1)
            return await self._end(
                [(root, identity), *_one_by_one(unmarked)], covered, caller=caller, reason=reason
            )

    async def revoke_identity(self, *, spiffe_id: str, reason: str, caller: Identity) -> RevocationResult:
        """Revoke the certificates of an identity and those issued by its right, and bar it."""
        parsed = parse_identity(spiffe_id, trust_domain=self._trust_domain)
        if caller.kind is IdentityKind.MESH and parsed.kind is not IdentityKind.PRINCIPAL:
            # Registry speaks for the directory, in which principals come and go; whose operator goes is not its to say.
            raise NotAllowed(f"{caller} may revoke principals only.", reason="not-your-identity")
        identity = parsed.spiffe_id
        _require_reason(reason)
        operator = caller.kind is IdentityKind.OPERATOR
        async with self._turn:
            if not operator and not await self._was_let_in(parsed):
                # A tenant that writes and removes names by the thousand must leave nothing behind here.
                return RevocationResult(0)
            # Barred first: if the rest fails, it is asked again, and nothing was issued meanwhile.
            await self._ledger.bar(
                identity,
                at_ns=self._clock.unix_ns(),
                actor=str(caller),
                reason=reason,
                reserve=operator,
            )
            through_it = await self._living(delegate=identity)
            covered = [*await self._living(spiffe_id=identity), *through_it]
            # An operator's word counts for what a ledger from a backup does not know, too.
            if not covered and not operator:
                return RevocationResult(0)
            unmarked = await self._living(delegate=identity, unmarked=True, limit=MAX_UNMARKED + 1)
            ended = await self._end(
                [(identity, identity), *_one_by_one(unmarked)], covered, caller=caller, reason=reason
            )
        self._log.warning("identity revoked", identity=identity, actor=str(caller), reason=reason)
        return ended

    async def restore_identity(self, *, spiffe_id: str, caller: Identity) -> bool:
        """Let an identity have certificates again; returns whether it was barred."""
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain).spiffe_id
        changed = await self._ledger.unbar(identity)
        if changed:
            self._log.warning("identity restored", identity=identity, actor=str(caller))
        return changed

    async def revoke_delegates(
        self, spiffe_id: str, delegates: Collection[str], *, caller: Identity
    ) -> tuple[str, ...]:
        """Revoke the certificates of principals for a service; returns serials. The caller holds `taking_turns`."""
        subjects: list[tuple[str, str]] = []
        covered: list[IssuedCertificate] = []
        for delegate in delegates:
            found = await self._living(spiffe_id=spiffe_id, delegate=delegate)
            if found:
                covered += found
                unmarked = await self._living(
                    spiffe_id=spiffe_id, delegate=delegate, unmarked=True, limit=MAX_UNMARKED + 1
                )
                subjects += [(through(spiffe_id, delegate), spiffe_id), *_one_by_one(unmarked)]
        if not subjects:
            return ()
        reason = "the registration names its principal no more"
        return (await self._end(subjects, covered, caller=caller, reason=reason)).serials

    async def revoke_service(self, spiffe_id: str, *, caller: Identity) -> tuple[str, ...]:
        """Revoke the certificates for a deleted service; returns serials. The caller holds `taking_turns`.

        The service is not barred: registered again, it gets certificates again.
        """
        covered = await self._living(spiffe_id=spiffe_id)
        if not covered:
            return ()
        reason = "the service was deleted"
        return (await self._end([(spiffe_id, spiffe_id)], covered, caller=caller, reason=reason)).serials

    def taking_turns(self) -> asyncio.Lock:
        """The lock for changes of the rights that `certify` checks by `require`."""
        return self._turn

    async def denylist(self, since: int) -> RevocationPage:
        """Revocations after a version."""
        return await self._store.revocations_since(since, now_ns=self._clock.unix_ns(), limit=MAX_PAGE)

    async def _was_let_in(self, identity: Identity) -> bool:
        """True for a principal that had a certificate, or for which there is a token that gets it one."""
        if await self._ledger.ever_known(identity.spiffe_id):
            return True
        waiting = (await self._store.enrolments()).open
        return any((each.tenant, each.principal) == (identity.tenant, identity.name) for each in waiting)

    async def _living(
        self,
        *,
        spiffe_id: str = "",
        delegate: str = "",
        chain: str = "",
        unmarked: bool = False,
        limit: int = MAX_TOLD + 1,
    ) -> tuple[IssuedCertificate, ...]:
        return await self._ledger.living(
            now_ns=self._clock.unix_ns(),
            spiffe_id=spiffe_id,
            delegate=delegate,
            chain=chain,
            unmarked=unmarked,
            limit=limit,
        )

    async def _end(
        self,
        subjects: Sequence[tuple[str, str]],
        covered: Sequence[IssuedCertificate],
        *,
        caller: Identity,
        reason: str,
    ) -> RevocationResult:
        """Put each subject, of that identity, on the denylist for all that was issued until now."""
        now, before = self._clock.unix_ns(), self._order.next()
        revocations = [
            Revocation(
                subject,
                now,
                now + (_longest_life_s(subject, identity) + BACKDATE_S) * 1_000_000_000,
                actor=str(caller),
                reason=reason,
                before_ns=before,
                identity=identity,
                holder=MESH if caller.kind is IdentityKind.OPERATOR else tenant_of_spiffe(identity),
            )
            for subject, identity in dict(subjects).items()
        ]
        if not self.shares.room(revocations[0].holder, len(revocations)):
            self.shares.refused += 1
            self._log.warning(
                "the denylist is full; several entries become one that covers more",
                tenant=revocations[0].holder,
                held=self.shares.held(revocations[0].holder),
                used=self.shares.used,
            )
        version = await self._store.revoke_all(revocations, now_ns=now, limit=self.shares.limit)
        await self._count()
        # Signer pulls from nobody: its own gate learns here, and from the store at start.
        self._gate.revoke(revocation.entry for revocation in revocations)
        serials = tuple(dict.fromkeys(entry.serial for entry in covered))
        for revocation in revocations:
            self._log.warning(
                "certificates revoked",
                subject=revocation.subject,
                identity=revocation.identity,
                living=len(serials),
                actor=str(caller),
                reason=reason,
            )
        return RevocationResult(
            version,
            tuple(revocation.entry for revocation in revocations),
            serials[:MAX_TOLD],
            more=len(serials) > MAX_TOLD,
        )

    async def _count(self) -> None:
        held = await self._store.revocation_holders()
        for tenant in {*held, *self.shares.holders()}:
            self.shares.found(tenant, held.get(tenant, 0))


def _one_by_one(unmarked: Sequence[IssuedCertificate]) -> list[tuple[str, str]]:
    """Subjects for certificates that name neither their chain nor their principal."""
    if len(unmarked) > MAX_UNMARKED:
        return [(entry.spiffe_id, entry.spiffe_id) for entry in unmarked]
    return [(entry.serial, entry.spiffe_id) for entry in unmarked]


def _longest_life_s(subject: str, identity: str) -> int:
    """Longer than any certificate of that subject can live."""
    if " " in subject:
        return MAX_ASSUMED_S
    return MAX_SERVICE_LIFETIME_S if "/service/" in identity else MAX_LIFETIME_S


def _require_reason(reason: str) -> None:
    if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
        raise BadRequest(
            f"reason: must be at most {MAX_REASON_LENGTH} printable characters.", reason="bad-field"
        )
