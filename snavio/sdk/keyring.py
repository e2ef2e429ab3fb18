"""A source's HMAC keys, and which of them signs now.

Never shows a secret: neither in a repr nor in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from snavio.errors import Unavailable
from snavio.v1.signer_pb2 import TenantConfigResponse

_FOREVER = 1 << 63


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One version of the key."""

    version: str
    secret: bytes = field(repr=False)
    not_before_unix_ns: int
    not_after_unix_ns: int
    """First time that it must not sign any more; 0 while no end is set."""
    primary_from_unix_ns: int
    revoked: bool = False

    def usable(self, now_unix_ns: int) -> bool:
        """True if Shield would accept a signature of this moment."""
        ended = 0 < self.not_after_unix_ns <= now_unix_ns
        return not self.revoked and not ended and self.not_before_unix_ns <= now_unix_ns


class Keyring:
    """The versions that Signer told last. `generation` grows with every answer that changed something."""

    __slots__ = ("_chosen", "_chosen_until_unix_ns", "_keys", "_named", "generation", "on_change", "source")

    def __init__(self) -> None:
        self._keys: tuple[SigningKey, ...] = ()
        self._named = ""
        self._chosen: SigningKey | None = None
        self._chosen_until_unix_ns = 0
        self.generation = 0
        self.source = ""
        self.on_change: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"Keyring({self.source!r}, versions={[key.version for key in self._keys]})"

    def learn(self, config: TenantConfigResponse) -> None:
        """Take Signer's answer in place of what was known."""
        keyset = config.keyset
        self.replace(
            (
                SigningKey(
                    key.version,
                    key.secret,
                    key.not_before_unix_ns,
                    key.not_after_unix_ns,
                    key.primary_from_unix_ns,
                    key.revoked,
                )
                for key in ([] if keyset.deleted else keyset.version)
            ),
            source=keyset.source,
            primary=config.primary,
        )

    def replace(self, keys: Iterable[SigningKey], *, source: str, primary: str) -> None:
        """Hold exactly `keys`, oldest first; `primary` is the one that Signer would sign with."""
        held = tuple(keys)
        changed = held != self._keys or primary != self._named
        self._keys, self._named, self.source = held, primary, source
        self._chosen = None
        if changed:
            self.generation += 1
            if self.on_change is not None:
                self.on_change()

    def signing_key(self, now_unix_ns: int) -> SigningKey:
        """The newest usable version whose time as primary has come; Unavailable when there is none."""
        if self._chosen is None or now_unix_ns >= self._chosen_until_unix_ns:
            self._choose(now_unix_ns)
        assert self._chosen is not None
        return self._chosen

    def _choose(self, now_unix_ns: int) -> None:
        usable = [key for key in self._keys if key.usable(now_unix_ns)]
        due = [key for key in usable if key.primary_from_unix_ns <= now_unix_ns]
        # A producer whose clock is behind sees no primary yet; then Signer's own choice counts.
        due = due or [key for key in self._keys if key.version == self._named and not key.revoked]
        if not due:
            raise Unavailable(
                f"{self.source or 'This source'} has no key to sign with.", reason="no-signing-key"
            )
        self._chosen = max(due, key=lambda key: key.primary_from_unix_ns)
        turns = [self._chosen.not_after_unix_ns or _FOREVER]
        turns += [max(key.primary_from_unix_ns, key.not_before_unix_ns) for key in self._keys]
        self._chosen_until_unix_ns = min((turn for turn in turns if turn > now_unix_ns), default=_FOREVER)
