"""Decides who gets a certificate for which identity, for how long, and which are not to be served any more.

Never certifies a mesh identity for anybody but itself: whoever could would be any service of the mesh.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from services.signer.settings import MAX_LIFETIME_S
from snavio.clock import Clock
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
from snavio.ports.keystore import KeyStore, Revocation, RevocationPage

MAX_REASON_LENGTH = 256
MAX_PAGE = 20_000
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


@dataclass(frozen=True, slots=True)
class Issued:
    """A fresh certificate."""

    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_ns: int


class Certificates:
    """The installation's CA at work."""

    def __init__(
        self,
        *,
        ca: CertificateAuthority,
        store: KeyStore,
        clock: Clock,
        trust_domain: str,
        ttl_s: Callable[[Kind], int],
    ) -> None:
        self._ca = ca
        self._store = store
        self._clock = clock
        self._trust_domain = trust_domain
        self._ttl_s = ttl_s
        self._log = structlog.get_logger()

    def issue(self, *, csr_pem: str, spiffe_id: str, ttl_s: int, caller: Identity) -> Issued:
        """A certificate for the key in the request and for that identity; its other wishes are ignored."""
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain)
        _require_may_certify(caller, identity)
        public_key = public_key_of_csr(csr_pem)
        cap = self._ttl_s(identity.kind)
        leaf = issue_leaf(
            self._ca,
            public_key=public_key,
            identity=identity,
            ttl_s=min(ttl_s or cap, cap),
            now_unix_ns=self._clock.unix_ns(),
        )
        issued = Issued(
            certificate_pem(leaf).decode(),
            self._ca.certificate_pem.decode(),
            serial_of(leaf),
            not_after_unix_ns(leaf),
        )
        self._log.info(
            "certificate issued",
            identity=identity.spiffe_id,
            serial=issued.serial,
            actor=str(caller),
            not_after_ns=issued.not_after_ns,
        )
        return issued

    async def revoke(self, *, serial: str, reason: str, caller: Identity) -> int:
        """Put a serial on the denylist; returns the version that first has it."""
        # Leading zeros would put a serial on the list that no certificate ever presents.
        if not _SERIAL.fullmatch(serial) or serial.startswith("0"):
            raise BadRequest("serial: must be lower-case hex without leading zeros.", reason="bad-field")
        if len(reason) > MAX_REASON_LENGTH or not reason.isprintable():
            raise BadRequest(
                f"reason: must be at most {MAX_REASON_LENGTH} printable characters.", reason="bad-field"
            )
        now = self._clock.unix_ns()
        # Whichever certificate it is, issued before now, it has ended by then.
        forget_at = now + (MAX_LIFETIME_S + BACKDATE_S) * 1_000_000_000
        version = await self._store.revoke(
            Revocation(serial, now, forget_at, actor=str(caller), reason=reason), now_ns=now
        )
        self._log.warning("certificate revoked", serial=serial, actor=str(caller), reason=reason)
        return version

    async def denylist(self, since: int) -> RevocationPage:
        """Revoked serials after a version."""
        return await self._store.revocations_since(since, now_ns=self._clock.unix_ns(), limit=MAX_PAGE)


def _require_may_certify(caller: Identity, identity: Identity) -> None:
    renews_itself = identity == caller and caller.kind in (Kind.MESH, Kind.SERVICE, Kind.OPERATOR)
    names_another = caller.kind is Kind.OPERATOR and identity.kind is not Kind.MESH
    if not renews_itself and not names_another:
        raise NotAllowed(
            f"{caller} may not have a certificate made for {identity}.", reason="not-your-identity"
        )
