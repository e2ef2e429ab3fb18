"""Makes capabilities for the mailbox, ends them before their time, and holds what their root keys are derived from.

Never makes one that it has not written down, never gives the secrets to anybody but the mailbox, and never makes one
for a holder while that one is being barred.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import structlog

from services.signer.capabilities.rights import (
    require_may_govern,
    require_may_issue,
    require_realm,
    share_of,
    tenant_of,
)
from services.signer.certificates.issuing import CertificateIssuer
from services.signer.keys.signatures import new_pair
from snavio.clock import Clock
from snavio.domain.capability import Identifier, derive_root, mint
from snavio.domain.capability_root import RootLine, revoke_through, rotate_line
from snavio.domain.caveat import Caveat, Operation, Quota
from snavio.domain.directory.rules import require_text
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.domain.signing_scope import MAILBOX, Scope, ScopeKey, provision, rotate_scope
from snavio.errors import BadRequest, NotAllowed, NotFound
from snavio.ports.capabilities import CapabilityAuditEntry, CapabilityLedger, EndingsPage, IssuedCapability
from snavio.ports.keystore import KeyStore

MAX_LISTED: Final = 1000
MAX_PAGE: Final = 5000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CapabilityRequest:
    """A requested capability."""

    realm: str
    operations: tuple[str, ...]
    holder: str
    """Empty for the caller."""
    ttl_s: int
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class IssuedText:
    """A fresh capability."""

    text: str = field(repr=False)
    cap_id: str
    ttl_s: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class RootSecret:
    """A secret from which root keys are derived."""

    root: str
    secret: bytes = field(repr=False)
    ends_ns: int


class CapabilityIssuer:
    """The mailbox's capabilities, at their source."""

    def __init__(
        self,
        *,
        store: KeyStore,
        ledger: CapabilityLedger,
        certificates: CertificateIssuer,
        clock: Clock,
        trust_domain: str,
        ttl_s: int,
        max_ttl_s: int,
        delay_ns: int,
        overlap_ns: int,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._certificates = certificates
        self._clock = clock
        self._trust_domain = trust_domain
        self._ttl_s = min(ttl_s, max_ttl_s)
        self.max_ttl_s = max_ttl_s
        self._delay_ns = delay_ns
        self._overlap_ns = overlap_ns
        self._issued_ms = self._ended_ms = 0
        # Issuing and ending take turns: what is issued to a holder is either written down before that one is barred,
        # and then ended, or not issued.
        self._turn = asyncio.Lock()
        # A tenant's callers wait for each other first, and one of them for the turn: an operator's revocation must not
        # wait until a thief has been given all that he asks for. Kept for as long as somebody waits.
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Make the first secret if there is none."""
        fresh = provision(MAILBOX, new_pair(), now_ns=self._clock.unix_ns())
        await self._store.update_scope(MAILBOX, lambda before: before or fresh)

    async def issue(self, wish: CapabilityRequest, *, caller: Identity) -> IssuedText:
        """A capability as wished, if the caller may have it."""
        require_realm(wish.realm)
        operations = _operations(wish.operations)
        holder = wish.holder or caller.spiffe_id
        require_may_issue(
            caller, realm=wish.realm, operations=operations, holder=holder, trust_domain=self._trust_domain
        )
        ttl_s = min(wish.ttl_s or self._ttl_s, self.max_ttl_s)
        async with self._line(caller), self._turn:
            await self._require_in_good_standing(caller, holder)
            now = self._clock.unix_ns()
            # Nothing issued from now on may look as if it had been there at the last ending.
            issued_ms = self._issued_ms = max(now // MILLISECOND, self._ended_ms + 1, self._issued_ms)
            line = await self._ledger.line(wish.realm)
            active = (await self._scope()).active(now)
            identifier = Identifier(_root(active), line.version, secrets.token_hex(16), issued_ms, wish.realm)
            expires_ns = now + ttl_s * SECOND
            caveats = [
                Caveat(holder=holder),
                Caveat(operations=operations),
                Caveat(expires_ms=expires_ns // MILLISECOND),
            ]
            if wish.quota is not None:
                caveats.append(Caveat(quota=wish.quota))
            key = derive_root(active.seed, realm=wish.realm, version=line.version)
            capability = mint(key, identifier, *caveats)
            await self._ledger.record(
                IssuedCapability(
                    cap_id=identifier.cap_id,
                    realm=wish.realm,
                    operations=",".join(each for each in Operation if each in operations),
                    holder=holder,
                    tenant=share_of(holder, trust_domain=self._trust_domain),
                    issued_to=str(caller),
                    root=identifier.root,
                    root_version=line.version,
                    issued_ns=issued_ms * MILLISECOND,
                    expires_ns=expires_ns,
                )
            )
        self._log.info(
            "capability issued", cap_id=identifier.cap_id, realm=wish.realm, holder=holder, actor=str(caller)
        )
        return IssuedText(capability.text(), identifier.cap_id, ttl_s, expires_ns)

    async def revoke(self, cap_id: str, *, reason: str, caller: Identity) -> int:
        """End one capability with all that was narrowed from it; the version of the list that has it."""
        audit = self._audit(caller, reason)
        known = await self._ledger.find(cap_id)
        # To a tenant, another's capability is one that does not exist.
        if known is None or (caller.kind is IdentityKind.PRINCIPAL and known.tenant != caller.tenant):
            raise NotFound(
                "No such capability; `snavio caps ls` shows those that are alive.", reason="no-capability"
            )
        require_may_govern(caller, known.tenant)
        version = await self._ledger.end_capability(cap_id, forget_ns=known.expires_ns, audit=audit)
        self._log.warning("capability revoked", cap_id=cap_id, actor=str(caller), reason=reason)
        return version

    async def revoke_holder(self, holder: str, *, bar: bool, reason: str, caller: Identity) -> int:
        """End all that a holder was given so far; with `bar` it gets no other."""
        audit = self._audit(caller, reason)
        require_may_govern(caller, tenant_of(holder, trust_domain=self._trust_domain))
        await self._require_holder(caller, holder)
        async with self._line(caller), self._turn:
            self._ended_ms = max(audit.at_ns // MILLISECOND, self._issued_ms, self._ended_ms)
            version = await self._ledger.end_holder(
                holder,
                until_ms=self._ended_ms,
                forget_ns=audit.at_ns + self.max_ttl_s * SECOND,
                bar=bar,
                audit=audit,
            )
        self._log.warning("holder revoked", holder=holder, actor=str(caller), reason=reason, barred=bar)
        return version

    async def restore_holder(self, holder: str, *, caller: Identity) -> bool:
        """Let a barred holder have capabilities again; whether it was barred."""
        require_may_govern(caller, tenant_of(holder, trust_domain=self._trust_domain))
        changed = await self._ledger.restore_holder(holder, operator=caller.kind is IdentityKind.OPERATOR)
        if changed:
            self._log.warning("holder restored", holder=holder, actor=str(caller))
        return changed

    async def revoke_root(self, realm: str, version: int, *, reason: str, caller: Identity) -> int:
        """End all that was made under a realm's root key of that version, and of those before it."""
        audit = self._audit(caller, reason)
        self._require_may_govern_realm(caller, realm)
        await self._require_in_use(caller, realm)
        async with self._line(caller), self._turn:
            _, at = await self._ledger.update_line(
                realm, lambda line: revoke_through(line, version), audit=audit
            )
        self._log.warning("root key revoked", realm=realm, version=version, actor=str(caller), reason=reason)
        return at

    async def rotate(self, realm: str, *, caller: Identity) -> tuple[int, int]:
        """A new root key for a realm, or a new secret for all of them; its version, and when the old one ends."""
        now = self._clock.unix_ns()
        until = now + self._overlap_ns
        if realm:
            self._require_may_govern_realm(caller, realm)
            await self._require_in_use(caller, realm)
            async with self._line(caller), self._turn:
                line, _ = await self._ledger.update_line(
                    realm,
                    lambda before: rotate_line(before, now_ns=now, overlap_ns=self._overlap_ns),
                    audit=self._audit(caller, "rotated"),
                )
            self._log.warning("root key rotated", realm=realm, version=line.version, actor=str(caller))
            return line.version, until
        require_may_govern(caller, "")
        pair = new_pair()

        def decide(before: Scope | None) -> Scope:
            assert before is not None
            return rotate_scope(
                before, pair, now_ns=now, delay_ns=self._delay_ns, overlap_ns=self._overlap_ns
            )

        # Signer goes on with the old one for the distribution delay: the mailbox must have the new one first.
        scope = await self._store.update_scope(MAILBOX, decide)
        self._log.warning("mailbox secret rotated", root=_root(scope.keys[-1]), actor=str(caller))
        return 0, until + self._delay_ns

    async def listed(
        self, *, realm: str, holder: str, after: str, limit: int, caller: Identity
    ) -> tuple[tuple[IssuedCapability, bool], ...]:
        """Living capabilities that the caller may see, oldest first, each with whether it was revoked."""
        require_may_govern(caller, caller.tenant)
        return await self._ledger.living(
            now_ns=self._clock.unix_ns(),
            realm=realm,
            holder=holder,
            tenant=caller.tenant,
            after=after,
            limit=limit,
        )

    async def roots(self) -> tuple[RootSecret, ...]:
        """The secrets; only for the mailbox."""
        now = self._clock.unix_ns()
        return tuple(
            RootSecret(_root(key), key.seed, key.valid_until_ns)
            for key in (await self._scope()).verifying(now)
        )

    async def endings(self, since: int, *, epoch: int) -> EndingsPage:
        """Early endings, and the current version of each root line; only for the mailbox."""
        return await self._ledger.endings_since(
            since, epoch=epoch, now_ns=self._clock.unix_ns(), limit=MAX_PAGE
        )

    async def line(self, realm: str) -> RootLine:
        """The root keys of a realm."""
        return await self._ledger.line(realm)

    async def _scope(self) -> Scope:
        scope = await self._store.scope(MAILBOX)
        if scope is None:
            raise NotFound("There is no secret for the mailbox.", reason="not-provisioned")
        return scope

    async def _require_in_good_standing(self, caller: Identity, holder: str) -> None:
        await self._certificates.require_not_barred(caller)
        tenant = tenant_of(holder, trust_domain=self._trust_domain)
        # The caller too: barred, it would have one made for its tenant, and be of that tenant.
        tenants = {f"tenant:{each}" for each in (tenant, caller.tenant) if each}
        barred = await self._ledger.barred({holder, caller.spiffe_id, *tenants})
        if barred:
            raise NotAllowed(
                f"{min(barred)} may have no capability until it is restored.", reason="holder-barred"
            )
        if caller.kind is IdentityKind.SERVICE:
            delegation = await self._store.delegation(caller.source)
            if delegation is not None and delegation.suspended:
                raise NotAllowed(f"{caller.source} is suspended.", reason="suspended")

    async def _require_holder(self, caller: Identity, holder: str) -> None:
        """NotFound when a tenant names an unknown holder: each would be remembered for days."""
        if caller.kind is IdentityKind.OPERATOR or holder.startswith("tenant:"):
            return
        now = self._clock.unix_ns()
        identity = parse_identity(holder, trust_domain=self._trust_domain)
        registered = identity.kind is IdentityKind.SERVICE and await self._store.delegation(identity.source)
        if not (
            registered
            or await self._certificates.known(identity)
            or await self._ledger.knows(holder=holder, now_ns=now)
        ):
            raise NotFound(f"Nobody knows {holder}.", reason="no-holder")

    async def _require_in_use(self, caller: Identity, realm: str) -> None:
        """NotFound when a tenant names a realm in which it has no capability: its line would be kept for ever."""
        if caller.kind is IdentityKind.OPERATOR or (await self._ledger.line(realm)).version > 1:
            return
        if not await self._ledger.knows(realm=realm, now_ns=self._clock.unix_ns()):
            raise NotFound(
                f"No capability for {realm} is alive, so there is nothing to rotate or revoke.",
                reason="no-capability",
            )

    def _require_may_govern_realm(self, caller: Identity, realm: str) -> None:
        require_realm(realm)
        tenant, slash, _ = realm.partition("/")
        require_may_govern(caller, tenant if slash else "")

    def _line(self, caller: Identity) -> asyncio.Lock:
        return self._lines.setdefault(caller.tenant, asyncio.Lock())

    def _audit(self, caller: Identity, reason: str) -> CapabilityAuditEntry:
        require_text(reason, "reason")
        return CapabilityAuditEntry(self._clock.unix_ns(), str(caller), reason, caller.tenant)


def _root(key: ScopeKey) -> str:
    return key.key_id.removeprefix("ed25519-")[:16]


def _operations(words: Iterable[str]) -> frozenset[Operation]:
    try:
        operations = frozenset(map(Operation, words))
    except ValueError:
        operations = frozenset()
    if not operations:
        raise BadRequest(f"operation: must be some of {', '.join(Operation)}.", reason="bad-field")
    return operations
