"""Signer's side of capabilities as the mailbox knows it: root secrets, root lines, and what ended early.

Never forgets what was revoked while it could still be presented, and goes on with what it knows while Signer is away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from snavio.clock import Clock
from snavio.domain.capability import Identifier, derive_root
from snavio.domain.capability_root import RootLine
from snavio.domain.identity import Identity
from snavio.errors import IntegrityError, Saturated
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.v1 import signer_pb2 as wire

CALL_SECONDS: Final = 2.0
MAX_SECRETS: Final = 64
MAX_ENDED: Final = 500_000
MAX_LINES: Final = 200_000
MAX_DERIVED: Final = 4096
SECRET_BYTES: Final = 32
SECOND: Final = 1_000_000_000
# A Signer whose clock is ahead forgets sooner than what it ended has expired here.
SKEW_NS: Final = 600 * SECOND


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret; `ends_ns` is 0 while no end is set."""

    secret: bytes = field(repr=False)
    ends_ns: int


class Roots:
    """Lives on one event loop. `changed` is called when something is not good any more."""

    def __init__(self, *, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self.changed = changed
        self._secrets: dict[str, Secret] = {}
        self._lines: dict[str, RootLine] = {}
        # By id and by holder; each with when it may be forgotten.
        self._ended: dict[str, int] = {}
        self._holders: dict[str, tuple[int, int]] = {}
        self._derived = lru_cache(maxsize=MAX_DERIVED)(self._derive)
        self._swept_unix_ns = 0
        self.version = 0
        self.epoch = 0

    def key(self, identifier: Identifier) -> bytes | None:
        """The root key that a capability claims to be made under; None if its secret is not known."""
        if identifier.root not in self._secrets:
            return None
        return self._derived(identifier.root, identifier.realm, identifier.version)

    def revoked(self, identifier: Identifier, presenter: Identity) -> bool:
        """True when a genuine capability ended before its time."""
        now = self._clock.unix_ns()
        secret = self._secrets.get(identifier.root)
        if secret is None or (secret.ends_ns and secret.ends_ns <= now):
            return True
        line = self._lines.get(identifier.realm)
        if line is not None and not line.accepts(identifier.version, now):
            return True
        if identifier.cap_id in self._ended:
            return True
        holders = (presenter.spiffe_id, f"tenant:{presenter.tenant}")
        return any(identifier.issued_ms <= self._holders.get(each, (0, 0))[0] for each in holders)

    def known(self) -> frozenset[str]:
        """Names of the secrets that are not over."""
        now = self._clock.unix_ns()
        return frozenset(
            root for root, each in self._secrets.items() if not each.ends_ns or each.ends_ns > now
        )

    def take_secrets(self, secrets: dict[str, Secret], *, max_ttl_s: int) -> None:
        """Replace them. One that Signer has dropped is over, but verifies as long as its leases may be settled."""
        now = self._clock.unix_ns()
        for each in secrets.values():
            if len(each.secret) != SECRET_BYTES:
                raise IntegrityError("Signer's answer holds no secret.", reason="malformed")
        kept = {
            root: Secret(old.secret, min(old.ends_ns or now, now))
            for root, old in self._secrets.items()
            if root not in secrets and (old.ends_ns or now) + max_ttl_s * SECOND > now
        }
        together = {**kept, **secrets}
        if together != self._secrets:
            self._secrets = dict(list(together.items())[-MAX_SECRETS:])
            self._derived.cache_clear()
            self.changed()

    def take_endings(self, answer: wire.CapabilityRevocationsResponse) -> None:
        """Add to what is known. Saturated when not all of it fits: as much as there is room for is taken, nothing is
        evicted for it, and the whole is asked for again."""
        left_out = 0
        for one in answer.capability:
            if one.id in self._ended or self._has_room():
                self._ended[one.id] = one.forget_unix_ns
            else:
                left_out += 1
        for holder in answer.holder:
            before = self._holders.get(holder.holder, (0, 0))
            if before[1] or self._has_room():
                self._holders[holder.holder] = max(
                    before, (holder.issued_until_unix_ms, holder.forget_unix_ns)
                )
            else:
                left_out += 1
        for line in answer.line:
            left_out += not self._take_line(_line(line))
        if answer.capability or answer.holder or answer.line:
            self.changed()
        if left_out:
            raise Saturated(
                f"{left_out} revoked capabilities or root keys were left out.", retry_after_ms=60_000
            )
        self.version, self.epoch = answer.version, answer.epoch

    def gauges(self) -> dict[str, float]:
        """For operators."""
        return {
            "roots": len(self._secrets),
            "root_lines": len(self._lines),
            "revoked": len(self._ended),
            "revoked_holders": len(self._holders),
        }

    def _take_line(self, line: RootLine) -> bool:
        before = self._lines.get(line.realm)
        if before is None and len(self._lines) >= MAX_LINES:
            return False
        # A Signer that came from a backup knows less than it once told: what is revoked stays so.
        if before is None or before.minimum <= line.minimum:
            self._lines[line.realm] = line
        return True

    def _has_room(self) -> bool:
        if len(self._ended) + len(self._holders) < MAX_ENDED:
            return True
        long_ago = self._clock.unix_ns() - SKEW_NS
        if long_ago < self._swept_unix_ns + SECOND:
            return False  # Looked a moment ago: a full table must not cost a walk through it for each entry.
        self._swept_unix_ns = long_ago
        self._ended = {cap_id: end for cap_id, end in self._ended.items() if end > long_ago}
        self._holders = {name: told for name, told in self._holders.items() if told[1] > long_ago}
        return len(self._ended) + len(self._holders) < MAX_ENDED

    def _derive(self, root: str, realm: str, version: int) -> bytes:
        return derive_root(self._secrets[root].secret, realm=realm, version=version)


def roots_pull(signer: MeshChannel, roots: Roots, *, clock: Clock, interval_s: float) -> Poller:
    """A pull that keeps `roots` up to date; the first one brings all there is."""

    async def refresh() -> None:
        while True:
            answer = await signer.call(
                "/snavio.v1.Signer/CapabilityRevocations",
                wire.CapabilityRevocationsRequest(since_version=roots.version, epoch=roots.epoch),
                wire.CapabilityRevocationsResponse,
                timeout_s=CALL_SECONDS,
            )
            roots.take_endings(answer)
            if not answer.more:
                break
        if frozenset(answer.root) != roots.known():
            told = await signer.call(
                "/snavio.v1.Signer/MailboxRoots",
                wire.MailboxRootsRequest(),
                wire.MailboxRootsResponse,
                timeout_s=CALL_SECONDS,
            )
            secrets = {each.root: Secret(each.secret, each.ends_unix_ns) for each in told.root}
            roots.take_secrets(secrets, max_ttl_s=told.max_ttl_seconds)

    return Poller("capability roots", refresh, clock=clock, interval_s=interval_s)


def _line(line: wire.RootLine) -> RootLine:
    ends = tuple(zip(line.old_version, line.old_ends_unix_ns, strict=False))
    return RootLine(line.realm, line.version, line.minimum, ends)
